"""A row of the table: one model in training, whose steps are timed one by one."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from torch import Tensor

from ..config import build
from ..training.clock import PHASES, Clock
from ..training.run import Run


class Row:
    """The trainer's run of one configuration, on batches without end and with a random state of its own.

    r: the share of entries that hidden layers propagate.  k_per_layer: as in a record.
    peak_mib, output_share: the memory that it needs, and the output layer's part of the backward pass, once
    somebody has watched them.
    """

    def __init__(self, name: str, cfg: DictConfig, task: Any, splits: Any):
        method = build(cfg.method)
        torch.manual_seed(cfg.seed)
        model = build(cfg.model, **splits.sizes)
        self.name = name
        self.peak_mib: float | None = None
        self.output_share: float | None = None
        self.k_per_layer: dict[str, int] = method.install(model).k_per_layer
        self.r: float = getattr(method, "r", 1.0) if self.k_per_layer else 1.0
        cpu = torch.device("cpu")
        self.run = Run(model.train(), build(cfg.optimizer), task, method, splits, cfg.seed, cpu, Clock())
        self._clip = build(cfg.trainer).clip
        self._batches, self._random = self.run.batches(), torch.get_rng_state()

    def steps(self, count: int, form_gradients: bool = False) -> np.ndarray:
        """Seconds (count, phases) of the next steps; form_gradients: reading every .grad is part of BP."""
        others = torch.get_rng_state()
        torch.set_rng_state(self._random)
        forming = Forming(self._clip) if form_gradients else None
        seconds = np.array([self._step(forming) for _ in range(count)])
        self._random = torch.get_rng_state()
        torch.set_rng_state(others)
        return seconds

    def _step(self, forming: "Forming | None") -> list[float]:
        run = self.run
        before = [run.clock[phase] for phase in PHASES]
        while not run.step(self._batches, forming or self._clip):
            run.state.epoch, run.state.step_in_epoch = run.state.epoch + 1, 0
            self._batches = run.batches()
        data, forward, bp, update = (run.clock[phase] - at for phase, at in zip(PHASES, before, strict=True))
        formed = forming.seconds if forming else 0.0
        return [data, forward, bp + formed, update - formed]


class Forming:
    """A clip that first reads every gradient, which forms those left in factors; seconds: what that took."""

    def __init__(self, clip: Callable[[Iterable[Tensor]], Any] | None):
        self._clip = clip
        self.seconds = 0.0

    def __call__(self, parameters: Iterable[Tensor]) -> None:
        every = list(parameters)
        start = time.perf_counter()
        for parameter in every:
            parameter.grad  # noqa: B018
        self.seconds = time.perf_counter() - start
        if self._clip:
            self._clip(every)
