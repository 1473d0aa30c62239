"""Models in training, timed step by step and in turns, so that drift of the clock affects all alike."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from omegaconf import DictConfig
from rich.console import Console
from rich.progress import Progress

from ..config import build
from ..tasks.base import Batch, Splits, Task
from ..training.clock import PHASES, Clock
from ..training.trainer import Run

MIN_ROUNDS = 3
MAX_EXAMPLES = 12  # shapes of batches of which the arithmetic is counted
Shapes = tuple[torch.Size, ...]


@dataclass(frozen=True)
class Timing:
    """Seconds (steps, phases) of a model's timed steps, and the shapes of the batch of each."""

    seconds: np.ndarray
    shapes: Sequence[Shapes]


class TimedModel:
    """The trainer's run of one configuration, on batches without end and with a random state of its own.

    r: share of entries that the hidden layers propagate, as a mean over steps where they take turns; the most
    where it varies by example.
    k_per_layer: as in a record. examples: the first batch of each shape, for so many shapes.
    """

    def __init__(self, name: str, cfg: DictConfig, task: Task, splits: Splits):
        method = build(cfg.method)
        torch.manual_seed(cfg.seed)
        model = build(cfg.model, **splits.sizes)
        turns = len(model.msbp_hidden_layers) if getattr(method, "schedule", "every") == "alternate" else 1
        self.name = name
        self.k_per_layer: dict[str, int] = method.install(model)
        r = getattr(method, "propagated", getattr(method, "r", 1.0)) if self.k_per_layer else 1.0
        self.r: float = 1 - (1 - r) / turns
        self.examples: dict[Shapes, Batch] = {}
        cpu = torch.device("cpu")
        self.run = Run(model.train(), build(cfg.optimizer), task, method, splits, cfg.seed, cpu, Clock())
        self._clip = build(cfg.trainer).clip
        self._batch: Batch | None = None
        self._batches, self._random = self._epoch(), torch.get_rng_state()

    def steps(self, count: int) -> Timing:
        """Train for some steps; return their times."""
        others = torch.get_rng_state()
        torch.set_rng_state(self._random)
        steps = [self._step() for _ in range(count)]
        self._random = torch.get_rng_state()
        torch.set_rng_state(others)
        return Timing(np.array([seconds for seconds, _ in steps]), [shapes for _, shapes in steps])

    def rewind(self) -> None:
        """Go back to the first batch; the model stays as it is."""
        self.run.state.epoch = self.run.state.step_in_epoch = 0
        self._batches = self._epoch()

    def _step(self) -> tuple[list[float], Shapes]:
        run = self.run
        before = [run.clock[phase] for phase in PHASES]
        while not run.step(self._batches, self._clip):
            run.state.epoch, run.state.step_in_epoch = run.state.epoch + 1, 0
            self._batches = self._epoch()
        seconds = [run.clock[phase] - start for phase, start in zip(PHASES, before, strict=True)]
        batch, self._batch = self._batch, None  # as in training, nothing holds a batch while the next is made
        assert batch is not None
        shapes = tuple(tensor.shape for tensor in batch)
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.setdefault(shapes, batch)
        return seconds, shapes

    def _epoch(self) -> Iterator[Batch]:
        return map(self._note, self.run.batches())

    def _note(self, batch: Batch) -> Batch:
        self._batch = batch
        return batch


def interleave(
    models: Sequence[TimedModel], block: int, settle: int, seconds: float, done: Callable[[float], object]
) -> tuple[dict[str, Timing], float]:
    """Let every model make `block` steps in its turn, again and again; drop the first `settle` of a turn.

    Returns the times by name of the model, and processor time per second of wall time. done: called after
    each round with the completed share of the work.
    """
    kept: dict[str, list[Timing]] = {model.name: [] for model in models}
    for model in models:
        model.examples.clear()
    wall, processor, turn = time.perf_counter(), time.process_time(), 0
    spent = 0.0
    while turn < MIN_ROUNDS or spent < seconds:
        first = turn % len(models)  # another model opens each round
        for model in (*models[first:], *models[:first]):
            timing = model.steps(block)
            kept[model.name].append(Timing(timing.seconds[settle:], timing.shapes[settle:]))
        turn, spent = turn + 1, time.perf_counter() - wall
        done(min(turn / MIN_ROUNDS, spent / seconds if seconds else 1.0))
    share = (time.process_time() - processor) / spent
    return {name: joined(timings) for name, timings in kept.items()}, share


def joined(timings: Sequence[Timing]) -> Timing:
    """Return the steps of all timings as one."""
    shapes = [each for timing in timings for each in timing.shapes]
    return Timing(np.concatenate([timing.seconds for timing in timings]), shapes)


class Reporter:
    """Progress on stderr: lines, and bars where that is a terminal; nothing is drawn in a timed step."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

    def line(self, text: str) -> None:
        self._console.print(text)

    @contextmanager
    def bar(self, title: str) -> Iterator[Callable[[float], object]]:
        """Yield a function that takes the completed share, from 0 to 1."""
        live = self._console.is_terminal
        if not live:
            self.line(title)
        # no refresh thread: it would run inside timed steps
        with Progress(console=self._console, auto_refresh=False, disable=not live) as progress:
            task = progress.add_task(title, total=1.0)
            yield lambda share: progress.update(task, completed=share, refresh=True)
