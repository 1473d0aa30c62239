"""The state of a run in training, and the error of one that diverges."""

from dataclasses import field

import pydantic.dataclasses
from pydantic import ConfigDict, NonNegativeInt

from ..files import Fields


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
