"""Signatures of every task by every method: records of earlier versions belong to the same requests."""

import json
from pathlib import Path

import pytest

from msbp import record
from msbp.config import CONF, compose

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/signatures.json").read_text())


@pytest.mark.parametrize("task", GOLDEN)
def test_a_task_has_the_signatures_of_earlier_versions(task):
    cfgs = {method: compose([f"task={task}", f"method={method}"]) for method in GOLDEN[task]}
    assert {method: record.signature(cfg) for method, cfg in cfgs.items()} == GOLDEN[task]


def test_every_task_is_listed():
    assert set(GOLDEN) == {path.stem for path in Path(CONF, "task").glob("*.yaml")}
