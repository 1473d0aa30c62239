"""Methods of backpropagation, as conf/method/*.yaml instantiate them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Protocol, runtime_checkable

import pydantic.dataclasses
import torch
from pydantic import ConfigDict, Field, PositiveInt
from torch import Tensor, nn

from .sparse import SparseConvolution, convert, entries_kept, fuse, memories
from .sparse.layers import hidden_groups
from .sparse.memory import AdaptiveMemory, SlotMemory
from .sparse.sparsifiers import Energy, largest

Ratio = Annotated[float, Field(gt=0, le=1, description="for full backpropagation use method=baseline")]
Gamma = Annotated[float, Field(ge=0, le=1, description="0 is SBP, without memory")]


@runtime_checkable
class Method(Protocol):
    """A backward pass for the hidden layers of a model."""

    @property
    def name(self) -> str: ...

    def install(self, model: nn.Module) -> dict[str, int]:
        """Give the hidden layers of a model this backward pass; return how many entries each propagates.

        ValueError if there are no such layers.
        """
        ...

    def before_step(self, step: int) -> None:
        """Prepare the layers for a step, counted from 0: nothing, unless there is a schedule."""
        return None


@dataclass(frozen=True)
class FullBackprop(Method):
    """The baseline: forward pass and optimizer of the other methods, with every gradient entry propagated."""

    name: str = "baseline"

    def install(self, model: nn.Module) -> dict[str, int]:
        if not fuse(model, dropout=False):
            raise ValueError(f"{type(model).__name__} holds no linear layer that can be fused")
        names = [name for group in hidden_groups(model) or () for name in group]
        return {name: model.get_submodule(name).out_features for name in names}  # type: ignore[misc]


@pydantic.dataclasses.dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid"))
class SparseBackprop(Method):
    """Propagate k = r n entries per hidden layer and carry gamma times the rest to the next step.

    Algorithm 2 of the paper; gamma = 0 is Algorithm 1 (SBP). layers: dotted names, None for all hidden.
    skip_zero_rows: leave rows without gradient out of the shared memory of linear layers. gates, carry: what
    competes in an LSTM, and how its memory moves; see SparseLSTM. schedule: whether the layers are sparse in
    every step, or groups of them take turns of `period` steps; the layers of the others propagate everything
    then, and their memory waits. sparsifier: how the entries are chosen, which `selection` may have the batch
    share. memory_control: what is added in place of the memory, to learn what it does; see
    msbp.sparse.controls.
    """

    r: Ratio
    gamma: Gamma
    memory: Literal["shared", "per_slot", "sequential"] = "shared"
    selection: Literal["per_example", "per_position", "pooled", "unified"] = "per_example"
    bias: Literal["sparse", "full"] = "sparse"
    gates: Literal["per_gate", "joint"] = "per_gate"
    carry: Literal["time", "batch"] = "time"
    sparsifier: Literal["top_k", "random", "importance", "threshold", "energy", "block", "block_64"] = "top_k"
    memory_control: Literal["permuted", "noise", "masked"] | None = None
    layers: Sequence[str] | None = None
    skip_zero_rows: bool = False
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
        if self.name == "sbp" and self.gamma:
            raise ValueError(
                f"method=sbp has no memory, so method.gamma must be 0, got {self.gamma}: use method=msbp, or "
                "leave gamma out"
            )
        if self.memory_control is not None and not self.gamma:
            raise ValueError(
                f"method.memory_control={self.memory_control} replaces the memory, and method.gamma=0 has "
                "none: choose a larger gamma, or leave memory_control out"
            )

    def install(self, model: nn.Module) -> dict[str, int]:
        groups = turns(model, self.layers) if self.schedule == "alternate" else []
        kept = convert(
            model, self.r, self.gamma, memory=self.memory, selection=self.selection, bias=self.bias,
            gates=self.gates, carry=self.carry, sparsifier=self.sparsifier,
            memory_control=self.memory_control, layers=None if self.layers is None else list(self.layers),
            skip_zero_rows=self.skip_zero_rows, dropout=False,
        )  # fmt: skip
        self._groups[:] = [[model.get_submodule(name) for name in group] for group in groups]
        return kept

    def before_step(self, step: int) -> None:
        """Make the group sparse whose turn it is, by the number of the step alone."""
        for turn, group in enumerate(self._groups):
            for layer in group:
                layer.enabled = step // self.period % len(self._groups) == turn


@pydantic.dataclasses.dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid"))
class AdaptiveBackprop(Method):
    """MSBP with k by example and gamma by step, in plain torch.

    k of an example is the number of largest entries of ∂ℓ/∂h + m that hold the share `energy` of its squared
    norm, between r_min n and r_max n: the angle to ∂ℓ/∂h + m is then at most arccos √energy wherever r_max
    allows it, and no work is spent where few entries hold nearly all of it. TinyProp's rate by layer and
    VCAS's variance budget rest on the same idea. gamma follows the agreement of memory and fresh gradient,
    see msbp.sparse.memory.AdaptiveMemory; `gamma` is its largest value.
    """

    r_min: Ratio
    r_max: Ratio
    energy: Annotated[float, Field(gt=0, lt=1, description="the share of the squared norm that is kept")]
    gamma: Gamma
    name: str = "adaptive"

    def __post_init__(self) -> None:
        if self.r_min > self.r_max:
            raise ValueError(f"method.r_min={self.r_min} must be at most method.r_max={self.r_max}")

    @property
    def propagated(self) -> float:
        """The largest share of a layer's entries that is propagated."""
        return self.r_max

    def install(self, model: nn.Module) -> dict[str, int]:
        """Convert the hidden layers; the k of each layer is its largest."""
        kept = convert(model, self.r_max, self.gamma, skip_zero_rows=False, dropout=False)
        for name, k in kept.items():
            layer: Any = model.get_submodule(name)
            energy = Energy(share=self.energy, least=entries_kept(self.r_min, layer.out_features), most=k)
            if isinstance(layer, SparseConvolution):
                layer.choose_by_row(energy)
            else:
                layer.sparsifier = energy
        for memory in memories(model).values():
            memory.__class__ = AdaptiveMemory
        return kept


