"""One model in training: its parts, its state, and its steps timed by phase."""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..methods import Method
from ..record import HYPOTHESES
from ..sparse import backward
from ..tasks.base import Batch, Score, Splits, Task
from .checkpoint import capture, restore
from .clock import Clock

WARM_UP = 5  # steps
OWN = 0.9  # share of processor time in phases below which other processes were running
Clip = Callable[[Iterable[Tensor]], Any]


@dataclass
class State:
    """Progress of a run: all that changes in training beside model, optimizer, random state and clock."""

    epoch: int = 0
    step: int = 0  # of the whole run
    step_in_epoch: int = 0
    losses: float = 0.0  # sum over this epoch
    labels: int = 0  # of the whole run
    history: list[dict[str, Any]] = field(default_factory=list)
    metric_signature: str = ""
    texts: list[str] = field(default_factory=list)  # outputs on test in the best epoch, where they are text
    watched: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, kept: dict[str, Any]) -> "State":
        """Return the state that `asdict` gave; ValueError names fields of other types."""
        wrong = [name for name, value in kept.items() if type(value) is not type(getattr(cls(), name))]
        if wrong:
            raise ValueError(f"state of the wrong type: {', '.join(wrong)}")
        return cls(**kept)

    def count(self, loss: float, labels: int) -> None:
        """Count a step; FloatingPointError if its loss is not finite."""
        self.step, self.step_in_epoch, self.losses = self.step + 1, self.step_in_epoch + 1, self.losses + loss
        self.labels += labels
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss is {loss} in epoch {self.epoch + 1}, step {self.step}: training diverged; "
                "a smaller optimizer.lr or method.gamma may help"
            )

    @property
    def loss(self) -> float:
        """Mean loss of this epoch so far."""
        return self.losses / self.step_in_epoch

    @property
    def best(self) -> dict[str, Any]:
        """Row of the first epoch with the highest dev score."""
        return max(self.history, key=lambda row: row["dev"])


@dataclass
class Run:
    """One model in training on the splits of a task, with a method, an optimizer and a clock."""

    model: nn.Module
    make_optimizer: Callable[[Iterable[Tensor]], Optimizer]
    task: Task
    method: Method
    splits: Splits
    seed: int
    device: torch.device
    clock: Clock
    state: State = field(default_factory=State)
    resumed: bool = False

    def __post_init__(self) -> None:
        self.optimizer = self.make_optimizer(self.model.parameters())

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
        with self.clock("backward"):
            backward(loss)
        with self.clock("update"):
            if clip:
                clip(self.model.parameters())
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.state.count(float(loss.detach()), labels(batch))
        return True

    def warm_up(self, clip: Clip | None) -> None:
        """Make a few steps with a copy, so that no first-call cost is timed; the run does not change."""
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            model, method = copy.deepcopy((self.model, self.method))  # a method may hold layers of the model
            twin = replace(self, model=model.train(), method=method, clock=Clock(), state=State())
            batches = islice(twin.batches(), WARM_UP)
            while twin.step(batches, clip):
                pass

    def end_epoch(self, last: bool) -> dict[str, Any]:
        """Score dev, and test in the best and last epochs; return the epoch's row of the history."""
        state, dev = self.state, self.score(self.splits.dev)
        better = all(dev.value > row["dev"] for row in state.history)
        test = self.score(self.splits.test) if better or last else None
        if test and better:
            state.texts = list(test.texts)
        row = {
            "epoch": state.epoch + 1,
            "steps": state.step,
            "labels": state.labels,
            "loss": state.loss,
            "dev": dev.value,
            "test": test and test.value,
        }
        for name, value in dev.others.items():
            row |= {f"dev_{name}": value, f"test_{name}": test and test.others[name]}
        state.history.append(row | self.clock.seconds())
        state.metric_signature = (test or dev).signature
        state.epoch, state.step_in_epoch, state.losses = state.epoch + 1, 0, 0.0
        return state.history[-1]

    def score(self, split: Any) -> Score:
        """Return the task's score of a split."""
        self.model.eval()
        with torch.no_grad():
            return self.task.score(self.model, split)

    def measured(self) -> dict[str, Any]:
        """Return the record's fields of times and scores; test is that of the best dev epoch."""
        best, last = self.state.best, self.state.history[-1]
        scores = {
            "dev": best["dev"],
            "test": best["test"],
            "test_last": last["test"],
            "best_epoch": best["epoch"],
        }
        metric = {"metric": self.task.metric, "metric_signature": self.state.metric_signature}
        counts = {"steps": self.state.step, "resumed": self.resumed, "history": self.state.history}
        share = {"processor_share": self.clock.processor_share}
        return self.clock.seconds() | share | scores | metric | counts

    def disturbed(self) -> list[str]:
        """Return why its times do not compare, if other processes had the processor while it trained."""
        share = self.clock.processor_share
        shared = self.device.type == "cpu" and share < OWN
        return [f"it had {share:.0%} of its processor, {OWN:.0%} are needed"] * shared

    def texts(self) -> dict[str, Sequence[str]]:
        """Return lines to keep beside the record, by file name: the data's, and outputs on test."""
        return {**self.splits.keep, HYPOTHESES: self.state.texts}

    def capture(self) -> dict[str, Any]:
        """Return all that the next step depends on."""
        keep = {name: list(lines) for name, lines in self.splits.keep.items()}
        own = {"state": asdict(self.state), "clock": self.clock.state_dict(), "keep": keep}
        return own | capture(self.model, self.optimizer)

    def restore(self, kept: dict[str, Any]) -> None:
        """Set all that `capture` returned."""
        restore(kept, self.model, self.optimizer)
        self.clock.load_state_dict(kept["clock"])
        self.state, self.resumed = State.of(kept["state"]), True


def labels(batch: Batch) -> int:
    """Return the number of labels in a batch's last tensor; in rows of words 0 is padding."""
    last = batch[-1]
    return len(last) if last.dim() == 1 else int(last.count_nonzero())
