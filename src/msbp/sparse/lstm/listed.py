"""The estimated gradient of an LSTM's gates as a list of its entries: by kernel, float32 on the CPU.

Letters: N rows, n rows of a time step, H hidden_size, i input_size, m = 4H, k entries of a row.
"""

from functools import cached_property

import torch
from torch import Tensor

from ..buffers import address, empty, zeros
from ..kernels import gates, panels
from ..kernels.select import FIRST_DISTANCE
from .cell import rows_of
from .gradients import FullGradient, NotFinite, Saved, Weights
from .memory_over_time import Carry


class ListedGradient(FullGradient):
    """g as values and columns (N, k), as many from each group of columns; otherwise an EstimatedGradient."""

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

    def step(self, rows: slice, grad_out: Tensor, grad_h: Tensor, grad_c: Tensor) -> None:
        values, _, previous_c, tanh_c = (t[rows] for t in self.saved)
        carry, in_place = self.carry, self.carry.total is None
        given = [*rows_of(grad_out), *addresses(grad_h, grad_c, values, previous_c, tanh_c), *grad_h.shape]
        given += [self.groups, self.k // self.groups]
        memory = [*addresses(carry.m, carry.total), carry.per_slot, in_place, self.gamma]
        found = addresses(self.values[rows], self.columns[rows], self.all_gradients, self.distance)
        if gates.select_gates(*given, *memory, *found):
            raise NotFinite
        carry.settle(len(grad_h))

    def through_state(self, rows: slice, grad_h: Tensor) -> None:
        n, H = grad_h.shape
        values, columns = addresses(self.values[rows], self.columns[rows])
        packed = self.packed_hh.data_ptr()
        panels.product_packed(values, columns, n, self.k, packed, self.width, H, grad_h.data_ptr())

    @cached_property
    def packed_hh(self) -> Tensor:
        """weight_hh in panels, for all time steps."""
        m, H = self.weights.hh.shape
        packed = empty(-(-H // panels.LANES), m, panels.LANES)
        panels.pack(self.hh, packed.data_ptr(), m, H)
        return packed

    def of_weights(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._of_weight(x), self._of_weight(self.saved.previous_h)

    def _of_weight(self, matrix: Tensor) -> Tensor:
        """gᵀ · matrix (N, ·)."""
        n = matrix.shape[1]
        out, panel = empty(self.width, n), empty(panels.CHUNK, panels.CHUNK_LANES)
        sums = empty(self.width, panels.CHUNK_LANES)
        dense = address(matrix, (self.rows, n), "the input of an LSTM")
        starts, rows, values, *scratch = addresses(*self.lists[:-1], out, panel, sums)
        panels.transposed_product(starts, rows, values, self.rows, self.width, dense, n, *scratch)
        return out

    @cached_property
    def lists(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The entries by column, as `panels.by_chunk` makes them."""
        chunks = -(-self.rows // panels.CHUNK)
        starts = empty(chunks * self.width + 1, dtype=torch.int32)
        rows, values = torch.empty_like(self.columns), torch.empty_like(self.values)
        lists = starts, rows, values, empty(self.width)
        entries = [*addresses(self.values, self.columns), self.rows, self.width, self.k]
        panels.by_chunk(*entries, *addresses(*lists))
        return lists

    def of_bias(self) -> Tensor:
        return self.lists[-1] if self.all_gradients is None else self.all_gradients

    def of_input(self, others: Tensor | None) -> Tensor:
        m, i = self.width, self.weights.ih.shape[1]
        weight = address(self.weights.ih, (m, i), "weight_ih of an LSTM")
        grad_x = empty(self.rows, i) if others is None else others
        panel = empty(m, panels.LANES)
        values, columns, out, scratch = addresses(self.values, self.columns, grad_x, panel)
        add = others is not None
        panels.product(values, columns, self.rows, self.k, weight, m, i, out, add, scratch)
        return grad_x

    def finish(self) -> None:
        self.carry.finish()


def addresses(*tensors: Tensor | None) -> list[int]:
    """Where tensors lie that somebody holds; 0 for none."""
    return [0 if t is None else t.data_ptr() for t in tensors]
