"""One training loop for all tasks and methods, able to stop and go on at any step."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .checkpoint import Checkpoint
from .interrupt import Asked, between_steps
from .limits import check_counts
from .machine import check_threads, device_of
from .progress import Progress
from .run import Clip, Run

log = logging.getLogger(__name__)
Watch = Callable[[Run], list[dict[str, Any]]]


@dataclass
class Trainer:
    """How long and on what to train; clip takes the parameters when their gradients are there.

    save_every: steps between checkpoints, besides the one after each epoch.
    watch: called before the first and after every epoch, untimed; what it gives is kept in the run's state.
    """

    epochs: int
    threads: int = 1
    device: str = "cpu"
    clip: Clip | None = None
    watch: Watch | None = None
    save_every: int | None = None
    keep_checkpoint: bool = False

    def __post_init__(self) -> None:
        check_counts("trainer", epochs=self.epochs)
        if self.save_every is not None:
            check_counts("trainer", save_every=self.save_every)
        check_threads(self.threads, "trainer.threads")
        device_of(self.device)
        if self.clip:
            trial = nn.Parameter(torch.zeros(1))
            trial.grad = torch.zeros(1)
            self.clip([trial])  # what it refuses, it refuses before any work

    def fit(self, run: Run, checkpoint: Checkpoint) -> None:
        """Train to the last epoch, from the checkpoint if there is one; Ctrl-C saves and interrupts."""
        task = run.task
        if checkpoint.restore(run.restore):
            log.info("going on after step %d, in epoch %d", run.state.step, run.state.epoch + 1)
        else:
            self._watch(run)
        run.warm_up(self.clip)
        with between_steps() as asked, Progress(self.epochs, task.metric, task.unit) as progress:
            while run.state.epoch < self.epochs:
                self._epoch(run, checkpoint, asked, progress)
                progress.epoch(run.end_epoch(last=run.state.epoch + 1 == self.epochs))
                self._watch(run)
                checkpoint.save(run.capture())

    def _watch(self, run: Run) -> None:
        if self.watch:
            run.state.watched += self.watch(run)

    def _epoch(self, run: Run, checkpoint: Checkpoint, asked: Asked, progress: Progress) -> None:
        run.model.train()
        batches = run.batches()
        while run.step(batches, self.clip):
            state, seconds = run.state, run.clock.seconds()
            progress.step(state.epoch, state.step_in_epoch, state.loss, state.labels, seconds)
            if asked or (self.save_every and run.state.step % self.save_every == 0):
                checkpoint.save(run.capture())
            if asked:
                raise KeyboardInterrupt(f"the same command goes on from {checkpoint.path}")
