"""Loggers of a run, Lightning's or others with their methods: TensorBoard, MLflow, Weights & Biases, CSV."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig

from ..config import build
from .clock import Clock
from .run import State

INSTALL = "pip install -e '.[loggers]' has Lightning's"


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
