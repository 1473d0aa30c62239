"""Loggers of a run, Lightning's or others with their methods: TensorBoard, MLflow, Weights & Biases, CSV."""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import DictConfig

from ..config import build
from .clock import Clock
from .run import State

log = logging.getLogger(__name__)
INSTALL = "pip install -e '.[loggers]' has Lightning's"


class Loggers:
    """Several loggers at once, which get the metrics of every `every`-th step and of every epoch.

    One that fails in the course of a run is named in a warning and gets nothing more: the run continues.
    """

    def __init__(self, loggers: Mapping[str, Any] | None = None, every: int = 50):
        self.loggers, self.every = dict(loggers or {}), every

    @classmethod
    def of(cls, cfg: DictConfig) -> "Loggers":
        """Return the loggers of a configuration; ValueError names the one that cannot be built."""
        nodes = cfg.get("logger") or {}
        loggers = {}
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

    def epoch(self, row: Mapping[str, Any], step: int) -> None:
        """Log an epoch by its row of the history."""
        numbers = {f"epoch/{name}": value for name, value in row.items() if isinstance(value, int | float)}
        self._log(numbers, step)

    def close(self, status: str) -> None:
        """Write what is not written yet; status is success or failed."""

        def end(logger: Any) -> None:
            logger.save()
            logger.finalize(status)

        self._each(end)

    def _log(self, metrics: dict[str, Any], step: int) -> None:
        self._each(lambda logger: logger.log_metrics(metrics, step))

    def _each(self, act: Callable[[Any], object]) -> None:
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
