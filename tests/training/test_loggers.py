"""Loggers: metrics every N steps and every epoch, the configuration once, several at once, nothing online."""

import csv
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from msbp.config import CONF, compose
from msbp.training.loggers import Loggers
from src.train import train

SMOKE = ["experiment=smoke", "task=mnist", "trainer.epochs=2", "paths.offline=true"]


class Recording:
    """A logger with Lightning's methods."""

    instances: list["Recording"] = []  # noqa: RUF012

    def __init__(self, name):
        self.name, self.metrics, self.parameters, self.ended = name, [], None, None
        Recording.instances.append(self)

    def log_hyperparams(self, parameters):
        self.parameters = parameters

    def log_metrics(self, metrics, step):
        self.metrics.append((step, metrics))

    def save(self):
        pass

    def finalize(self, status):
        self.ended = status


def config(tmp_path, *overrides):
    return compose([*SMOKE, f"paths.outputs={tmp_path}", *overrides])


def test_several_loggers_get_steps_epochs_and_the_configuration(tmp_path, monkeypatch):
    monkeypatch.setattr(Recording, "instances", [])
    nodes = ",".join(f"{name}:{{_target_:{__name__}.Recording,name:{name}}}" for name in ("a", "b"))
    cfg = config(tmp_path, f"+logger={{{nodes}}}", "log_every=2")
    record = train(cfg, tmp_path / "run", [])
    assert [logger.name for logger in Recording.instances] == ["a", "b"]
    for logger in Recording.instances:
        steps = [step for step, metrics in logger.metrics if "loss" in metrics]
        epochs = [metrics for _, metrics in logger.metrics if "epoch/dev" in metrics]
        assert steps == list(range(2, record["steps"] + 1, 2))
        assert [row["epoch/dev"] for row in epochs] == [row["dev"] for row in record["history"]]
        assert logger.parameters["method"]["name"] == "msbp" and logger.ended == "success"
        assert all(metrics["total_s"] > 0 for _, metrics in logger.metrics if "loss" in metrics)


class Failing(Recording):
    """A logger that fails in one of its methods."""

    def __init__(self, name, method):
        super().__init__(name)
        setattr(self, method, self.fail)

    def fail(self, *arguments):
        raise RuntimeError(f"{self.name} is full\nand more")


def failing(method):
    wrong = f"broken:{{_target_:{__name__}.Failing,name:disk,method:{method}}}"
    return f"+logger={{{wrong},good:{{_target_:{__name__}.Recording,name:good}}}}"


@pytest.mark.parametrize("method", ["log_metrics", "save", "finalize"])
def test_a_logger_that_fails_is_named_and_the_run_has_its_record(tmp_path, monkeypatch, caplog, method):
    monkeypatch.setattr(Recording, "instances", [])
    record = train(config(tmp_path, failing(method), "log_every=2"), tmp_path / "run", [])
    message = [line for line in caplog.messages if "logger=" in line]
    assert message == ["logger=broken gets nothing more: disk is full; the run continues"]
    assert (tmp_path / "run/record.json").exists() and record["steps"] > 0
    good = Recording.instances[1]
    assert good.ended == "success" and any("epoch/dev" in metrics for _, metrics in good.metrics)


def test_a_logger_that_fails_before_the_first_step_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="^logger=broken: disk is full$"):
        train(config(tmp_path, failing("log_hyperparams")), tmp_path / "run", [])
    with pytest.raises(ValueError, match="^logger=a: 'dict' object has no attribute"):
        train(config(tmp_path, "+logger={a:{_target_:builtins.dict}}"), tmp_path / "other", [])


def test_loggers_do_not_change_the_signature(tmp_path):
    from msbp import record

    plain = record.signature(config(tmp_path))
    assert record.signature(config(tmp_path, "logger=csv", "log_every=7")) == plain


@pytest.mark.parametrize(
    "name", sorted({path.stem for path in Path(CONF, "logger").glob("*.yaml")} - {"csv"})
)
def test_a_logger_whose_library_is_missing_is_named_with_what_to_install(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning", None)
    with pytest.raises(ValueError, match=rf"logger={name}: (?s:.*)pip install -e '.\[loggers\]'"):
        Loggers.of(config(tmp_path, f"logger={name}"))


def test_csv_has_a_row_a_step_and_an_epoch_in_a_folder_a_run_without_other_libraries(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning", None)
    for count in range(2):
        record = train(
            config(tmp_path, "logger=csv", "log_every=1", f"seed={count}"), tmp_path / f"run{count}", []
        )
    first, second = sorted((tmp_path / "csv" / "mnist-msbp").iterdir())
    assert (first.name, second.name) == ("version_0", "version_1")
    with open(second / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    steps, epochs = ([row for row in rows if row[name]] for name in ("loss", "epoch/dev"))
    assert [int(row["step"]) for row in steps] == list(range(1, record["steps"] + 1))
    assert [float(row["epoch/dev"]) for row in epochs] == [row["dev"] for row in record["history"]]
    assert len(rows) == len(steps) + len(epochs)
    assert OmegaConf.load(second / "hparams.yaml").method.name == "msbp"


@pytest.mark.filterwarnings("ignore")
def test_csv_and_tensorboard_log_side_by_side(tmp_path):
    pytest.importorskip("lightning")
    pytest.importorskip("tensorboard")
    train(config(tmp_path, "logger=[csv,tensorboard]", "log_every=1"), tmp_path / "run", [])
    assert list((tmp_path / "csv").rglob("metrics.csv"))
    assert list((tmp_path / "tensorboard").rglob("events.out.*"))


@pytest.mark.parametrize("wrong", ["log_every=0", "log_every=a"])
def test_wrong_intervals_are_refused_by_key(wrong, tmp_path):
    with pytest.raises(ValueError, match="log_every must be"):
        train(config(tmp_path, wrong), tmp_path / "run", [])
