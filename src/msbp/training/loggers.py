"""Loggers of a run: CSV, and Lightning's or others with their methods: TensorBoard, MLflow, W&B."""

import csv
import itertools
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from omegaconf import DictConfig, OmegaConf

from ..config import build
from ..files import Fields, csv_text, save
from .clock import Clock
from .state import State

log = logging.getLogger(__name__)
INSTALL = "pip install -e '.[loggers]' has Lightning's"


class CSVLogger:
    """Metrics in `metrics.csv` and the configuration in `hparams.yaml`, in a new `version_N` of a folder.

    A row has the step and what was logged at it, and is written at once; other columns stay empty.
    """

    def __init__(self, save_dir: str, name: str):
        self.rows: list[dict[str, object]] = []
        self.columns = ["step"]
        folders = (Path(save_dir, name, f"version_{number}") for number in itertools.count())
        self.folder = next(folder for folder in folders if claimed(folder))

    def log_hyperparams(self, parameters: Mapping[str, object]) -> None:
        """Write the configuration."""
        save({self.folder / "hparams.yaml": OmegaConf.to_yaml(OmegaConf.create(dict(parameters)))})

    def log_metrics(self, metrics: Mapping[str, object], step: int) -> None:
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
    """Return whether a folder did not exist and was created."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


class Logger(Protocol):
    """The methods of Lightning's loggers that a run calls."""

    def log_hyperparams(self, params: Fields) -> object: ...

    def log_metrics(self, metrics: Mapping[str, object], step: int) -> object: ...

    def save(self) -> object: ...

    def finalize(self, status: str) -> object: ...


class Loggers:
    """Several loggers at once, which get the metrics of every `every`-th step and of every epoch.

    One that fails in the course of a run is named in a warning and gets nothing more: the run continues.
    """

    def __init__(self, loggers: Mapping[str, Logger] | None = None, every: int = 50):
        self.loggers, self.every = dict(loggers or {}), every

    @classmethod
    def of(cls, cfg: DictConfig) -> "Loggers":
        """Return the loggers of a configuration; ValueError names the one that cannot be built."""
        nodes = cfg.get("logger") or {}
        loggers: dict[str, Logger] = {}
        for name in nodes:
            try:
                loggers[name] = build(nodes[name])
            except (ValueError, ImportError) as error:
                install = f"; {INSTALL}" if _lacks_library(error) else ""
                raise ValueError(f"logger={name}: {error}{install}") from error
        return cls(loggers, cfg.log_every)

    def hyperparameters(self, settings: Mapping[str, object]) -> None:
        """Log the configuration; ValueError names a logger that fails, as nothing is lost yet."""
        for name, logger in self.loggers.items():
            try:
                logger.log_hyperparams(json.loads(json.dumps(settings)))
            except Exception as error:  # of any library
                raise ValueError(f"logger={name}: {_first_line(error)}") from error

    def step(self, state: State, clock: Clock) -> None:
        """Log the mean loss of the epoch so far and the seconds by phase, if it is this step's turn."""
        if self.loggers and state.step % self.every == 0:
            self._log({"loss": state.loss, "epoch": state.epoch, **clock.seconds()}, state.step)

    def epoch(self, row: Mapping[str, object], step: int) -> None:
        """Log an epoch by its row of the history."""
        numbers = {f"epoch/{name}": value for name, value in row.items() if isinstance(value, int | float)}
        self._log(numbers, step)

    def close(self, status: str) -> None:
        """Write what is not written yet; status is success or failed."""

        def end(logger: Logger) -> None:
            logger.save()
            logger.finalize(status)

        self._each(end)

    def _log(self, metrics: Mapping[str, object], step: int) -> None:
        self._each(lambda logger: logger.log_metrics(metrics, step))

    def _each(self, act: Callable[[Logger], object]) -> None:
        """Call act with every logger; drop one that fails."""
        for name, logger in list(self.loggers.items()):
            try:
                act(logger)
            except Exception as error:  # of any library
                log.warning("logger=%s gets nothing more: %s; the run continues", name, _first_line(error))
                del self.loggers[name]


def _lacks_library(error: BaseException | None) -> bool:
    """Return whether a module that cannot be imported is among the causes of an error."""
    return isinstance(error, ImportError) or (error is not None and _lacks_library(error.__cause__))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