@pydantic.dataclasses.dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid"))
class WeightFeedback(Method):
    """Error feedback on weight gradients (Stich et al. 2018; Karimireddy et al. 2019): a control for MSBP.

    The gradient is propagated whole. Of each hidden weight's ∂ℓ/∂W the r n rows of largest norm reach the
    optimizer, with what was remembered of them; gamma times the rest is remembered in W's own shape. With
    gamma = 1 what was sent and what is remembered add up to the sum of all true gradients. For MSBP's memory
    that holds for biases alone: an old ∂ℓ/∂h meets the x of other examples. Dense cost. Probes of the
    gradient work on copies of the model, which have no hooks, and so do not see this method.
    """

    r: Ratio
    gamma: Gamma = 1.0
    name: str = "weight_feedback"
    propagated: ClassVar[float] = 1.0  # the share of ∂ℓ/∂h; r is that of the rows of ∂ℓ/∂W

    def install(self, model: nn.Module) -> dict[str, int]:
        """Fuse the model, as the baseline, and hook on the hidden layers' weights."""
        kept = {name: entries_kept(self.r, n) for name, n in FullBackprop().install(model).items()}
        for name in kept:
            layer = model.get_submodule(name)
            feedback = layer.feedback = nn.ModuleDict()
            for key, weight in layer.named_parameters(recurse=False):
                if weight.dim() > 1:
                    feedback[key] = memory = SlotMemory(weight[0].numel(), self.gamma, len(weight)).to(weight)
                    weight.register_hook(Feedback(memory, entries_kept(self.r, len(weight))))
        return kept


@dataclass(frozen=True)
class Feedback:
    """Hook of a weight: k rows of its gradient and memory are sent; a row of the memory is a slot."""

    memory: SlotMemory
    k: int

    def __call__(self, grad: Tensor) -> Tensor:
        """Return the gradient that the optimizer gets, and store the rest; one that is not finite is sent."""
        dense = grad.to_dense()
        if not torch.isfinite(dense).all():
            return grad
        sent, m = self.memory.estimate(dense.flatten(1), self.largest_rows)
        self.memory.store(m)
        return sent.view_as(dense)

    def largest_rows(self, v: Tensor) -> Tensor:
        """Return v with all but its k rows of largest norm set to zero."""
        chosen = torch.zeros(len(v), 1, dtype=v.dtype, device=v.device)
        chosen[largest(v.square().sum(1), self.k)] = 1
        return v * chosen


def turns(model: nn.Module, layers: Sequence[str] | None) -> list[list[str]]:
    """Return the groups of hidden layers, or of those named, that take turns; ValueError if only one."""
    groups = hidden_groups(model) or ()
    chosen = [[name for name in group if layers is None or name in layers] for group in groups]
    present = [group for group in chosen if group]
    if len(present) < 2:
        raise ValueError(
            f"method.schedule=alternate needs two groups of hidden layers that take turns, and "
            f"{type(model).__name__} has {present or 'none'}: use method.schedule=every"
        )
    return present
