"""Propagation of the gradient of an LSTM's gates through one direction: all of it, or the estimate g.

Letters: N rows, n rows of a time step, H hidden_size, i input_size, m = 4H, k entries of a row.
"""

from array import array
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ..buffers import address, empty, uses_kernel, zeros
from ..kernels import lstm_backward as kernels
from ..kernels import parallel
from ..kernels import rows as products
from ..kernels.select import FIRST_DISTANCE
from ..torch_compat import SGEMM
from . import cell
from .memory_over_time import Carry

Estimate = Callable[[Tensor, Carry], tuple[Tensor, None]]


class NotFinite(ArithmeticError):
    """Raised for a gradient with NaN or infinity, which is propagated whole, with memories unchanged."""


class Weights(NamedTuple):
    """Parameters of one direction: ih (4H, i), hh (4H, H) and two biases (4H) that are summed, or none."""

    ih: Tensor
    hh: Tensor
    bias_ih: Tensor | None = None
    bias_hh: Tensor | None = None

    def check(self, i: int, H: int, dtype: torch.dtype) -> None:
        """Raise RuntimeError unless these are the parameters of an LSTM with i inputs and H units."""
        shapes = (4 * H, i), (4 * H, H), (4 * H,), (4 * H,)
        for name, p, shape in zip(self._fields, self, shapes, strict=True):
            if p is not None and (p.shape != shape or p.dtype is not dtype):
                raise RuntimeError(
                    f"{name} of an LSTM with input size {i} and hidden size {H} must have shape {shape} and "
                    f"type {dtype}, got {tuple(p.shape)} and {p.dtype}: resize or cast all weights alike"
                )


class Saved(NamedTuple):
    """Saved tensors: the gates' values (N, 4H), the states before and tanh(c) after a step, (N, H) each."""

    gates: Tensor
    previous_h: Tensor
    previous_c: Tensor
    tanh_c: Tensor


