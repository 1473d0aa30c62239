"""How the gradient of an LSTM's gates is propagated through one direction: all of it, or an estimate of it.

Letters: N rows, n rows of a time step, H hidden_size, i input_size; see recurrence.py.
"""

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ..buffers import uses_kernel
from ..kernels import lstm as kernels
from . import cell
from .memory_over_time import Carry

Estimate = Callable[[Tensor, Carry], tuple[Tensor, None]]


class NotFinite(ArithmeticError):
    """A gradient that is NaN or infinite: it goes through whole, and memories stay as they were."""


class Weights(NamedTuple):
    """Parameters of one direction: ih (4H, i), hh (4H, H) and two biases (4H) that are added, or none."""

    ih: Tensor
    hh: Tensor
    bias_ih: Tensor | None = None
    bias_hh: Tensor | None = None


class Saved(NamedTuple):
    """What the backward pass needs of each row: the gates' values (N, 4H), the states before the step, and
    the tanh of the cell state after it, (N, H) each."""

    gates: Tensor
    previous_h: Tensor
    previous_c: Tensor
    tanh_c: Tensor


class FullGradient:
    """g = ∂ℓ/∂gates (N, 4H), every entry of it, made from the last time step to the first."""

    def __init__(self, weights: Weights, saved: Saved):
        self.weights, self.saved = weights, saved
        self.g = torch.empty_like(saved.gates)

    def step(self, rows: slice, grad_out: Tensor, grad_h: Tensor, grad_c: Tensor) -> None:
        """Make g of some rows from the gradients (n, H) of the output, of h and of c after them.

        grad_c becomes the gradient of the c before them.
        """
        gates, _, previous_c, tanh_c = (t[rows] for t in self.saved)
        tensors = (grad_h, grad_c, gates, previous_c, tanh_c, self.g[rows])
        if uses_kernel(*tensors):
            kernels.gate_gradients(*cell.rows_of(grad_out), *(t.data_ptr() for t in tensors), *grad_h.shape)
        else:
            slopes = cell.Slopes(*(t[rows] for t in self.slopes))
            cell.gate_gradients(grad_out, grad_h, grad_c, gates.chunk(4, 1)[1], slopes, self.g[rows])

    @cached_property
    def slopes(self) -> cell.Slopes:
        """Those of all rows."""
        return cell.Slopes.of(self.saved.gates, self.saved.previous_c, self.saved.tanh_c)

    def through_state(self, rows: slice, grad_h: Tensor) -> None:
        """grad_h (n, H) ← g · weight_hh, ∂ℓ/∂h before the rows."""
        torch.mm(self.g[rows], self.weights.hh, out=grad_h)

    def of_weights(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """∂ℓ/∂weight_ih and ∂ℓ/∂weight_hh."""
        return self.g.T @ x, self.g.T @ self.saved.previous_h

    def of_bias(self) -> Tensor:
        """∂ℓ/∂bias (4H)."""
        return self.g.T @ self.g.new_ones(len(self.g))  # faster than sum(0)

    def of_input(self, others: Tensor | None) -> Tensor:
        """∂ℓ/∂x (N, i) of this direction, added to that of others in place."""
        return self.g @ self.weights.ih if others is None else others.addmm_(self.g, self.weights.ih)

    def check(self) -> None:
        """Raise NotFinite after a pass through all time steps if g is not finite."""

    def finish(self) -> None:
        """Called when the pass went well in all directions."""


class EstimatedGradient(FullGradient):
    """g is the estimate of ∂ℓ/∂gates (n, 4H), time step after time step; `carry` has the memory."""

    def __init__(self, weights: Weights, saved: Saved, estimate: Estimate, carry: Carry, dense_bias: bool):
        super().__init__(weights, saved)
        self.estimate, self.carry = estimate, carry
        self.all_gradients = saved.gates.new_zeros(saved.gates.shape[1]) if dense_bias else None

    def step(self, rows: slice, grad_out: Tensor, grad_h: Tensor, grad_c: Tensor) -> None:
        super().step(rows, grad_out, grad_h, grad_c)
        if self.all_gradients is not None:
            self.all_gradients += self.g[rows].sum(0)
        self.g[rows], _ = self.estimate(self.g[rows], self.carry)

    def of_bias(self) -> Tensor:
        return super().of_bias() if self.all_gradients is None else self.all_gradients

    def check(self) -> None:
        # a NaN or Inf is among the largest, so looking at g is enough; once, as a GPU has to wait for it
        if not torch.isfinite(self.g).all():
            raise NotFinite

    def finish(self) -> None:
        self.carry.finish()
