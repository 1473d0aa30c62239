"""Gradient memory: what was not propagated, carried to the next step (Algorithm 2 of the paper).

Letters: B batch, n width (out_features), m memory. The paper has one example a step and leaves a
mini-batch open; the three kinds below are three readings of it. m is a buffer that is not in the
state_dict unless `in_state_dict` is set, so that weights load into models with and without memory; `m` and
`load` are for other checkpoints.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, Self

import torch
from torch import Tensor, nn

from .sparsifiers import SPARSIFIERS


class GradientMemory(nn.Module, ABC):
    """The m of a layer. `estimate` reads it, `store` writes it, so that a failed backward changes nothing."""

    m: Tensor
    in_state_dict = False

    def __init__(self, out_features: int, gamma: float, rows: int = 1):
        super().__init__()
        if not 0 <= gamma <= 1:
            raise ValueError(f"memory ratio gamma must be in [0, 1], got {gamma}")
        self.gamma = gamma
        m = torch.zeros(rows, out_features, dtype=torch.float32, device="cpu")  # not torch's defaults
        self.register_buffer("m", m, persistent=False)

    @abstractmethod
    def estimate(self, grad_h: Tensor, sparsifier: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Return the estimated gradient g (B, n) and the memory after it, not stored yet."""

    def on(self, tensor: Tensor, width: int) -> Tensor:
        """Return m on the device and of the type of a tensor, moved there if it is not; from meta it is zero.

        RuntimeError if m is not of this width or kind.
        """
        m: Any = self._buffers["m"]  # nn.Module's own access takes a microsecond
        shape = m.shape
        if len(shape) != 2 or shape[1] != width or not self.fits(shape[0]):
            raise RuntimeError(
                f"the {type(self).__name__} of a layer with {width} outputs has shape {tuple(shape)}: "
                "where a layer was resized, call msbp.sparse.revert(model) and convert anew, or give "
                "the layer a new `memory`"
            )
        if m.dtype is not tensor.dtype or m.device != tensor.device:
            like: Any = {"device": tensor.device, "dtype": tensor.dtype}
            self.m = m = torch.zeros(m.shape, **like) if m.is_meta else m.to(**like)
        return m

    def clear(self) -> None:
        """Set the memory to zero, as before the first step."""
        self.m = torch.zeros_like(self.m)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = self.m
        super()._apply(fn, recurse)
        if not self.m.is_meta and (before.is_meta or not torch.equal(before.to(self.m), self.m)):
            self.clear()  # to_empty leaves uninitialized numbers
        return self

    def store(self, m: Tensor) -> None:
        """Replace the memory by one that `estimate` returned."""
        if m.shape == self.m.shape:
            self.m.copy_(m)
        else:
            self.m = m.detach().clone()

    def load(self, m: Tensor) -> None:
        """Load a saved memory; ValueError if it is of another width or kind."""
        if m.dim() != 2 or m.shape[1] != self.m.shape[1] or not self.fits(len(m)):
            raise ValueError(
                f"{type(self).__name__} of width {self.m.shape[1]} got a memory of shape {tuple(m.shape)}; "
                "load it into the model and method that it came from, or leave it out to start from zero"
            )
        self.store(m.to(self.m))

    def fits(self, rows: int) -> bool:
        """Return whether a memory of this kind may have so many rows."""
        return rows == 1

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.in_state_dict:
            destination[f"{prefix}m"] = self.m if keep_vars else self.m.detach()

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, metadata: Any, strict: bool, missing: list[str],
        unexpected: list[str], errors: list[str],
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

    def estimate(self, grad_h: Tensor, sparsifier: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        carried = grad_h + self.m  # ∂ℓ/∂h + m
        g = sparsifier(carried)
        return g, self.gamma * (carried - g).mean(0, keepdim=True)  # m ← γ(∂ℓ/∂h + m − g)


class SlotMemory(GradientMemory):
    """One vector for each index in the batch, grown as needed; a short batch leaves the other slots alone."""

    def __init__(self, out_features: int, gamma: float, rows: int = 0):
        super().__init__(out_features, gamma, rows)

    def estimate(self, grad_h: Tensor, sparsifier: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        slots = self.m.new_zeros(max(len(grad_h), len(self.m)), self.m.shape[1])
        slots[: len(self.m)] = self.m
        m, others = slots[: len(grad_h)], slots[len(grad_h) :]
        carried = grad_h + m  # ∂ℓ/∂h + m
        g = sparsifier(carried)
        return g, torch.cat([self.gamma * (carried - g), others])  # m ← γ(∂ℓ/∂h + m − g)

    def fits(self, rows: int) -> bool:
        return True


class SequentialMemory(GradientMemory):
    """One vector that passes from example to example: Algorithm 2 to the letter."""

    def estimate(self, grad_h: Tensor, sparsifier: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        m, estimates = self.m, torch.empty_like(grad_h)
        for b, gradient in enumerate(grad_h.split(1)):
            carried = gradient + m  # ∂ℓ/∂h + m
            g = estimates[b : b + 1] = sparsifier(carried)
            m = self.gamma * (carried - g)  # m ← γ(∂ℓ/∂h + m − g)
        return estimates, m


MEMORIES: dict[str, type[GradientMemory]] = {
    "shared": SharedMemory,
    "per_slot": SlotMemory,
    "sequential": SequentialMemory,
}
BIAS_GRADIENTS = {"sparse": False, "full": True}  # whether ∂ℓ/∂b sums ∂ℓ/∂h rather than g


def check_choices(gamma: float, memory: str, selection: str, bias_gradient: str) -> None:
    """ValueError unless gamma is in range and the options are known and compatible."""
    if not (is_number(gamma) and 0 <= gamma <= 1):
        raise ValueError(
            f"memory ratio gamma must be a number in [0, 1], got {gamma!r}; 0 is SBP, without memory"
        )
    known: list[tuple[str, str, dict[str, Any]]] = [
        ("memory", memory, MEMORIES),
        ("selection", selection, SPARSIFIERS),
        ("bias", bias_gradient, BIAS_GRADIENTS),
    ]
    for what, got, choices in known:
        if got not in choices:
            raise ValueError(f"unknown {what} {got!r}: choose from {', '.join(choices)}")
    if memory == "sequential" and selection == "unified":
        raise ValueError(
            "memory=sequential passes from example to example, but selection=unified needs the whole "
            "batch at once; choose another memory, or selection=per_example"
        )


def is_number(value: object) -> bool:
    """Return True for a real number, and False for a bool."""
    return isinstance(value, Real) and not isinstance(value, bool)
