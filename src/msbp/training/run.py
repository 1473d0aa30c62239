"""One model in training: its parts, its state, and its steps timed by phase."""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import islice

import pydantic.dataclasses
import torch
from pydantic import ConfigDict, NonNegativeInt
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..files import Fields
from ..methods import Method
from ..record import HYPOTHESES
from ..sparse import backward
from ..tasks.base import Batch, Score, Splits, Task
from .checkpoint import capture, not_finite, restore
from .clock import Clock

DIVERGED = "diverged.json"  # in the folder of a run that did, in place of a record
WARM_UP = 5  # steps
OWN = 0.9  # share of processor time in phases below which other processes were running
Clip = Callable[[Iterable[Tensor]], object]


class Diverged(FloatingPointError):
    """Training whose loss, gradients, weights or scores are not finite, with the step that showed it."""

    def __init__(self, epoch: int, step: int, reason: str):
        super().__init__(
            f"training diverged in epoch {epoch}, step {step}: {reason}; "
            "a smaller optimizer.lr or method.gamma may help"
        )
        self.epoch, self.step, self.reason = epoch, step, reason


@pydantic.dataclasses.dataclass(config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False))
class State:
    """Progress of a run: all that changes in training beside model, optimizer, random state and clock."""

    epoch: NonNegativeInt = 0
    step: NonNegativeInt = 0  # of the whole run
    step_in_epoch: NonNegativeInt = 0
    losses: float = 0.0  # sum over this epoch
    labels: NonNegativeInt = 0  # of the whole run
    history: list[Fields] = field(default_factory=list)
    metric_signature: str = ""
    texts: list[str] = field(default_factory=list)  # outputs on test in the best epoch, where they are text
    watched: list[Fields] = field(default_factory=list)

    def __post_init__(self) -> None:
        if len(self.history) != self.epoch or any(row.get("dev") is None for row in self.history):
            raise ValueError("history has not one row an epoch")
        if self.step_in_epoch > self.step:
            raise ValueError("step_in_epoch is larger than step")

    def count(self, loss: float, labels: int) -> None:
        """Count a step."""
        self.step, self.step_in_epoch, self.losses = self.step + 1, self.step_in_epoch + 1, self.losses + loss
        self.labels += labels

    @property
    def loss(self) -> float:
        """Mean loss of this epoch so far."""
        return self.losses / self.step_in_epoch

    @property
    def best(self) -> Fields:
        """Row of the first epoch with the highest dev score."""
        return max(self.history, key=lambda row: row["dev"])


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
            try:
                backward(loss)
            except FloatingPointError as error:
                raise self._diverged(str(error), self.state.step + 1) from error
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
            "epoch": state.epoch + 1,
            "steps": state.step,
            "labels": state.labels,
            "loss": state.loss,
            "dev": dev.value,
            "test": test and test.value,
        }
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
        trial = nn.Parameter(torch.zeros(1))
        trial.grad = torch.zeros(1)
        optimizer = self.make_optimizer([trial])
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
