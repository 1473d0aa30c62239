"""One training loop for all tasks and methods, which can stop and resume at any step."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Literal

import pydantic.dataclasses
import torch
from pydantic import ConfigDict, PositiveInt
from torch import nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ..files import Fields
from .checkpoint import Checkpoint
from .loggers import Loggers
from .machine import check_threads, device_of
from .progress import Progress
from .run import Clip, Run

log = logging.getLogger(__name__)
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
        if self.clip:
            trial = nn.Parameter(torch.zeros(1))
            trial.grad = torch.zeros(1)
            try:
                self.clip([trial])  # so that wrong values are refused before any work
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
