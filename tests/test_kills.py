"""A run that is killed again and again ends with the weights of one that is not, bit for bit, in every task.

A sample runs with the suite; more of it: MSBP_KILLS=20 pytest tests/test_kills.py
"""

import json
import os
import signal
import time
from random import Random

import pytest
import torch

KILLS = int(os.environ.get("MSBP_KILLS", "2"))
EPOCHS = {"mnist": 60, "parsing_ewt": 30, "pos_ewt": 20, "subjectivity": 40, "multi30k": 6}
SAMPLE = ["mnist", "multi30k"]


def finished(outputs):
    """Return the record and the weights of the one run in a folder of outputs."""
    (path,) = outputs.rglob("record.json")
    return json.loads(path.read_bytes()), torch.load(path.parent / "weights.pt")


def saved(outputs):
    return [path.stat().st_mtime_ns for path in outputs.glob("checkpoints/*.pt")]


@pytest.mark.parametrize("task", EPOCHS if "MSBP_KILLS" in os.environ else SAMPLE)
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_weights(commands, tmp_path, task):
    request = ["experiment=smoke", f"task={task}", "method=msbp", "paths.offline=true"]
    request += [f"trainer.epochs={max(2, EPOCHS[task] * KILLS // 20)}"]
    whole = commands.run(*request, f"paths.outputs={tmp_path}/whole")
    assert whole.returncode == 0, whole.err
    outputs, random, kills = tmp_path / "killed", Random(task), 0
    while kills < KILLS:
        before = saved(outputs)
        command = commands.start(*request, f"paths.outputs={outputs}", "trainer.save_every=1")
        command.until(lambda before=before, command=command: saved(outputs) != before)
        time.sleep(random.uniform(0, 0.1))
        command.send(signal.SIGKILL)
        kills += 1
        if command.wait().returncode == 0:  # it was faster
            break
        assert command.returncode == -signal.SIGKILL, command.err
    last = commands.run(*request, f"paths.outputs={outputs}")
    assert last.returncode == 0, last.err
    (record, weights), (expected, unbroken) = finished(outputs), finished(tmp_path / "whole")
    assert record["resumed"] and record["steps"] == expected["steps"]
    assert weights.keys() == unbroken.keys()
    assert all(torch.equal(weights[name], unbroken[name]) for name in weights)
    rows = [
        [{key: row[key] for key in ("loss", "dev", "test")} for row in each["history"]]
        for each in (record, expected)
    ]
    assert rows[0] == rows[1]
    assert not list((outputs / "checkpoints").glob("*.p*t"))
