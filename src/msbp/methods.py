"""Methods of backpropagation, as conf/method/*.yaml instantiate them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol

import pydantic.dataclasses
from pydantic import ConfigDict, Field, PositiveInt
from torch import nn

from .sparse import convert, fuse


@dataclass(frozen=True)
class Installed:
    """The layers that a method replaced: how many gradient entries each hidden layer propagates."""

    k_per_layer: dict[str, int]


class Method(Protocol):
    """A backward pass for the hidden layers of a model."""

    @property
    def name(self) -> str: ...

    def install(self, model: nn.Module) -> Installed:
        """Give the model's hidden layers this backward pass; ValueError if there are none."""

    def before_step(self, step: int) -> None:
        """Called before the forward pass of every step, counted from 0: schedules and resets."""


@dataclass(frozen=True)
class FullBackprop:
    """The baseline: forward pass and optimizer of the other methods, with every gradient entry propagated."""

    name: str = "baseline"

    def install(self, model: nn.Module) -> Installed:
        if not fuse(model):
            raise ValueError(f"{type(model).__name__} holds no linear layer that can be fused")
        names = [name for group in model.hidden_layers for name in group]  # type: ignore[union-attr]
        return Installed({name: model.get_submodule(name).out_features for name in names})  # type: ignore[misc]

    def before_step(self, step: int) -> None:
        """Do nothing: there is no schedule."""


@pydantic.dataclasses.dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid"))
class SparseBackprop:
    """Propagate k = r n entries per hidden layer and carry gamma times the rest to the next step.

    Algorithm 2 of the paper; gamma = 0 is Algorithm 1 (SBP). layers: dotted names, None for all hidden.
    gates, carry: what competes in an LSTM, and how its memory moves; see SparseLSTM. schedule: whether the
    layers are sparse in every step, or groups of them take turns of `period` steps; the layers of the others
    propagate everything then, and their memory waits. sparsifier: how the entries are chosen, which
    `selection` may have the batch share. memory_control: what is added in place of the memory, to learn what
    it does; see msbp.sparse.controls.
    """

    r: Annotated[float, Field(gt=0, le=1, description="for full backpropagation use method=baseline")]
    gamma: Annotated[float, Field(ge=0, le=1, description="0 is SBP, without memory")]
    memory: Literal["shared", "per_slot", "sequential"] = "shared"
    selection: Literal["per_example", "per_position", "pooled", "unified"] = "per_example"
    bias: Literal["sparse", "full"] = "sparse"
    gates: Literal["per_gate", "joint"] = "per_gate"
    carry: Literal["time", "batch"] = "time"
    sparsifier: Literal["top_k", "random", "importance", "threshold", "energy", "block", "block_64"] = "top_k"
    memory_control: Literal["permuted", "noise", "masked"] | None = None
    layers: Sequence[str] | None = None
    schedule: Literal["every", "alternate"] = "every"
    period: PositiveInt = 1
    name: str = "msbp"
    _groups: list[list[Any]] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.layers is not None and len({*self.layers}) < len(self.layers):
            raise ValueError(f"method.layers names a layer twice: {', '.join(self.layers)}")
        if self.period != 1 and self.schedule == "every":
            raise ValueError(
                f"method.period={self.period} is for method.schedule=alternate; every has no turns"
            )
        if self.memory_control is not None and not self.gamma:
            raise ValueError(
                f"method.memory_control={self.memory_control} replaces the memory, and method.gamma=0 has "
                "none: choose a larger gamma, or leave memory_control out"
            )

    def install(self, model: nn.Module) -> Installed:
        groups = turns(model, self.layers) if self.schedule == "alternate" else []
        kept = convert(
            model, self.r, self.gamma, memory=self.memory, selection=self.selection, bias=self.bias,
            gates=self.gates, carry=self.carry, sparsifier=self.sparsifier,
            memory_control=self.memory_control, layers=None if self.layers is None else list(self.layers),
        )  # fmt: skip
        self._groups[:] = [[model.get_submodule(name) for name in group] for group in groups]
        return Installed(kept)

    def before_step(self, step: int) -> None:
        """Make the group sparse whose turn it is, by the number of the step alone."""
        for turn, group in enumerate(self._groups):
            for layer in group:
                layer.enabled = step // self.period % len(self._groups) == turn


def turns(model: nn.Module, layers: Sequence[str] | None) -> list[list[str]]:
    """Return the groups of hidden layers, or of those named, that take turns; ValueError if only one."""
    groups: Any = getattr(model, "hidden_layers", [])
    chosen = [[name for name in group if layers is None or name in layers] for group in groups]
    found = [group for group in chosen if group]
    if len(found) < 2:
        raise ValueError(
            f"method.schedule=alternate needs two groups of hidden layers that take turns, and "
            f"{type(model).__name__} has {found or 'none'}: use method.schedule=every"
        )
    return found
