"""Runs on a GPU give the results of the CPU but for rounding; left out where there is none."""

import json

import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from msbp.config import compose
from src.train import train
from src.translate import translate

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
TASKS = ("mnist", "parsing_ewt", "pos_ewt", "subjectivity", "multi30k")
METHODS = ("baseline", "sbp", "msbp")


def run(folder, device, *overrides):
    GlobalHydra.instance().clear()
    at = [f"trainer.device={device}", f"paths.outputs={folder}", "paths.offline=true"]
    train(compose(["experiment=smoke", *overrides, *at]), folder / "run", [])
    return json.loads((folder / "run/record.json").read_bytes())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("task", TASKS)
def test_a_gpu_learns_what_the_cpu_learns(tmp_path, task, method):
    ours, cpu = (
        run(tmp_path / device, device, f"task={task}", f"method={method}", "trainer.epochs=1")
        for device in ("cuda", "cpu")
    )
    assert ours["device"] == torch.cuda.get_device_name() and cpu["device"] == "cpu"
    assert ours["history"][0]["loss"] == pytest.approx(cpu["history"][0]["loss"], rel=0.02)
    assert ours["dropped_fraction"].keys() == cpu["dropped_fraction"].keys()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("task", TASKS)
def test_a_run_on_a_gpu_repeats_bit_for_bit(tmp_path, task, method):
    for name in "ab":
        run(tmp_path / name, "cuda", f"task={task}", f"method={method}")
    first, second = (torch.load(tmp_path / name / "run/weights.pt", weights_only=True) for name in "ab")
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    "choice",
    [
        *(f"method.memory={memory}" for memory in ("per_slot", "sequential")),
        "method.selection=unified",
        "method.bias=full",
    ],
)
def test_every_choice_of_the_method_runs_on_a_gpu(tmp_path, choice):
    assert run(tmp_path, "cuda", "task=mnist", "method=msbp", choice)["device"] != "cpu"


def test_a_gpu_translates_what_it_learned_as_the_cpu_does(tmp_path):
    run(tmp_path / "outputs", "cuda", "task=multi30k", "method=msbp", "trainer.epochs=3")
    text = tmp_path / "in.txt"
    text.write_text("a dog\n\na man\n")
    for device in ("cuda", "cpu"):
        request = {"checkpoint": tmp_path / "outputs/run", "input": text, "output": tmp_path / device}
        request |= {"beam": 5, "alpha": None, "threads": 1, "device": device, "allow": None}
        translate(OmegaConf.create({key: str(v) if hasattr(v, "parts") else v for key, v in request.items()}))
    assert (tmp_path / "cuda").read_text() == (tmp_path / "cpu").read_text()
