"""The training loop of all tasks and methods: a run and its steps, timed by phase, and a trainer of epochs.

It can stop and resume at any step.
"""

import copy
import logging
import math
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from types import FrameType
from typing import Literal

import pydantic.dataclasses
import torch
from pydantic import ConfigDict, PositiveInt
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ..files import Fields
from ..methods import Method
from ..record import HYPOTHESES
from ..sparse import backward
from ..tasks.base import Batch, Score, Splits, Task
from .checkpoint import Checkpoint, capture, not_finite, restore
from .clock import Clock
from .loggers import Loggers
from .machine import check_threads, device_of
from .progress import Progress
from .state import Diverged, State
from .trial import trial_parameter

WARM_UP = 5  # steps
LEAST_SHARE = 0.9  # of processor time in phases; below it other processes were running
Clip = Callable[[Iterable[Tensor]], object]
log = logging.getLogger(__name__)


@dataclass
class Run:
    """One model in training on the splits of a task, with a method, an optimizer and a clock.

    make_scheduler: returns the optimizer's learning-rate schedule, which the trainer steps after each epoch.
    """

    model: nn.Module
    make_optimizer: Callable[[Iterable[Tensor]], Optimizer]
    task: Task
    method: Method
    splits: Splits
    seed: int
    device: torch.device
    clock: Clock
    make_scheduler: Callable[[Optimizer], LRScheduler] | None = None
    state: State = field(default_factory=State)
    resumed: bool = False

    def __post_init__(self) -> None:
        self.optimizer = self.make_optimizer(self.model.parameters())
        self.scheduler = self.make_scheduler(self.optimizer) if self.make_scheduler else None

    def batches(self) -> Iterator[Batch]:
        """Return the batches that are left of the present epoch."""
        batches = iter(self.task.batches(self.splits.train, self.seed, self.state.epoch))
        return islice(batches, self.state.step_in_epoch, None)

    def step(self, batches: Iterator[Batch], clip: Clip | None) -> bool:
        """Make one update, timed by phase; return False if no batch is left."""
        with self.clock("data"):
            batch = next(batches, None)
            if batch is not None:
                batch = tuple(tensor.to(self.device) for tensor in batch)
        if batch is None:
            return False
        with self.clock("forward"):
            self.method.before_step(self.state.step)
            loss = self.task.loss(self.model, batch)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise self._diverged(f"the loss is {value}", self.state.step + 1)
        with self.clock("backward"):
            backward(loss)
        with self.clock("update"):
            if clip:
                clip(self.model.parameters())
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.state.count(value, labels(batch))
        return True

    def warm_up(self, clip: Clip | None) -> None:
        """Make a few steps with a copy, so that no first-call cost is timed; the run does not change."""
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            model, method = copy.deepcopy((self.model, self.method))  # a method may hold layers of the model
            twin = replace(self, model=model.train(), method=method, clock=Clock(), state=State())
            batches = islice(twin.batches(), WARM_UP)
            with suppress(Diverged):  # the run itself will say in which step
                while twin.step(batches, clip):
                    pass

    def end_epoch(self, last: bool) -> Fields:
        """Score dev, and test in the best and last epochs; return the epoch's row of the history."""
        self._check_finite()
        state, dev = self.state, self.score(self.splits.dev)
        if not math.isfinite(dev.value):
            raise self._diverged(f"{self.task.metric} on dev is {dev.value}", state.step)
        better = all(dev.value > row["dev"] for row in state.history)
        test = self.score(self.splits.test) if better or last else None
        if test and better:
            state.texts = list(test.texts)
        row = {
            "epoch": state.epoch + 1, "steps": state.step, "labels": state.labels, "loss": state.loss,
            "dev": dev.value, "test": test and test.value,
        }  # fmt: skip
        for name, value in dev.others.items():
            row |= {f"dev_{name}": value, f"test_{name}": test and test.others[name]}
        if self.scheduler:
            row["lr"] = self.optimizer.param_groups[0]["lr"]
        state.history.append(row | self.clock.seconds())
        state.metric_signature = (test or dev).signature
        state.epoch, state.step_in_epoch, state.losses = state.epoch + 1, 0, 0.0
        return state.history[-1]

    def score(self, split: object) -> Score:
        """Return the task's score of a split."""
        self.model.eval()
        with torch.no_grad():
            return self.task.score(self.model, split)

    def measured(self) -> Fields:
        """Return the record's fields of times and scores; test is that of the best dev epoch."""
        best, last = self.state.best, self.state.history[-1]
        return self.clock.seconds() | {
            "processor_share": self.clock.processor_share,
            "dev": best["dev"], "test": best["test"], "test_last": last["test"], "best_epoch": best["epoch"],
            "metric": self.task.metric, "metric_signature": self.state.metric_signature,
            "steps": self.state.step, "resumed": self.resumed, "history": self.state.history,
        }  # fmt: skip

    def disturbed(self) -> list[str]:
        """Return why its times do not compare, if other processes had the processor while it trained."""
        share = self.clock.processor_share
        shared = self.device.type == "cpu" and share < LEAST_SHARE
        return [f"it got {share:.0%} of a processor's time, at least {LEAST_SHARE:.0%} is needed"] * shared

    def texts(self) -> Mapping[str, Sequence[str]]:
        """Return lines to keep beside the record, by file name: the data's, and outputs on test."""
        return {**self.splits.keep, HYPOTHESES: self.state.texts}

    def capture(self) -> Fields:
        """Return all that the next step depends on; Diverged if some of it is not finite."""
        self._check_finite()
        keep = {name: list(lines) for name, lines in self.splits.keep.items()}
        own = {"state": asdict(self.state), "clock": self.clock.state_dict(), "keep": keep}
        schedule = {"scheduler": self.scheduler.state_dict()} if self.scheduler else {}
        return own | schedule | capture(self.model, self.optimizer)

    def restore(self, kept: Fields) -> None:
        """Set all that `capture` returned."""
        self.state, self.resumed = State(**kept["state"]), True
        self.clock.load_state_dict(kept["clock"])
        restore(kept, self.model, self.optimizer, self.state.step)
        if self.scheduler:
            if kept["scheduler"].keys() != self.scheduler.state_dict().keys():
                raise ValueError(f"scheduler is not the state of a {type(self.scheduler).__name__}")
            self.scheduler.load_state_dict(kept["scheduler"])
        if self.state.step and not self.optimizer.state and self._keeps_state():
            raise ValueError("optimizer.state is empty")

    def _keeps_state(self) -> bool:
        """Return whether the optimizer has a state after a step."""
        optimizer = self.make_optimizer([trial_parameter()])
        optimizer.step()
        return bool(optimizer.state)

    def _check_finite(self) -> None:
        """Raise Diverged if a weight, a memory or a number of the optimizer's state is not finite."""
        parts = capture(self.model, self.optimizer)
        parts["model"] = dict(self.model.named_parameters())  # buffers may hold an infinity on purpose
        for key in not_finite({part: parts[part] for part in ("model", "memories", "optimizer")}):
            raise self._diverged(f"{key} is not finite", self.state.step)

    def _diverged(self, reason: str, step: int) -> Diverged:
        return Diverged(self.state.epoch + 1, step, reason)


