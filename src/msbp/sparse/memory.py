"""Gradient memory: what was not propagated, carried to the next step (Algorithm 2 of the paper).

Letters: B batch, n width (out_features), m memory. The paper has one example a step and leaves a
mini-batch open; the three kinds below are three readings of it. m is a buffer (of slots, an attribute) that
is not in the state_dict unless `in_state_dict` is set, so that weights load into models with and without
memory; `m` and `load` are for other checkpoints.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from numbers import Real
from typing import Any, Self

import torch
from torch import Tensor, nn

from .controls import MEMORY_CONTROLS, MemoryControl
from .sparsifiers import OTHER_SPARSIFIERS, SPARSIFIERS, TOP_K


class GradientMemory(nn.Module, ABC):
    """The m of a layer. `estimate` reads it, `store` writes it, so that a failed backward changes nothing."""

    m: Tensor
    in_state_dict = False
    has_kernel = False  # whether the CPU kernels know this kind
    control: MemoryControl | None

    def __init__(
        self, out_features: int, gamma: float, rows: int = 1, *, control: MemoryControl | None = None
    ):
        super().__init__()
        self.control = control
        self.gamma = gamma
        m = torch.zeros(rows, out_features, dtype=torch.float32, device="cpu")  # not torch's defaults
        self._hold(m)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "gamma":
            check_gamma(value)
        super().__setattr__(name, value)

    @abstractmethod
    def estimate(self, grad_h: Tensor, sparsifier: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Return the estimated gradient g (B, n) and the memory after it, not stored yet."""

    @property
    def supports_kernel(self) -> bool:
        """Return whether kernels form g with this memory: of a kind that they know, and added as it is."""
        control: Any = self._modules.get("control")  # nn.Module's own access takes a microsecond
        return self.has_kernel and (control is None or not control.changes_sum)

    def split(
        self, grad_h: Tensor, m: Tensor, sparsifier: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return g = S(∂ℓ/∂h + m) and what is left, ∂ℓ/∂h + m − g; a control replaces m where it is added."""
        added = m if self.control is None else self.control.added(m, grad_h)
        carried = grad_h + added
        g = sparsifier(carried)
        left = carried - g
        return g, left if added is m else left + (m - added)

    def _hold(self, m: Tensor) -> None:
        """Make m a part of this module."""
        self.register_buffer("m", m, persistent=False)

    def held(self) -> Tensor:
        """Return m; nn.Module's own access takes a microsecond."""
        m: Any = self._buffers["m"]
        return m

    def on(self, tensor: Tensor, width: int) -> Tensor:
        """Return m on the device and of the type of a tensor, moved there if it is not; from meta it is zero.

        RuntimeError if m is not of this width or kind.
        """
        m = self.held()
        shape = m.shape
        if len(shape) != 2 or shape[1] != width or not self.fits(shape[0]):
            raise RuntimeError(
                f"the {type(self).__name__} of a layer with {width} outputs has shape {tuple(shape)}: "
                "where a layer was resized, call msbp.sparse.revert(model) and convert anew, or give "
                "the layer a new `memory`"
            )
        if m.dtype is not tensor.dtype or m.device != tensor.device:
            if m.is_meta:
                m = torch.zeros(m.shape, device=tensor.device, dtype=tensor.dtype)
            self.m = m = m.to(tensor.device, tensor.dtype)
        return m

    def clear(self) -> None:
        """Set the memory to zero, as before the first step."""
        self.m = torch.zeros_like(self.m)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = self.m
        self._move(fn, recurse)
        if not self.m.is_meta and (before.is_meta or not torch.equal(before.to(self.m), self.m)):
            self.clear()  # to_empty leaves uninitialized numbers
        return self

    def _move(self, fn: Callable[[Tensor], Tensor], recurse: bool) -> None:
        """Have nn.Module apply a cast or move to m and to all that a control holds."""
        super()._apply(fn, recurse)

    def store(self, m: Tensor) -> None:
        """Replace the memory by one that `estimate` or a kernel formed, as the control has it."""
        self._set(m if self.control is None else self.control.stored(m))

    def _set(self, m: Tensor) -> None:
        if m.shape == self.m.shape:
            self.m.copy_(m)
        else:
            self.m = m.detach().clone()

    def load(self, m: Tensor) -> None:
        """Load a saved memory; ValueError if it is of another width or kind, or not finite."""
        if m.dim() != 2 or m.shape[1] != self.m.shape[1] or not self.fits(len(m)):
            raise ValueError(
                f"{type(self).__name__} of width {self.m.shape[1]} got a memory of shape {tuple(m.shape)}; "
                "load it into the model and method that it came from, or leave it out to start from zero"
            )
        if not m.isfinite().all():
            raise ValueError(
                f"{type(self).__name__} got a memory that is not finite: load an earlier one, or "
                "leave it out to start from zero"
            )
        if self.m.is_meta:  # of a model that gets its weights by assignment
            self.m = m.detach().clone()
        else:
            self._set(m.detach().to(self.m))

    def fits(self, rows: int) -> bool:
        """Return whether a memory of this kind may have so many rows."""
        return rows == 1

    def _save_to_state_dict(self, destination: dict[str, Tensor], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.in_state_dict or not prefix:  # a memory on its own always saves m
            destination[f"{prefix}m"] = self.m if keep_vars else self.m.detach()

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Tensor], prefix: str, metadata: object, strict: bool,
        missing: list[str], unexpected: list[str], errors: list[str],
    ) -> None:  # fmt: skip
        """Load m where the state has it; weights of a plain model leave it as it is."""
        key = f"{prefix}m"
        others = {name: value for name, value in state_dict.items() if name != key}
        super()._load_from_state_dict(others, prefix, metadata, strict, missing, unexpected, errors)
        if key in state_dict:
            try:
                self.load(state_dict[key])
            except ValueError as error:
                errors.append(f"{key}: {error}")

    def extra_repr(self) -> str:
        return f"gamma={self.gamma}"


