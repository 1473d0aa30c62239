"""scripts/reproduce.py: the commands that it runs and leaves out, and its refusals."""

import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from msbp.analysis.runs import Sources, run_frame
from msbp.analysis.settings import Setting, configs
from msbp.config import CONF, ROOT, compose


@pytest.fixture
def dry_run(tmp_path, monkeypatch, capsys):
    """The commands that the script shows for these words, and its messages."""

    def dry_run(*words, without=()):
        monkeypatch.setenv("HYDRA_FULL_ERROR", "1")  # as cli.start has it
        reasons = dict.fromkeys(without, "licensed")
        monkeypatch.setattr(
            "msbp.jobs.without_data",
            lambda runs: {run: reasons[run[0]] for run in runs if run[0] in reasons},
        )
        main = runpy.run_path(str(ROOT / "scripts/reproduce.py"))["main"]
        monkeypatch.setattr(
            sys, "argv", ["reproduce.py", "dry_run=true", f"paths.outputs={tmp_path}", *words]
        )
        main()
        output = capsys.readouterr()
        return output.out.splitlines(), output.err.removeprefix("looking for runs that have no record yet\n")

    return dry_run


def test_a_dry_run_shows_every_command_and_says_what_has_no_data(dry_run, tmp_path):
    commands, output = dry_run("table=textcnn", "only=[polarity,subjectivity]", without=["task=polarity"])
    assert commands[:2] == [
        f"python -m src.train task=subjectivity paths.outputs={tmp_path} seed=0 method={method}"
        for method in ("baseline", "sbp")
    ]
    assert all("task=subjectivity" in command for command in commands) and not list(tmp_path.iterdir())
    reason = "left out, since a dry run downloads nothing. licensed"
    assert output.startswith(f"task=polarity: {len(commands)} runs {reason}\n{len(commands)} commands")


def test_a_dry_run_says_how_long_published_runs_of_its_commands_trained(dry_run, tmp_path, caplog):
    every = map(json.loads, (ROOT / "outputs/published/records.jsonl").read_text().splitlines())
    theirs = [each for each in every if (each["task"], each["method"]) == ("subjectivity", "baseline")]
    folder = tmp_path / "published"
    folder.mkdir()
    (folder / "records.jsonl").write_text(
        "".join(json.dumps(each | {"total_s": 360.0}) + "\n" for each in theirs)
    )
    commands, output = dry_run("table=textcnn", "only=subjectivity", f"paths.published={folder}")
    known = sum("method=baseline" in command for command in commands)
    trained = (
        f"{known} of them would take {known / 10:.1f} hours of timed training steps, as published runs did"
    )
    trained += f"; start and evaluation come on top; {len(commands) - known} have no published run"
    assert known and output.splitlines()[-1] == f"{len(commands)} commands; {trained}"
    with open(folder / "records.jsonl", "a") as file:
        file.write("no record\n")
    _, output = dry_run("table=textcnn", "only=subjectivity", f"paths.published={folder}")
    assert f"left out {folder}/records.jsonl line {len(theirs) + 1}: " in caplog.text and trained in output
    folder = tmp_path / "none"
    commands, output = dry_run("table=textcnn", "only=subjectivity", f"paths.published={folder}")
    assert output.splitlines()[-1] == f"{len(commands)} commands"


@pytest.mark.parametrize("choice", [["figure=bounds"], ["table=theory"], ["figure=bounds", "table=theory"]])
def test_the_checks_of_the_theory_are_made_once_and_skipped_where_they_are_recorded(
    dry_run, tmp_path, choice
):
    commands, output = dry_run(*choice)
    assert commands == [f"python -m src.theory paths.outputs={tmp_path}"] and output == "1 commands\n"
    shutil.copy(ROOT / "outputs/published/theory.json", tmp_path)
    assert dry_run(*choice) == ([], "0 commands\n")


@pytest.mark.parametrize("group", ["table", "figure"])
def test_no_table_or_figure_is_without_commands_where_nothing_is_measured(group):
    requested = runpy.run_path(str(ROOT / "scripts/reproduce.py"))["requested"]
    nothing = Sources(run_frame(()), lambda overrides: Setting(" ".join(overrides)))
    every = configs(Path(CONF), group)
    assert [name for name, config in every.items() if not requested([config], nothing)] == []


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ((), r"reproduce what\?.*main"),
        (("all=true", "jobs=0"), "jobs must be greater than 0, got 0"),
        (("all=maybe",), "all must be true or false, got 'maybe'"),
        (("all=true", "table=main"), "^all has table=main among others; leave one of the two out$"),
        (("all=true", "figure=angle"), "^all has figure=angle among others; leave one of the two out$"),
        (("all=true", "dry_run=maybe"), "dry_run must be true or false, got 'maybe'"),
        (("all=true", "only=3"), "only must be text or a list, got 3"),
        (("all=true", "paths.offline=0"), "paths.offline must be true or false"),
        (("table=textcnn", "only=weather"), "no such task; tasks: .*mnist"),
        (("table=main", "+trainer.epochs=1"), r"\+trainer.epochs=1: .*takes no settings of runs"),
        (("table=main", "seed=3"), "^seed=3: .*takes no settings of runs"),
        (("table=main", "model.hidden=3"), "^model.hidden=3: .*takes no settings of runs"),
        (
            ("tabel=main",),
            "^tabel=main: .*reproduce.py: all, dry_run, figure, jobs, only, paths, table",
        ),
        (("allow=true",), "^allow=true: "),
    ],
)
def test_wrong_or_missing_options_are_refused_with_the_choices(dry_run, words, refusal):
    with pytest.raises(ValueError, match=refusal):
        dry_run(*words)


def test_every_folder_of_a_run_can_be_set_and_reaches_the_commands(dry_run, tmp_path):
    locations = set(compose().paths) - {"outputs", "published", "offline"}
    given = [f"paths.{key}={tmp_path}/{key}" for key in locations] + ["paths.offline=true"]
    commands, _ = dry_run("table=textcnn", "only=polarity", *given)
    assert commands and all(set(given) < set(command.split()) for command in commands)
