"""scripts/reproduce.py: what it would run, what it leaves out, and what it says of its work."""

import runpy
import sys
from types import SimpleNamespace

import pytest

from msbp.config import ROOT, compose
from msbp.jobs.news import News, duration
from msbp.jobs.ready import lack


@pytest.fixture
def dry_run(tmp_path, monkeypatch, capsys):
    """The commands that the script shows for these words, and what it says beside them."""

    def dry_run(*words, without=()):
        monkeypatch.setenv("HYDRA_FULL_ERROR", "1")  # as cli.start has it
        reasons = dict.fromkeys(without, "licensed")
        monkeypatch.setattr(
            "msbp.jobs.ready.unready",
            lambda runs: {run: reasons[run[0]] for run in runs if run[0] in reasons},
        )
        main = runpy.run_path(str(ROOT / "scripts/reproduce.py"))["main"]
        monkeypatch.setattr(
            sys, "argv", ["reproduce.py", "dry_run=true", f"paths.outputs={tmp_path}", *words]
        )
        main()
        said = capsys.readouterr()
        return said.out.splitlines(), said.err

    return dry_run


def test_a_dry_run_shows_every_command_and_says_what_has_no_data(dry_run, tmp_path):
    commands, said = dry_run("table=textcnn", "only=[polarity,subjectivity]", without=["task=polarity"])
    assert commands[:2] == [
        f"python -m src.train task=subjectivity paths.outputs={tmp_path} seed=0 method={method}"
        for method in ("baseline", "sbp")
    ]
    assert all("task=subjectivity" in command for command in commands) and not list(tmp_path.iterdir())
    assert said == f"task=polarity: {len(commands)} runs left out. licensed\n{len(commands)} commands\n"


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ((), r"reproduce what\?.*main"),
        (("all=true", "jobs=0"), "jobs must be"),
        (("table=textcnn", "only=weather"), "no such task; tasks: .*mnist"),
        (("table=main", "+trainer.epochs=1"), r"\+trainer.epochs=1: .*takes no settings of runs"),
    ],
)
def test_what_is_not_clear_is_refused_with_the_choices(dry_run, words, refusal):
    with pytest.raises(ValueError, match=refusal):
        dry_run(*words)


def test_every_place_of_a_run_can_be_named_and_reaches_the_commands(dry_run, tmp_path):
    places = set(compose().paths) - {"outputs", "offline"}
    given = [f"paths.{key}={tmp_path}/{key}" for key in places] + ["paths.offline=true"]
    commands, _ = dry_run("table=textcnn", "only=polarity", *given)
    assert commands and all(set(given) < set(command.split()) for command in commands)


def test_data_that_are_missing_are_said_in_a_line_and_a_made_up_sample_needs_none(tmp_path):
    places = [f"paths.data={tmp_path}", f"paths.outputs={tmp_path}", "paths.offline=true"]
    said = lack(["task=parsing", *places])
    assert "LDC99T42" in said and "\n" not in said
    assert lack(["task=mnist", "task.sample=tiny", *places]) == ""


def worker(key, returncode=None, seconds=50.0):
    job = SimpleNamespace(key=key, command=f"python {key}")
    process = SimpleNamespace(returncode=returncode)
    return SimpleNamespace(job=job, process=process, seconds=seconds, log=f"{key}.log", said=lambda: "")


def test_news_count_jobs_name_failures_and_learn_how_much_longer_than_training_a_run_takes(capsys):
    asked = []

    def left(pending, running, more, at_once):
        asked.append((len(pending), more, at_once))
        return 1200.0

    durations = SimpleNamespace(training=lambda job: 25.0, left=left)
    news = News(SimpleNamespace(durations=durations), 3, at_once=2)
    for key, code in (("a", 0), ("b", 3)):
        news.begins(worker(key))
        news.ends(worker(key, code), [], ["c"])
    news.waits(["c"])
    news.waits(["c"])
    assert capsys.readouterr().err.splitlines() == [
        "[1/3] python a",
        "[1/3] done in 50 s; about 20 min left",
        "[2/3] python b",
        "[2/3] failed with exit code 3: b.log",
        "waiting for runs of another program in this outputs folder: 1 jobs to go",
    ]
    assert asked == [(1, 2.0, 2)]


def test_durations_are_said_at_a_glance():
    assert [duration(seconds) for seconds in (7.4, 99, 700, 12600)] == ["7 s", "99 s", "12 min", "3.5 h"]
