"""Every task and every method trains on a tiny sample, scores, and writes a valid record."""

import json
from itertools import cycle
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from msbp.config import CONF, compose
from msbp.record import signature
from msbp.training.state import State
from msbp.training.trainer import WARM_UP
from src.train import train

TASKS, METHODS, MODELS = (
    sorted(path.stem for path in Path(CONF, group).glob("*.yaml")) for group in ("task", "method", "model")
)
FAMILIES = "mnist", "parsing_ewt", "pos_ewt", "subjectivity", "multi30k"  # a task of each class
# Tasks of one class differ in numbers alone, so a method that trains in one of them trains in all.
PAIRS = [
    *((task, method) for task in FAMILIES for method in METHODS),
    *zip((task for task in TASKS if task not in FAMILIES), cycle(METHODS), strict=False),
]
FIELDS = {
    *("signature", "seed", "task", "sample", "model", "method", "r", "gamma", "hidden", "k_per_layer"),
    *("data_s", "forward_s", "bp_s", "update_s", "total_s", "steps", "times_comparable", "resumed"),
    *("metric", "dev", "test", "test_last", "best_epoch", "metric_signature", "dropped_fraction", "history"),
    *("commit", "dirty", "machine", "cpu", "device", "threads", "python", "torch", "blas", "started_at"),
    "config",
}


def config(*overrides):
    return compose(["experiment=smoke", "trainer.epochs=1", *overrides])


@pytest.mark.parametrize(("task", "method"), PAIRS)
def test_a_task_runs_with_a_method_and_leaves_a_valid_record(task, method, tmp_path):
    cfg = config(f"task={task}", f"method={method}", f"paths.outputs={tmp_path}", "paths.offline=true")
    cfg.paths.data = str(tmp_path / "no data")
    train(cfg, tmp_path / "run", [])
    record = json.loads((tmp_path / "run/record.json").read_bytes())
    assert record.keys() >= FIELDS
    assert (record["task"], record["method"], record["sample"]) == (task, method, "tiny")
    assert all(0 <= record[name] <= 100 for name in ("dev", "test", "test_last"))
    assert record["steps"] > 0 and record["k_per_layer"] and record["metric_signature"]
    assert record["bp_s"] + record["forward_s"] + record["update_s"] <= record["total_s"]
    assert record["signature"] == signature(record["config"]) == signature(cfg)
    shares = [share for layer in record["dropped_fraction"].values() for share in layer.values()]
    assert shares and all(0 <= share < 1 for share in shares)
    assert method != "baseline" or not any(shares)


@pytest.mark.parametrize(
    ("task", "method"),
    [
        *((task, "") for task in FAMILIES),
        ("mnist", "method.memory_control=permuted"),
        ("pos_ewt", "method.memory_control=noise"),
        ("mnist", "method.sparsifier=importance"),
        ("mnist", "method.sparsifier=threshold"),
        ("mnist", "method=weight_feedback"),
        ("mnist", "method=adaptive"),
    ],
)
def test_a_run_stopped_within_an_epoch_resumes_to_the_same_weights(task, method, tmp_path, monkeypatch):
    requested = [f"task={task}", *([method] if method else []), "trainer.epochs=2", "paths.offline=true"]
    count, left = State.count, [1000]

    def stops(state, loss, labels):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        count(state, loss, labels)

    monkeypatch.setattr(State, "count", stops)

    def run(name, *more, folder="run"):
        train(config(*requested, f"paths.outputs={tmp_path / name}", *more), tmp_path / name / folder, [])

    run("whole")
    left[0] = WARM_UP + 4  # this step is taken again
    with pytest.raises(KeyboardInterrupt):
        run("stopped", "trainer.save_every=1", folder="first")
    run("stopped")
    whole, stopped = (
        torch.load(tmp_path / name / "run/weights.pt", weights_only=True) for name in ("whole", "stopped")
    )
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)
    record = json.loads((tmp_path / "stopped/run/record.json").read_bytes())
    assert record["resumed"] and record["steps"] > 4


@pytest.mark.parametrize("task", TASKS)
def test_a_task_file_gives_its_own_name_and_what_the_methods_need(task):
    cfg = compose([f"task={task}"])
    assert cfg.task.name == task and cfg.task.sample == "full"
    assert 0 < cfg.paper.r <= 1 and 0 <= cfg.paper.gamma <= 1
    assert (cfg.method.r, cfg.method.gamma) == (cfg.paper.r, cfg.paper.gamma)
    assert cfg.trainer.epochs > 0
    changed = compose([f"task={task}", "method.gamma=0.123", "method.r=0.5"])
    assert (changed.method.r, changed.method.gamma) == (0.5, 0.123)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_file_gives_its_own_name(method):
    assert compose([f"method={method}"]).method.name == method


@pytest.mark.parametrize("model", MODELS)
def test_a_model_file_gives_its_name_and_width(model):
    node = OmegaConf.load(Path(CONF, "model", f"{model}.yaml"))
    assert node.name == model and "hidden" in node


@pytest.mark.parametrize(
    "path", sorted(Path(CONF).rglob("*.yaml")), ids=lambda path: str(path.relative_to(CONF))
)
def test_a_file_begins_with_a_comment_that_describes_it(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    first = next(line for line in lines if not line.startswith("# @package"))
    assert first.startswith("# ") and len(first) > 10
