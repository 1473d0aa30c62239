"""The report and publishing by their commands; once in a process without torch, network and locale."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.errors import HydraException

from msbp.analysis.publish import refuse_altered
from msbp.analysis.runs import read_runs
from msbp.analysis.settings import catalogue, settings_from
from msbp.cli import explain
from msbp.config import CONF, ROOT, compose
from msbp.record import settings, signature
from scripts.publish import main as publish_main
from scripts.publish import run as publish
from src.report import keep_published, report
from src.report import main as report_main

BARRED = """
import socket, sys
def refuse(*args, **keys): raise OSError("no network here")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
class Barred:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch": raise ImportError("no torch here")
sys.meta_path.insert(0, Barred())
"""
C_LOCALE = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
EXTREME = ("task=mnist", "model.hidden=5000")
RUN = "python scripts/reproduce.py"
EVERY = catalogue(Path(CONF))


@pytest.fixture
def paths(tmp_path):
    """Overrides that put outputs, published and README into tmp_path."""
    (tmp_path / "README.md").write_text("<!-- table: extreme -->\n<!-- end of table -->\n")
    files = {"outputs": tmp_path, "published": tmp_path / "published", "readme": tmp_path / "README.md"}
    return [f"paths.{name}={path}" for name, path in files.items()]


@pytest.fixture
def shown(paths, settle, capsys):
    """Return the output of the report, its table cells without padding."""

    def shown(*words):
        report(compose([*words, *paths], "report"), settle, paths[:1])
        out, err = capsys.readouterr()
        return re.sub(" +", " ", out), err

    return shown


@pytest.fixture
def put(paths, settle, capsys):
    """Return the output of publishing."""

    def put(*words):
        publish(compose([*words, *paths], "publish"), settle, check=lambda runs: None)
        return capsys.readouterr().out

    return put


@pytest.fixture
def leave(tmp_path, record_of):
    """Write the record of a finished run with these overrides, which serve as its signature."""

    def leave(*overrides, **fields):
        record = record_of(**{"signature": " ".join(overrides)} | fields)
        path = tmp_path / "runs" / f"{record['signature']}-{record['seed']}" / "record.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record), encoding="utf-8")
        return path

    return leave


def test_a_table_needs_no_torch_no_network_and_no_locale(paths, leave, tmp_path):
    for words, seconds in ((["method=baseline"], 320.0), (["method=msbp", "method.r=0.001"], 4.0)):
        leave(*EXTREME, *words, bp_s=seconds, signature=signature(compose([*EXTREME, *words])))
    report(compose(["table=extreme", *paths], "report"), settings_from(Path(CONF), compose), paths[:1])
    files = {path: path.read_bytes() for path in (tmp_path / "report").iterdir()}
    assert {path.name for path in files} == {"extreme.md", "extreme.tex", "extreme.csv"}
    text = re.sub(" +", " ", files[tmp_path / "report" / "extreme.md"].decode())
    assert "| + MSBP (r=0.001, γ=0.8) | 4.00 (80.00×) |" in text
    for path in files:
        path.unlink()
    (tmp_path / "barred").mkdir()
    (tmp_path / "barred" / "sitecustomize.py").write_text(BARRED)
    searched = os.pathsep.join([str(tmp_path / "barred"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "src.report", "table=extreme", *paths], cwd=ROOT, capture_output=True,
        env=os.environ | C_LOCALE | {"PYTHONPATH": searched}, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {path: path.read_bytes() for path in (tmp_path / "report").iterdir()} == files


TRIAL = ["task=mnist", "method=msbp", "trainer.epochs=3", "method.r=0.01", "model.hidden=1000"]


def test_without_a_choice_all_tables_are_written_and_those_with_runs_printed(shown, leave, tmp_path):
    cut = leave(*EXTREME, "method=baseline", seed=0)
    leave(*EXTREME, "method=baseline", seed=1)
    leave("task=mnist", "method=msbp", seed=1)
    cut.write_text(cut.read_text()[:200])
    for seed in (0, 1):
        leave(*TRIAL, seed=seed, test=97.0 + seed, config=settings(compose(TRIAL)))
    out, err = shown()
    names = {path.stem for group in ("table", "figure") for path in (ROOT / "conf" / group).iterdir()}
    written = {path.name.partition(".")[0] for path in (tmp_path / "report").iterdir()}
    assert written == names | {"claims", "index", "other"}
    assert "extreme" in re.search("(?s)with rows that lack runs: (.*?);", out)[1]
    assert f"{RUN} all paths.outputs={tmp_path}" in " ".join(out.split())
    assert "MNIST, 2 epochs of 20" in (tmp_path / "report" / "extreme.md").read_text("utf-8")
    assert f"left out {cut}: not whole JSON" in err
    assert f"\nmnist msbp {' '.join(sorted(TRIAL[2:]))}: test accuracy 97.50 (seed 0, 1)\n" in out


def test_a_folder_without_runs_is_said_to_have_none(shown, tmp_path):
    out, _ = shown()
    assert out.startswith(f"no runs in {tmp_path} yet; wrote {len(EVERY)} empty tables and figures. ")
    assert "open: " not in out and (tmp_path / "report" / "index.html").exists()


def test_a_chosen_table_shows_its_blocks_with_runs_and_how_to_run_the_others(shown, leave, tmp_path):
    leave(*EXTREME, "method=baseline", seed=1)
    out, _ = shown("table=extreme")
    assert " 1 of 5 |" in out and f"\nMNIST, 2 epochs of 20: no runs yet; {RUN} table=extreme" in out
    command = f"python -m src.train -m task=mnist model.hidden=5000 paths.outputs={tmp_path}"
    assert f"\n{command} 'seed=range(0,5)' method=baseline\n" in out


def test_a_chosen_table_mentions_runs_that_no_row_shows(shown, leave):
    leave(*TRIAL, config=settings(compose(TRIAL)))
    assert "1 other records are not part of this; python -m src.report has all" in shown("table=main")[0]


def test_a_chosen_table_is_printed_even_without_runs(shown):
    out, _ = shown("table=extreme")
    assert "3667.5 s" in out and "0 of 5¹" in out


def test_only_published_records_are_shown_if_they_are_chosen(shown, put, leave, tmp_path):
    leave(*EXTREME, "method=baseline")
    message = put("table=extreme")
    assert "records.jsonl:\n  1 added, 0 replaced, 0 kept as they were\n" in message
    assert f"rewritten:\n  {tmp_path / 'published' / 'extreme.csv'}\n" in message and "README.md\n" in message
    assert " 98.20 (+0.00) | 1 of 5 |" in re.sub(" +", " ", (tmp_path / "README.md").read_text("utf-8"))
    assert "0 added, 0 replaced, 1 kept as they were\nrewritten:\n  nothing" in put("table=extreme")
    leave(*EXTREME, "method=baseline", seed=1)
    assert " 2 of 5 |" in shown("table=extreme")[0]
    own = (tmp_path / "report" / "extreme.md").read_bytes()
    assert " 1 of 5 |" in shown("table=extreme", "records=published")[0]
    assert (tmp_path / "report" / "extreme.md").read_bytes() == own
    assert (tmp_path / "report-published" / "extreme.md").exists()


def test_a_stale_readme_fails_the_check_until_it_is_written(paths, settle, tmp_path, capsys):
    def keep(word):
        keep_published(compose([f"readme={word}", *paths], "report"), EVERY, settle)

    (tmp_path / "published").mkdir()
    with pytest.raises(ValueError, match=r"stale: .*README.md; run python -m src.report readme=write"):
        keep("check")
    keep("write")
    capsys.readouterr()
    keep("check")
    assert capsys.readouterr().out.endswith(" are up to date\n")


@pytest.mark.parametrize("word", ["table=theory", "figure=bounds"])
def test_checks_of_committed_code_are_published_for_their_table_or_figure(word, put, tmp_path):
    with pytest.raises(ValueError, match=r"not checked yet: python -m src\.theory"):
        put(word)
    checks = json.loads((ROOT / "outputs/published/theory.json").read_text("utf-8"))
    own = tmp_path / "theory.json"
    for uncommitted in ({"dirty": True}, {"commit": "unknown"}):
        own.write_text(json.dumps(checks | uncommitted), "utf-8")
        with pytest.raises(ValueError, match="checked by uncommitted code"):
            put(word)
    assert not (tmp_path / "published").exists()
    own.write_text(json.dumps(checks | {"dirty": False}), "utf-8")
    put(word)
    assert json.loads((tmp_path / "published/theory.json").read_text("utf-8"))["dirty"] is False


def test_publishing_uncommitted_code_is_refused_with_the_reason(put, leave, tmp_path):
    leave(*EXTREME, "method=baseline", dirty=True)
    with pytest.raises(ValueError, match="uncommitted code, so nobody can repeat it"):
        put("table=extreme")
    assert not (tmp_path / "published").exists()


IDLE = {  # by entry point: words of which one would have no effect, and how the refusal begins
    report_main: [
        (["readme=write", "table=extreme"], "readme=write renders all that is published, not table=extreme"),
        (["readme=check", "figure=angle"], "readme=check renders all that is published, not figure=angle"),
    ],
    publish_main: [
        (["table=extreme", "readme=check"], "readme=check is for python -m src.report"),
        (["table=extreme", "readme=write"], "readme=write is for python -m src.report"),
        (["table=extreme", "records=published"], "records=published is for python -m src.report"),
        (["bench=true", "translations=true"], "translations=true is about runs; choose them by table="),
        (["bench=true", "replace=true"], "replace=true is about runs; choose them by table="),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("main", "words", "refusal"), [(main, *each) for main, every in IDLE.items() for each in every],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_an_option_without_effect_is_refused_in_a_line_before_anything_is_written(
    main, words, refusal, paths, leave, tmp_path, monkeypatch
):
    leave(*EXTREME, "method=baseline")
    before = {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")  # as cli.start has it
    monkeypatch.setattr(sys, "argv", ["program", *words, *paths])
    with pytest.raises(ValueError) as refused:
        main()
    assert str(refused.value).startswith(refusal) and "\n" not in str(refused.value)
    assert {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()} == before


@pytest.mark.parametrize("fields", [{"task": "polarity"}, {"method": "msbp"}, {"signature": "00000000"}])
def test_a_record_that_disagrees_with_its_configuration_is_not_published(leave, tmp_path, fields):
    config = compose([*EXTREME, "method=sbp", "method.r=0.001"])
    record = {"signature": signature(config), "task": "mnist", "method": "sbp", "config": settings(config)}
    leave(**record | fields)
    with pytest.raises(ValueError, match="its configuration is that of mnist sbp .*the record was altered"):
        refuse_altered(read_runs(tmp_path / "runs", []))
    leave(**record)
    refuse_altered(read_runs(tmp_path / "runs" / f"{record['signature']}-0", []))


def test_publishing_names_records_that_cannot_be_read(paths, put, leave, settle, capsys):
    leave(*EXTREME, "method=baseline", seed=1)
    cut = leave(*EXTREME, "method=baseline", seed=0)
    cut.write_text(cut.read_text()[:200])
    publish(compose(["table=extreme", *paths], "publish"), settle, check=lambda runs: None)
    assert f"left out {cut}: not whole JSON" in capsys.readouterr().err


UNCLOSED = "<!-- table: extreme -->\nmine\n"
REFUSED = {  # by file: what it holds, None for nothing, and what the message names
    "README.md": [(None, "paths.readme names it"), (UNCLOSED, "needs one <!-- end of table -->"),
                  (UNCLOSED.replace("extreme", "extrem") + "<!-- end of table -->", "shows table: extrem;")],
    "published/README.md": [(UNCLOSED, "published/README.md: each <!-- table: NAME --> needs one")],
    "published/records.jsonl": [("{", "records.jsonl line 1: not whole JSON")],
    "published/angles.jsonl": [("{", "angles.jsonl line 1: no angle: ")],
    "published/bench.json": [("5", "bench.json: ")],
    "published/theory.json": [("{", "theory.json: not whole JSON")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("file", "content", "message"), [(file, *each) for file, every in REFUSED.items() for each in every]
)
def test_what_cannot_be_rendered_is_refused_before_anything_is_published(
    put, leave, tmp_path, file, content, message
):
    leave(*EXTREME, "method=baseline")
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(content or "")
    if content is None:
        path.unlink()

    def files():
        return {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}

    before = files()
    with pytest.raises(ValueError, match=re.escape(message)):
        put("table=extreme")
    assert files() == before


@pytest.mark.parametrize("words", [["records=published"], ["readme=check"], ["readme=write"]])
def test_a_folder_of_what_is_published_that_does_not_exist_is_named(words, tmp_path, settle):
    cfg = compose([*words, f"paths.published={tmp_path}/typo", f"paths.outputs={tmp_path}"], "report")
    with pytest.raises(ValueError, match=f"there is no folder {tmp_path}/typo, which paths.published names"):
        keep_published(cfg, EVERY, settle) if cfg.readme else report(cfg, settle)
    assert not list(tmp_path.iterdir())


def test_a_table_name_cannot_refer_to_another_folder(tmp_path, settle):
    paths = [f"paths.outputs={tmp_path}/out", f"paths.published={tmp_path}/none"]
    report(compose(["table=main", "table.name=../../x", *paths], "report"), settle)
    assert {path.parent for path in tmp_path.rglob("*.*")} == {tmp_path / "out/report"}


@pytest.mark.parametrize(("word", "expected"), [("table=maine", "main"), ("tabel=main", "tabel")])
def test_unknown_choices_are_refused_with_those_that_exist(word, expected):
    with pytest.raises(HydraException) as refused:
        compose([word], "report")
    assert expected in explain(refused.value)
