"""Random command lines: each runs, or is refused in one paragraph that leaves nothing.

A sample runs with the suite; more of it: MSBP_COMMANDS=300 pytest tests/test_command_lines.py
"""

import os
import runpy
import sys
from random import Random

import pytest

from msbp.cli import start
from msbp.config import ROOT, compose
from msbp.record import flat, settings

COMMANDS = int(os.environ.get("MSBP_COMMANDS", "12"))
TASKS = ("mnist", "parsing_ewt", "pos_ewt", "subjectivity", "multi30k")
VALUES = (
    *("null", "''", "' '", "abc", "-1", "0", "1.5", "2", "1e400", "nan", "true", "[]", "[1]", "[a,a]", "{}"),
    *("{a:1}", "{_target_:nowhere.at_all}", "../../x", "${nope}", "${oc.env:NOPE}", "???", "range(0)", "1,2"),
    *('"a,b"', "a=b", "(", "'", "γ"),
)
UNKNOWN = (
    "+nope",
    "nope",
    "+paths.nope",
    "+trainer.lr",
    "~seed",
    "++task.name.nope",
    "clip",
    "+clip",
    "task",
)
SCRIPT = {
    "only": "mnist",
    "jobs": 1,
    "all": "true",
    "table": "main",
    "figure": "angle",
    "paths.offline": "true",
}


def overrides(random, known):
    """One to three assignments of unusual values to existing keys, and sometimes to others."""
    keys = [random.choice(UNKNOWN) if random.random() < 0.15 else random.choice(known) for _ in range(3)]
    return [f"{key}={random.choice(VALUES)}" for key in keys[: random.choice((1, 1, 1, 2, 3))]]


def check(code, message, words):
    """Assert that a command ended well, or with a paragraph for the user."""
    assert "Traceback" not in message and "unforeseen" not in message, (words, message)
    assert code in (0, 1), (words, code)
    if code:
        assert message.rpartition("error: ")[2].strip() and len(message) < 2000, (words, message)


@pytest.mark.parametrize("number", range(COMMANDS))
def test_a_run_with_unusual_settings_is_right_or_refused(commands, tmp_path, number):
    random = Random(number)
    task, method = random.choice(TASKS), random.choice(("baseline", "sbp", "msbp"))
    chosen = [
        "experiment=smoke",
        f"task={task}",
        f"method={method}",
        "trainer.epochs=1",
        "paths.offline=true",
    ]
    known = [key for key, _ in flat(settings(compose(chosen))) if not key.startswith("paper")]
    odd = overrides(random, [*known, "paper.r", "paper.gamma"])
    words = [*chosen, f"paths.outputs={tmp_path}/out", *["-m"] * (random.random() < 0.1), *odd]
    done = commands.run(*words, cwd=tmp_path, env={"LC_ALL": random.choice(("C", "C.UTF-8"))})
    check(done.returncode, done.err, odd)
    if done.returncode and "-m" not in words:
        assert not list(tmp_path.rglob("record.json")), odd


@pytest.mark.parametrize("number", range(COMMANDS // 4))
def test_a_reproduction_with_unusual_options_is_right_or_refused(monkeypatch, capsys, tmp_path, number):
    random = Random(number)
    monkeypatch.setattr("msbp.jobs.without_data", lambda runs: {})
    main = runpy.run_path(str(ROOT / "scripts/reproduce.py"))["main"]
    right = [f"{key}={value}" for key, value in SCRIPT.items() if random.random() < 0.5]
    odd = overrides(
        random, ["only", "jobs", "all", "dry_run", "table", "figure", "paths.data", "paths.offline"]
    )
    odd = [
        word for word in odd if not word.startswith("dry_run=") or word.endswith(("'", "abc", "1.5", "null"))
    ]
    words = ["dry_run=true", f"paths.outputs={tmp_path}", *right, *odd]
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    monkeypatch.setattr(sys, "argv", ["reproduce.py", *words])
    code = 0
    try:
        start(main)
    except SystemExit as end:
        code = end.code
    check(code, capsys.readouterr().err, words)
    assert not list(tmp_path.iterdir())
