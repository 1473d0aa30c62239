"""Gradient memory: what was not propagated, carried to the next step (Algorithm 2 of the paper).

Letters: B batch, n width (out_features), m memory. The paper has one example a step and leaves a
mini-batch open; the three kinds below are three readings of it. m is a buffer that is not in the
state_dict, so that weights load into models with and without memory; `m` and `load` are for checkpoints.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn


class GradientMemory(nn.Module, ABC):
    """The m of a layer. `estimate` reads it, `store` writes it, so that a failed backward changes nothing."""

    m: Tensor

    def __init__(self, out_features: int, gamma: float, rows: int = 1):
        super().__init__()
        if not 0 <= gamma <= 1:
            raise ValueError(f"memory ratio gamma must be in [0, 1], got {gamma}")
        self.gamma = gamma
        self.register_buffer("m", torch.zeros(rows, out_features), persistent=False)

    @abstractmethod
    def estimate(self, grad_h: Tensor, sparsifier: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """The estimated gradient g (B, n) and the memory that follows it, not stored yet."""

    def on(self, tensor: Tensor, width: int) -> Tensor:
        """Return m on the device and of the type of a tensor, moved there if it is not; from meta it is zero.

        RuntimeError if m is not of this width.
        """
        m: Any = self._buffers["m"]  # nn.Module's own access takes a microsecond
        if m.shape[-1] != width:
            raise RuntimeError(
                f"the gradient memory has width {m.shape[-1]}, and the layer has {width} outputs by now: "
                "convert a model after its layers are resized, or give the layer a new `memory`"
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
        """Replace the memory by the one that `estimate` returned."""
        if m.shape == self.m.shape:
            self.m.copy_(m)
        else:
            self.m = m.detach().clone()

    def load(self, m: Tensor) -> None:
        """Put back a memory that was saved; ValueError if it belongs to another width or kind."""
        if m.dim() != 2 or m.shape[1] != self.m.shape[1] or not self._fits(len(m)):
            raise ValueError(
                f"{type(self).__name__} of width {self.m.shape[1]} got a memory of shape {tuple(m.shape)}; "
                "load it into the model and method that it came from, or leave it out to start from zero"
            )
        self.store(m.to(self.m))

    def _fits(self, rows: int) -> bool:
        return rows == 1

    def extra_repr(self) -> str:
        return f"gamma={self.gamma}"


class SharedMemory(GradientMemory):
    """One vector for the batch: every example carries it, and the mean of what they leave is the next."""

    def estimate(self, grad_h: Tensor, sparsifier: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        carried = grad_h + self.m  # ∂ℓ/∂h + m
        g = sparsifier(carried)
        return g, self.gamma * (carried - g).mean(0, keepdim=True)  # m ← γ(∂ℓ/∂h + m − g)


class SlotMemory(GradientMemory):
    """One vector for each place in the batch, grown as needed; a short batch leaves the other slots alone."""

    def __init__(self, out_features: int, gamma: float, rows: int = 0):
        super().__init__(out_features, gamma, rows)

    def estimate(self, grad_h: Tensor, sparsifier: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        slots = self.m.new_zeros(max(len(grad_h), len(self.m)), self.m.shape[1])
        slots[: len(self.m)] = self.m
        m, others = slots[: len(grad_h)], slots[len(grad_h) :]
        carried = grad_h + m  # ∂ℓ/∂h + m
        g = sparsifier(carried)
        return g, torch.cat([self.gamma * (carried - g), others])  # m ← γ(∂ℓ/∂h + m − g)

    def _fits(self, rows: int) -> bool:
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
