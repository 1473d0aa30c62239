"""Learning-rate schedules: torch's, by epoch, for every optimizer; part of a request only where set."""

from itertools import product
from pathlib import Path

import pytest
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from msbp import record
from msbp.config import CONF, build, compose
from src.train import train

NAMES = sorted(path.stem for path in Path(CONF, "lr_scheduler").glob("*.yaml"))


def config(tmp_path, *overrides):
    smoke = ["experiment=smoke", "task=mnist", "trainer.epochs=4", f"paths.outputs={tmp_path}"]
    return compose([*smoke, *overrides])


EACH = [(name, "Adam", "msbp") for name in NAMES]


@pytest.mark.parametrize(
    ("name", "optimizer", "method"), [*EACH, *product(["cosine"], ["AdamW", "SGD"], ["sbp", "msbp"])]
)
def test_each_epoch_has_the_learning_rate_of_torchs_schedule(name, optimizer, method, tmp_path):
    short = {"step": ["lr_scheduler.step_size=2"], "plateau": ["lr_scheduler.patience=0"]}.get(name, [])
    words = [f"lr_scheduler={name}", f"optimizer._target_=msbp.optim.{optimizer}", f"method={method}"]
    cfg = config(tmp_path, *words, "optimizer.lr=0.01", *short)
    history = train(cfg, tmp_path / "run", [])["history"]
    twin = getattr(torch.optim, optimizer)([torch.zeros(1, requires_grad=True)], lr=0.01)
    scheduler, rates = build(cfg.lr_scheduler)(twin), []
    for row in history:
        rates.append(twin.param_groups[0]["lr"])
        twin.step()
        scheduler.step(*[row["dev"]] * isinstance(scheduler, ReduceLROnPlateau))
    assert [row["lr"] for row in history] == rates and rates[0] == 0.01
    assert name == "plateau" or rates[-1] < rates[0]


def test_updates_are_those_of_the_scheduled_learning_rate(tmp_path):
    """With a rate of 0 after the first epoch the scores stay."""
    words = ["lr_scheduler=step", "lr_scheduler.step_size=1", "lr_scheduler.gamma=0.0", "optimizer.lr=0.01"]
    history = train(config(tmp_path, *words, "model.dropout=0"), tmp_path / "run", [])["history"]
    assert [row["lr"] for row in history] == [0.01, 0, 0, 0]
    assert len({row["dev"] for row in history}) == 1
    assert history[1]["loss"] == pytest.approx(history[2]["loss"], rel=1e-3) != history[0]["loss"]


def test_a_schedule_is_part_of_the_signature_only_if_it_is_set(tmp_path):
    plain = config(tmp_path)
    signatures = {record.signature(config(tmp_path, f"lr_scheduler={name}")) for name in NAMES}
    assert len(signatures | {record.signature(plain)}) == len(NAMES) + 1
    assert "lr_scheduler" not in plain
    assert "lr" not in train(plain, tmp_path / "run", [])["history"][0]


def test_a_schedule_to_the_last_epoch_is_not_prolonged(tmp_path):
    words = "lr_scheduler=cosine", "trainer.keep_checkpoint=true"
    train(config(tmp_path, *words), tmp_path / "run", [])
    longer = config(tmp_path, *words, "trainer.epochs=6", f"resume={tmp_path}/run/checkpoint.pt")
    with pytest.raises(ValueError, match=r"checkpoint of another run \(lr_scheduler.T_max: 4, not 6\)"):
        train(longer, tmp_path / "longer", [])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["lr_scheduler=cosine", "lr_scheduler.T_max=a"],
            "lr_scheduler.T_max must be a whole number, got 'a'",
        ),
        (["lr_scheduler=step", "+lr_scheduler.width=1"], "there is no key lr_scheduler.width"),
        (["+lr_scheduler={_target_:torch.nn.Linear,_partial_:true,out_features:1}"], "lr_scheduler: "),
        (["+lr_scheduler={_target_:builtins.list,_partial_:true}"], "lr_scheduler: "),
        (
            ["+lr_scheduler={_target_:copy.copy,_partial_:true}"],
            "lr_scheduler._target_ must be an LRScheduler",
        ),
        (["+lr_scheduler={T_max:3}"], "lr_scheduler must be a node with a _target_"),
    ],
)
def test_a_class_that_is_no_schedule_is_refused_by_its_key(words, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        train(config(tmp_path, *words), tmp_path / "run", [])