class SharedMemory(GradientMemory):
    """One vector for the batch: every example adds it, and the mean of their remainders is the next."""

    has_kernel = True

    def estimate(self, grad_h: Tensor, sparsifier: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        g, left = self.split(grad_h, self.m, sparsifier)  # g ← S(∂ℓ/∂h + m)
        return g, self.gamma * left.mean(0, keepdim=True)  # m ← γ(∂ℓ/∂h + m − g)


class AdaptiveMemory(SharedMemory):
    """A shared memory whose gamma follows the agreement of the memory with the fresh gradient.

    gamma_t = gamma (1 + cos(m, mean ∂ℓ/∂h)) / 2, and gamma for an empty memory. A memory is worth as much as
    it predicts: while fresh gradients point the way of m, the remainder is kept; where they point against it,
    m stems from weights that have moved on, and is forgotten, at once if it is opposite.
    """

    has_kernel = False

    def estimate(self, grad_h: Tensor, sparsifier: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        g, left = self.split(grad_h, self.m, sparsifier)
        return g, self.gamma * self.agreement(grad_h) * left.mean(0, keepdim=True)

    def agreement(self, grad_h: Tensor) -> Tensor:
        """Return (1 + the cosine of m and the mean of ∂ℓ/∂h) / 2, or 1 if one of them is zero."""
        fresh = grad_h.mean(0, keepdim=True)
        lengths = self.m.norm() * fresh.norm()
        return torch.where(lengths > 0, (1 + (self.m * fresh).sum() / lengths) / 2, 1.0)


class SlotMemory(GradientMemory):
    """One vector for each index in the batch, grown as needed; a short batch leaves the other slots alone.

    m is no buffer: tools that broadcast or average buffers take them to be as large in all copies of a model,
    and the slots of a process under DistributedDataParallel belong to its own examples.
    """

    has_kernel = True

    def __init__(
        self, out_features: int, gamma: float, rows: int = 0, *, control: MemoryControl | None = None
    ):
        super().__init__(out_features, gamma, rows, control=control)

    def _hold(self, m: Tensor) -> None:
        self.m = m

    def held(self) -> Tensor:
        return self.m

    def _move(self, fn: Callable[[Tensor], Tensor], recurse: bool) -> None:
        super()._move(fn, recurse)
        self.m = fn(self.m)

    def estimate(self, grad_h: Tensor, sparsifier: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        slots = self.m.new_zeros(max(len(grad_h), len(self.m)), self.m.shape[1])
        slots[: len(self.m)] = self.m
        m, others = slots[: len(grad_h)], slots[len(grad_h) :]
        g, left = self.split(grad_h, m, sparsifier)  # g ← S(∂ℓ/∂h + m)
        return g, torch.cat([self.gamma * left, others])  # m ← γ(∂ℓ/∂h + m − g)

    def fits(self, rows: int) -> bool:
        return True


class SequentialMemory(GradientMemory):
    """One vector that passes from example to example: Algorithm 2 to the letter."""

    has_kernel = True

    def estimate(self, grad_h: Tensor, sparsifier: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        m, estimates = self.m, torch.empty_like(grad_h)
        for b, gradient in enumerate(grad_h.split(1)):
            estimates[b : b + 1], left = self.split(gradient, m, sparsifier)  # g ← S(∂ℓ/∂h + m)
            m = self.gamma * left  # m ← γ(∂ℓ/∂h + m − g)
        return estimates, m


MEMORIES: dict[str, type[GradientMemory]] = {
    "shared": SharedMemory,
    "per_slot": SlotMemory,
    "sequential": SequentialMemory,
}
BIAS_GRADIENTS = {"sparse": False, "full": True}  # whether ∂ℓ/∂b sums ∂ℓ/∂h rather than g


def memory_of(
    kind: str, out_features: int, gamma: float, control: str | None = None, name: str = ""
) -> GradientMemory | None:
    """Return a new memory of this kind for a layer of this name, None for gamma = 0."""
    if not gamma:
        return None
    replaced = None if control is None else MEMORY_CONTROLS[control](name)
    return MEMORIES[kind](out_features, gamma, control=replaced)


def check_choices(
    gamma: float,
    memory: str,
    selection: str,
    bias_gradient: str,
    sparsifier: str = TOP_K,
    memory_control: str | None = None,
) -> None:
    """ValueError unless gamma is in range and the options are known and compatible."""
    check_gamma(gamma)
    known: list[tuple[str, str, Collection[str]]] = [
        ("memory", memory, MEMORIES),
        ("selection", selection, SPARSIFIERS),
        ("bias", bias_gradient, BIAS_GRADIENTS),
        ("sparsifier", sparsifier, (TOP_K, *OTHER_SPARSIFIERS)),
    ]
    if memory_control is not None:
        known.append(("memory_control", memory_control, MEMORY_CONTROLS))
    for what, got, choices in known:
        if got not in choices:
            raise ValueError(f"unknown {what} {got!r}: choose from {', '.join(choices)}")
    if memory == "sequential" and selection == "unified":
        raise ValueError(
            "memory=sequential passes from example to example, but selection=unified needs the whole "
            "batch at once; choose another memory, or selection=per_example"
        )
    if memory_control is not None and not gamma:
        raise ValueError(
            f"memory_control={memory_control} replaces the memory, and gamma = 0 has none: choose a gamma "
            "above 0, or leave memory_control out"
        )


def check_gamma(gamma: object) -> None:
    """Raise ValueError unless gamma is a number in range."""
    if not (is_number(gamma) and 0 <= gamma <= 1):  # type: ignore[operator]
        raise ValueError(
            f"memory ratio gamma must be a number in [0, 1], got {gamma!r}; 0 is SBP, without memory"
        )


def is_number(value: object) -> bool:
    """Return True for a real number, and False for a bool."""
    return isinstance(value, Real) and not isinstance(value, bool)