class FullGradient:
    """g = ∂ℓ/∂gates (N, 4H), all entries, formed from the last time step to the first."""

    def __init__(self, weights: Weights, saved: Saved):
        self.weights, self.saved = weights, saved
        self.g = torch.empty_like(saved.gates)

    def backward(
        self, steps: list[slice], grad_out: Tensor, grad_h: Tensor, grad_c: Tensor, to_start: bool
    ) -> None:
        """Backpropagate through time.

        grad_h, grad_c (B, H) are the gradients of the last states, and become those of the first states,
        grad_h only if `to_start`.
        """
        H = grad_h.shape[1]
        if not uses_kernel(self.weights.hh, grad_h, grad_c, *self.saved):
            self.backward_in_torch(steps, grad_out, grad_h, grad_c, to_start)
            return
        hh, table = address(self.weights.hh, (4 * H, H), "weight_hh of an LSTM"), step_table(steps)
        given = *self.given(grad_out, grad_h, grad_c), table.buffer_info()[0], len(steps), H
        kernels.dense_backward(*given, hh, to_start, self.g.data_ptr(), SGEMM, parallel.threads())

    def given(self, grad_out: Tensor, grad_h: Tensor, grad_c: Tensor) -> list[int]:
        """Return what kernels read."""
        tensors = grad_h, grad_c, self.saved.gates, self.saved.previous_c, self.saved.tanh_c
        return [*rows_of(grad_out), *addresses(*tensors)]

    def backward_in_torch(
        self, steps: list[slice], grad_out: Tensor, grad_h: Tensor, grad_c: Tensor, to_start: bool
    ) -> None:
        """Backpropagate as `backward`, one time step after the other."""
        for rows in reversed(steps):
            n = rows.stop - rows.start
            self.step(rows, grad_out[rows], grad_h[:n], grad_c[:n])
            if to_start or rows is not steps[0]:
                torch.mm(self.g[rows], self.weights.hh, out=grad_h[:n])

    def step(self, rows: slice, grad_out: Tensor, grad_h: Tensor, grad_c: Tensor) -> None:
        """Form g of the rows of a time step from the gradients (n, H) of the output, of h and of c after it.

        grad_c becomes the gradient of c before it.
        """
        gates, _, previous_c, tanh_c = (t[rows] for t in self.saved)
        tensors = (grad_h, grad_c, gates, previous_c, tanh_c, self.g[rows])
        if uses_kernel(*tensors):
            given = *rows_of(grad_out), *addresses(*tensors), *grad_h.shape
            kernels.gate_gradients(*given, parallel.threads())
        else:
            slopes = cell.Slopes(*(t[rows] for t in self.slopes))
            cell.gate_gradients(grad_out, grad_h, grad_c, gates.chunk(4, 1)[1], slopes, self.g[rows])

    @cached_property
    def slopes(self) -> cell.Slopes:
        """Return the derivatives for all rows."""
        return cell.Slopes.of(self.saved.gates, self.saved.previous_c, self.saved.tanh_c)

    def of_weights(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return ∂ℓ/∂weight_ih and ∂ℓ/∂weight_hh."""
        return self.g.T @ x, self.g.T @ self.saved.previous_h

    def of_bias(self) -> Tensor:
        """Return ∂ℓ/∂bias (4H)."""
        return self.g.T @ self.g.new_ones(len(self.g))  # faster than sum(0)

    def of_input(self, others: Tensor | None) -> Tensor:
        """Return ∂ℓ/∂x (N, i) of this direction, added in place to that of others."""
        return self.g @ self.weights.ih if others is None else others.addmm_(self.g, self.weights.ih)

    def check(self) -> None:
        """Raise NotFinite after a pass through all time steps if g is not finite."""

    def finish(self) -> None:
        """Store the memory; called after a pass without error in all directions."""


class EstimatedGradient(FullGradient):
    """g = the estimate of ∂ℓ/∂gates (n, 4H), time step after time step; `carry` holds the memory."""

    def __init__(self, weights: Weights, saved: Saved, estimate: Estimate, carry: Carry, dense_bias: bool):
        super().__init__(weights, saved)
        self.estimate, self.carry = estimate, carry
        self.all_gradients = saved.gates.new_zeros(saved.gates.shape[1]) if dense_bias else None

    def backward(
        self, steps: list[slice], grad_out: Tensor, grad_h: Tensor, grad_c: Tensor, to_start: bool
    ) -> None:
        self.backward_in_torch(steps, grad_out, grad_h, grad_c, to_start)

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


class ListedGradient(FullGradient):
    """The estimate g as values and columns (N, k), equally many of each group of columns, by kernel."""

    def __init__(
        self, weights: Weights, saved: Saved, k: int, groups: int, gamma: float, carry: Carry,
        dense_bias: bool,
    ):  # fmt: skip
        self.weights, self.saved, self.carry = weights, saved, carry
        self.k, self.groups, self.gamma = k, groups, gamma
        self.rows, self.width = saved.gates.shape
        self.values, self.columns = empty(self.rows, k), empty(self.rows, k, dtype=torch.int32)
        self.all_gradients = zeros(self.width) if dense_bias else None
        self.distance = zeros(groups, dtype=torch.int64) + FIRST_DISTANCE
        H = self.width // 4
        self.hh = address(weights.hh, (self.width, H), "weight_hh of an LSTM")
        for gate, tensor in zip(Saved._fields, saved, strict=True):
            address(tensor, (self.rows, self.width if gate == "gates" else H), f"{gate} of an LSTM")
        if carry.m is not None:
            address(carry.m, (len(carry.m), self.width), "the memory of an LSTM")

    def backward(
        self, steps: list[slice], grad_out: Tensor, grad_h: Tensor, grad_c: Tensor, to_start: bool
    ) -> None:
        carry, table, H = self.carry, step_table(steps), grad_h.shape[1]
        given = *self.given(grad_out, grad_h, grad_c), table.buffer_info()[0], len(steps), H
        products = self.packed_hh.data_ptr(), to_start, self.groups, self.k // self.groups
        memory = *addresses(carry.m, carry.total), carry.per_slot, carry.waits, self.gamma
        results = addresses(self.values, self.columns, self.all_gradients, self.distance)
        if not kernels.sparse_backward(*given, *products, *memory, *results, parallel.threads()):
            raise NotFinite

    @cached_property
    def packed_hh(self) -> Tensor:
        """Return weight_hh packed in panels, for all time steps."""
        m, H = self.weights.hh.shape
        packed = empty(-(-H // products.LANES), m, products.LANES)
        products.pack(self.hh, packed.data_ptr(), m, H, parallel.threads())
        return packed

    def of_weights(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._of_weight(x), self._of_weight(self.saved.previous_h)

    def _of_weight(self, matrix: Tensor) -> Tensor:
        """Return gᵀ · matrix (N, ·)."""
        n, count = matrix.shape[1], parallel.threads()
        out, panels = empty(self.width, n), empty(count, products.CHUNK, products.CHUNK_LANES)
        sums = empty(count, self.width, products.CHUNK_LANES)
        dense = address(matrix, (self.rows, n), "the input of an LSTM")
        starts, rows, values, *scratch = addresses(*self.lists[:-1], out, panels, sums)
        sizes = self.rows, self.width, dense, n
        products.transposed_product(starts, rows, values, *sizes, *scratch, count)
        return out

    @cached_property
    def lists(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the entries by column, as `products.by_chunk` sorts them."""
        chunks = -(-self.rows // products.CHUNK)
        starts = empty(chunks * self.width + 1, dtype=torch.int32)
        rows, values = torch.empty_like(self.columns), torch.empty_like(self.values)
        lists = starts, rows, values, empty(self.width)
        entries = [*addresses(self.values, self.columns), self.rows, self.width, self.k]
        products.by_chunk(*entries, *addresses(*lists))
        return lists

    def of_bias(self) -> Tensor:
        return self.lists[-1] if self.all_gradients is None else self.all_gradients

    def of_input(self, others: Tensor | None) -> Tensor:
        m, i = self.width, self.weights.ih.shape[1]
        weight = address(self.weights.ih, (m, i), "weight_ih of an LSTM")
        grad_x = empty(self.rows, i) if others is None else others
        count, plus = parallel.threads(), others is not None
        panels = empty(count, m, products.LANES)
        values, columns, out, scratch = addresses(self.values, self.columns, grad_x, panels)
        sizes = self.rows, self.k, weight, m, i
        products.product(values, columns, *sizes, out, plus, scratch, count)
        return grad_x

    def finish(self) -> None:
        self.carry.finish()


def step_table(steps: list[slice]) -> array:
    """Return the first row of each time step and its number of rows, for kernels."""
    return array("q", [number for rows in steps for number in (rows.start, rows.stop - rows.start)])


def rows_of(matrix: Tensor) -> tuple[int, int]:
    """Return the address of a matrix with contiguous rows, and their stride in bytes."""
    return matrix.data_ptr(), matrix.stride(0) * matrix.element_size()


def addresses(*tensors: Tensor | None) -> list[int]:
    """Return the addresses of tensors that are referenced elsewhere; 0 for None."""
    return [0 if t is None else t.data_ptr() for t in tensors]
