"""The examples run as they stand, each with the time per step before and after the conversion."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "scripts" / "examples"
# Seldom, a process of torch.distributed aborts at its exit, when it has done all its work: run once more.
ABORT = "terminate called without an active exception"
NEEDS = {"trainer_bert": ["transformers", "accelerate"], "lightning_mnist": ["lightning"]}


@pytest.mark.parametrize("name", sorted({path.stem for path in EXAMPLES.glob("*.py")} - {"timing"}))
def test_an_example_runs_and_prints_both_times(name):
    for module in NEEDS.get(name, []):
        pytest.importorskip(module)
    source = str(EXAMPLES.parents[1] / "src")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if ABORT in done.stderr and "ms per step before" in done.stdout:
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "ms per step before" in done.stdout