def labels(batch: Batch) -> int:
    """Return the number of labels in a batch's last tensor; in rows of words 0 is padding."""
    last = batch[-1]
    return len(last) if last.dim() == 1 else int(last.count_nonzero())


Probe = Callable[[Run], list[Fields]]


@pydantic.dataclasses.dataclass(config=ConfigDict(strict=True, extra="forbid"))
class Trainer:
    """Train for a number of epochs on a device; clip is called with the parameters before each update.

    save_every: steps between checkpoints, besides the one after each epoch.
    watch: a probe, called before the first and after every epoch, untimed; its measurements are kept in the
    state of the run.
    """

    epochs: PositiveInt
    threads: PositiveInt = 1
    device: Literal["cpu", "cuda", "auto"] = "cpu"
    clip: Clip | None = None
    watch: Probe | None = None
    save_every: PositiveInt | None = None
    keep_checkpoint: bool = False

    def __post_init__(self) -> None:
        check_threads(self.threads, "trainer.threads")
        device_of(self.device)
        if isinstance(self.clip, partial):  # Hydra's own reviews its target at every call: half a millisecond
            self.clip = partial(self.clip.func, *self.clip.args, **self.clip.keywords)
        if self.clip:
            try:
                self.clip([trial_parameter()])  # so that wrong values are refused before any work
            except ValueError as error:
                raise ValueError(f"trainer.clip: {error}") from error

    def fit(self, run: Run, checkpoint: Checkpoint, loggers: Loggers | None = None) -> None:
        """Train to the last epoch, from the checkpoint if there is one; Ctrl-C saves and interrupts."""
        if checkpoint.restore(run.restore):
            log.info("resuming after step %d, in epoch %d", run.state.step, run.state.epoch + 1)
        else:
            self._measure(run)
        run.warm_up(self.clip)
        loggers = loggers or Loggers()
        with stop_between_steps() as stop, Progress(self.epochs, run.task.metric, run.task.unit) as progress:
            while run.state.epoch < self.epochs:
                self._epoch(run, checkpoint, stop, progress, loggers)
                row = run.end_epoch(last=run.state.epoch + 1 == self.epochs)
                step_schedule(run.scheduler, row["dev"])
                progress.epoch(row)
                loggers.epoch(row, run.state.step)
                self._measure(run)
                checkpoint.save(run.capture())

    def _measure(self, run: Run) -> None:
        if self.watch:
            run.state.watched += self.watch(run)

    def _epoch(
        self, run: Run, checkpoint: Checkpoint, stop: threading.Event, progress: Progress, loggers: Loggers
    ) -> None:
        run.model.train()
        batches = run.batches()
        while run.step(batches, self.clip):
            state, seconds = run.state, run.clock.seconds()
            progress.step(state.epoch, state.step_in_epoch, state.loss, state.labels, seconds)
            loggers.step(state, run.clock)
            if stop.is_set() or (self.save_every and state.step % self.save_every == 0):
                checkpoint.save(run.capture())
            if stop.is_set():
                raise KeyboardInterrupt(f"the same command resumes from {checkpoint.path}")


def step_schedule(scheduler: LRScheduler | None, dev: float) -> None:
    """Set the learning rate of the next epoch; the dev score decides it where a plateau does."""
    if isinstance(scheduler, ReduceLROnPlateau):
        scheduler.step(dev)
    elif scheduler:
        scheduler.step()


@contextmanager
def stop_between_steps() -> Iterator[threading.Event]:
    """Within the block the first Ctrl-C or SIGTERM only sets the event; a second one interrupts at once."""
    stop = threading.Event()

    def request(number: int, frame: FrameType | None) -> None:
        stop.set()
        for each in before:
            signal.signal(each, signal.default_int_handler)

    before = {}
    if threading.current_thread() is threading.main_thread():  # only there may handlers be set
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:  # a background job of a script ignores Ctrl-C
                before[number] = signal.signal(number, request)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
