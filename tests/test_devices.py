"""Work on a device other than the CPU never mixes the two, and gives the CPU's results.

The device is `other_device`'s, so that this holds on machines without a GPU; test_cuda.py asks a GPU.
"""

import json

import pytest
import torch
from omegaconf import OmegaConf
from other_device import OTHER, other_device

from msbp.config import compose
from msbp.training import machine, trainer
from src.train import train
from src.translate import translate


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Train in one epoch on the device, in a folder of its name, and give the record."""

    def trained(device, *overrides):
        folder = tmp_path / device
        at = [f"trainer.device={device}", f"paths.outputs={folder}", "paths.offline=true", "trainer.epochs=1"]
        with other_device(monkeypatch, machine, trainer):
            train(compose(["experiment=smoke", "method=msbp", *overrides, *at]), folder / "run", [])
        return json.loads((folder / "run/record.json").read_bytes())

    return trained


def test_the_other_device_refuses_tensors_of_the_cpu(monkeypatch):
    with other_device(monkeypatch):
        there = torch.ones(2, device=OTHER)
        with pytest.raises(RuntimeError, match="two devices"):
            there + torch.ones(2)
        assert float((there + torch.ones(2).to(OTHER)).sum()) == 4


@pytest.mark.parametrize(
    "overrides",
    [
        *(f"task={task}" for task in ("mnist", "parsing_ewt", "pos_ewt", "subjectivity", "multi30k")),
        *(f"task=mnist method.memory={memory}" for memory in ("per_slot", "sequential")),
        "task=mnist method.selection=unified",
        "task=subjectivity method.selection=per_position",
        "task=mnist method.bias=full",
    ],
)
def test_a_run_on_another_device_learns_what_one_on_the_cpu_learns(run, overrides):
    other, cpu = (run(device, *overrides.split()) for device in ("cuda", "cpu"))
    assert other["history"][0]["loss"] == pytest.approx(cpu["history"][0]["loss"], rel=1e-3)
    for layer, shares in cpu["dropped_fraction"].items():
        assert other["dropped_fraction"][layer] == pytest.approx(shares, abs=0.01)


def test_another_device_translates_as_the_cpu_does(run, tmp_path, monkeypatch):
    run("cpu", "task=multi30k", "trainer.epochs=3")
    text = tmp_path / "in.txt"
    text.write_text("a dog\n\na man\n")
    requested = {
        "checkpoint": f"{tmp_path}/cpu/run",
        "input": str(text),
        "beam": 5,
        "alpha": None,
        "threads": 1,
        "allow": [],
    }
    for device in ("cuda", "cpu"):
        with other_device(monkeypatch, machine):
            translate(OmegaConf.create(requested | {"output": f"{tmp_path}/{device}.txt", "device": device}))
    assert (tmp_path / "cuda.txt").read_text() == (tmp_path / "cpu.txt").read_text()
