"""How the backward pass is computed: what conf/method/*.yaml instantiate."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import nn

from .kinds import fits
from .limits import check_choice, check_counts
from .sparse import convert, fuse
from .sparse.choices import check_choices
from .sparse.lstm.lstm import check_lstm_choices

SCHEDULES = ("every", "alternate")


@dataclass(frozen=True)
class Installed:
    """What a method replaced: how many of its outputs each hidden layer propagates."""

    k_per_layer: dict[str, int]


class Method(Protocol):
    name: str

    def install(self, model: nn.Module) -> Installed:
        """Give the model's hidden layers this backward pass; ValueError if there are none."""

    def before_step(self, step: int) -> None:
        """Called before the forward pass of every step, counted from 0: schedules and resets."""


@dataclass(frozen=True)
class FullBackprop:
    """The baseline: the forward pass and optimizer of the others, with every gradient entry propagated."""

    name: str = "baseline"

    def install(self, model: nn.Module) -> Installed:
        if not fuse(model):
            raise ValueError(f"{type(model).__name__} holds no linear layer that can be fused")
        names = [name for group in model.hidden_layers for name in group]  # type: ignore[union-attr]
        return Installed({name: model.get_submodule(name).out_features for name in names})  # type: ignore[misc]

    def before_step(self, step: int) -> None:
        """Every step is alike."""


@dataclass(frozen=True)
class SparseBackprop:
    """Propagate k = r n entries per hidden layer and carry gamma times the rest to the next step.

    Algorithm 2 of the paper; gamma = 0 is Algorithm 1 (SBP). layers: dotted names, None for all hidden.
    gates, carry: what competes in an LSTM, and how its memory moves; see SparseLSTM. schedule: whether the
    layers are sparse in every step, or groups of them take turns of `period` steps; the layers of the others
    propagate everything then, and their memory waits.
    """

    r: float
    gamma: float
    memory: str = "shared"
    selection: str = "per_example"
    bias: str = "sparse"
    gates: str = "per_gate"
    carry: str = "time"
    layers: Sequence[str] | None = None
    schedule: str = "every"
    period: int = 1
    name: str = "msbp"
    _groups: list[list[Any]] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (fits(self.r, float) and 0 < self.r <= 1):
            raise ValueError(
                f"sparse ratio r must be in (0, 1], got {self.r!r}; for plain backprop use method=baseline"
            )
        check_choices(self.gamma, self.memory, self.selection, self.bias)
        check_lstm_choices(self.memory, self.gates, self.carry)
        check_choice("method.schedule", self.schedule, SCHEDULES)
        check_counts("method", period=self.period)
        if self.period != 1 and self.schedule == "every":
            raise ValueError(
                f"method.period={self.period} is for method.schedule=alternate; every has no turns"
            )

    def install(self, model: nn.Module) -> Installed:
        groups = turns(model, self.layers) if self.schedule == "alternate" else []
        kept = convert(
            model, self.r, self.gamma, memory=self.memory, selection=self.selection, bias=self.bias,
            gates=self.gates, carry=self.carry, layers=None if self.layers is None else list(self.layers),
        )  # fmt: skip
        self._groups[:] = [[model.get_submodule(name) for name in group] for group in groups]
        return Installed(kept)

    def before_step(self, step: int) -> None:
        """Have the group sparse whose turn it is, by the number of the step alone."""
        for turn, group in enumerate(self._groups):
            for layer in group:
                layer.enabled = step // self.period % len(self._groups) == turn


def turns(model: nn.Module, layers: Sequence[str] | None) -> list[list[str]]:
    """The groups of hidden layers, or of those named, that can take turns. ValueError if there is but one."""
    groups: Any = getattr(model, "hidden_layers", [])
    chosen = [[name for name in group if layers is None or name in layers] for group in groups]
    found = [group for group in chosen if group]
    if len(found) < 2:
        raise ValueError(
            f"method.schedule=alternate needs two groups of hidden layers that take turns, and "
            f"{type(model).__name__} has {found or 'none'}: use method.schedule=every"
        )
    return found
