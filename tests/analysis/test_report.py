"""The report and publishing as a user runs them, in a process of their own without torch and network."""

import json
import os
import re
import subprocess
import sys

import pytest

from msbp.launch import ROOT, compose
from msbp.record import signature
from src.report import keep_published, read

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


@pytest.fixture
def run(tmp_path):
    """Runs a command of the project with outputs, published and README in tmp_path."""
    (tmp_path / "barred").mkdir()
    (tmp_path / "barred" / "sitecustomize.py").write_text(BARRED)
    (tmp_path / "README.md").write_text("<!-- table: extreme -->\n<!-- end of table -->\n")
    places = [f"paths.outputs={tmp_path}", f"paths.published={tmp_path / 'published'}"]
    places.append(f"paths.readme={tmp_path / 'README.md'}")

    def run(*words, **environment):
        return subprocess.run(
            [sys.executable, *words, *places], cwd=ROOT, capture_output=True, text=True, encoding="utf-8",
            env=os.environ | {"PYTHONPATH": str(tmp_path / "barred")} | environment, timeout=600,
        )  # fmt: skip

    return run


@pytest.fixture
def leave(tmp_path, record_of):
    """Leaves the record of a finished run of these overrides below the outputs folder."""

    def leave(*overrides, **fields):
        record = record_of(signature(compose(overrides)), **fields)
        path = tmp_path / "runs" / f"{record['signature']}-{record['seed']}" / "record.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(record), encoding="utf-8")
        return path

    return leave


EXTREME = ("task=mnist", "model.hidden=5000")


def test_a_table_needs_no_torch_no_network_and_no_locale(run, leave, tmp_path):
    leave(*EXTREME, "method=baseline", bp_s=320.0)
    leave(*EXTREME, "method=msbp", "method.r=0.001", bp_s=4.0)
    files = []
    for environment in ({}, C_LOCALE):
        done = run("-m", "src.report", "table=extreme", **environment)
        assert done.returncode == 0, done.stderr
        files.append({path.name: path.read_bytes() for path in (tmp_path / "report").iterdir()})
    assert files[0] == files[1]
    assert files[0].keys() == {"extreme.md", "extreme.tex", "extreme.csv"}
    text = re.sub(" +", " ", files[0]["extreme.md"].decode())
    assert "| + MSBP (r=0.001, γ=0.8) | 4.00 (80.00×) |" in text


def test_all_tables_come_without_a_choice_and_name_what_is_damaged(run, leave, tmp_path):
    cut = leave(*EXTREME, "method=baseline", seed=0)
    leave(*EXTREME, "method=baseline", seed=1)
    cut.write_text(cut.read_text()[:200])
    done = run("-m", "src.report")
    assert done.returncode == 0, done.stderr
    names = {path.stem for group in ("table", "figure") for path in (ROOT / "conf" / group).iterdir()}
    assert {path.stem for path in (tmp_path / "report").iterdir()} == names | {"claims", "index"}
    fill = f"`python -m src.train -m task=mnist paths.outputs={tmp_path} 'seed=range(0,5)' method=msbp`"
    assert fill in done.stdout
    assert f"left out {cut}: not a whole JSON record" in done.stderr
    assert " 1 of 5 |" in done.stdout


def test_what_is_published_is_shown_and_nothing_else(run, leave, tmp_path):
    leave(*EXTREME, "method=baseline")
    assert run("scripts/publish.py", "table=extreme").returncode == 0
    assert " 98.20 (+0.00) | 1 of 5 |" in re.sub(" +", " ", (tmp_path / "README.md").read_text("utf-8"))
    leave(*EXTREME, "method=baseline", seed=1)
    assert " 2 of 5 |" in run("-m", "src.report", "table=extreme").stdout
    assert " 1 of 5 |" in run("-m", "src.report", "table=extreme", "records=published").stdout


def test_a_stale_readme_fails_the_check_until_it_is_written(run, tmp_path):
    readme = tmp_path / "README.md"
    stale = run("-m", "src.report", "readme=check")
    assert stale.returncode == 1
    assert f"stale: {readme}; run python -m src.report readme=write" in stale.stderr
    assert run("-m", "src.report", "readme=write").returncode == 0
    assert run("-m", "src.report", "readme=check").returncode == 0


def test_publishing_uncommitted_code_is_refused_with_the_reason(run, leave, tmp_path):
    leave(*EXTREME, "method=baseline", dirty=True)
    done = run("scripts/publish.py", "table=extreme")
    assert done.returncode == 1
    assert "uncommitted code, so nobody can repeat it" in done.stderr
    assert not (tmp_path / "published").exists()


def test_unknown_words_are_refused_with_what_is_wanted():
    with pytest.raises(ValueError, match=r"want own \(the runs below paths.outputs\) or published"):
        read(compose(["records=all"], "report"), None)
    with pytest.raises(ValueError, match="want write or check"):
        keep_published(compose(["readme=yes"], "report"), {}, None)


@pytest.mark.parametrize(("word", "wanted"), [("table=maine", "main"), ("tabel=main", "tabel")])
def test_unknown_choices_are_refused_with_those_that_exist(run, word, wanted):
    done = run("-m", "src.report", word)
    assert done.returncode == 1
    assert wanted in done.stderr
    assert "Traceback" not in done.stderr
