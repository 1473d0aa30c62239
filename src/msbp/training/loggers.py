"""Loggers of a run: CSV, and Lightning's or others with their methods: TensorBoard, MLflow, W&B."""

import csv
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..config import build
from ..files import csv_text, save
from .clock import Clock
from .run import State

INSTALL = "if its library is missing, pip install -e '.[loggers]'"


class CSVLogger:
    """Metrics in `metrics.csv` and the configuration in `hparams.yaml`, in a new `version_N` of a folder.

    A row has the step and what was logged at it, and is written at once; other columns stay empty.
    """

    def __init__(self, save_dir: str, name: str):
        self.rows: list[dict[str, Any]] = []
        self.columns = ["step"]
        folders = (Path(save_dir, name, f"version_{number}") for number in itertools.count())
        self.folder = next(folder for folder in folders if claimed(folder))

    def log_hyperparams(self, parameters: Mapping[str, Any]) -> None:
        """Write the configuration."""
        save({self.folder / "hparams.yaml": OmegaConf.to_yaml(OmegaConf.create(dict(parameters)))})

    def log_metrics(self, metrics: Mapping[str, Any], step: int) -> None:
        """Write a row."""
        row, path = {"step": step, **metrics}, self.folder / "metrics.csv"
        self.rows.append(row)
        new = [name for name in row if name not in self.columns]
        self.columns += new
        if new:
            save({path: csv_text([dict.fromkeys(self.columns, "") | each for each in self.rows])})
            return
        with open(path, "a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self.columns, lineterminator="\n").writerow(row)

    def save(self) -> None:
        """Do nothing: all rows are written."""

    def finalize(self, status: str) -> None:
        """Do nothing: all rows are written."""


def claimed(folder: Path) -> bool:
    """Return whether a folder did not exist and was made."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


class Loggers:
    """Several loggers at once, which get the metrics of every `every`-th step and of every epoch."""

    def __init__(self, loggers: Sequence[Any] = (), every: int = 50):
        self.loggers, self.every = loggers, every

    @classmethod
    def of(cls, cfg: DictConfig) -> "Loggers":
        """Return the loggers of a configuration; ValueError names the one that cannot be built."""
        nodes = cfg.get("logger") or {}
        loggers = []
        for name in nodes:
            try:
                loggers.append(build(nodes[name]))
            except (ValueError, ImportError) as error:
                raise ValueError(f"logger={name}: {error}; {INSTALL}") from error
        return cls(loggers, cfg.log_every)

    def hyperparameters(self, settings: Mapping[str, object]) -> None:
        """Log the configuration."""
        for logger in self.loggers:
            logger.log_hyperparams(json.loads(json.dumps(settings)))

    def step(self, state: State, clock: Clock) -> None:
        """Log the mean loss of the epoch so far and the seconds by phase, if it is this step's turn."""
        if self.loggers and state.step % self.every == 0:
            self._log({"loss": state.loss, "epoch": state.epoch, **clock.seconds()}, state.step)

    def epoch(self, row: Mapping[str, Any], step: int) -> None:
        """Log an epoch by its row of the history."""
        numbers = {f"epoch/{name}": value for name, value in row.items() if isinstance(value, int | float)}
        self._log(numbers, step)

    def close(self, status: str) -> None:
        """Write what is not written yet; status is success or failed."""
        for logger in self.loggers:
            logger.save()
            logger.finalize(status)

    def _log(self, metrics: dict[str, Any], step: int) -> None:
        for logger in self.loggers:
            logger.log_metrics(metrics, step)
