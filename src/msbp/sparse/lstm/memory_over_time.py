"""The gradient memory of an LSTM over time, from the last time step to the first.

Letters: N rows of the batch, n rows of a time step. The rows of a time step are to a memory what the examples
of a batch are to that of a linear layer.

time   A time step adds the memory after the time step that follows it, and the last one of a batch that after
       the first time step of the previous batch. Nothing is reset at the end of a sequence: shared and
       sequential memory belong to the layer, a slot's to the slot. A slot with a shorter sequence keeps its
       memory until the pass reaches its last word.
batch  All time steps add the memory after the previous batch. The remainders are averaged, over all rows
       (shared) or those of a slot (per_slot), and stored at the end of the pass; empty slots keep theirs.
"""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..memory import GradientMemory, SharedMemory, SlotMemory

Sparsify = Callable[[Tensor], Tensor]


class AlongTime:
    """The memory passes from time step to time step.

    A kernel uses, instead of `estimate`: `m`, the memory that the next rows add; `total`, the sum of their
    remainders, or None if these are written to `m` at once, whose mean is the next m, unless that `waits`.
    """

    waits = False

    def __init__(self, memory: GradientMemory, steps: Sequence[slice]):
        self.memory, self.running = memory, copy.deepcopy(memory)
        self.running.control = memory.control  # whose draws go on
        self.per_slot = isinstance(memory, SlotMemory)
        if self.per_slot and len(memory.m) < (most := max(rows_per_step(steps))):
            self.running.store(grown(memory.m, most))
        self.total = torch.zeros_like(memory.m) if isinstance(memory, SharedMemory) else None

    @property
    def m(self) -> Tensor:
        return self.running.m

    def estimate(self, grad_gates: Tensor, sparsify: Sparsify) -> Tensor:
        g, m = self.running.estimate(grad_gates, sparsify)
        self.running.store(m)
        return g

    def finish(self) -> None:
        self.memory.store(self.m)


class PerBatch:
    """The memory is constant during a batch; count: of rows whose remainders each of its rows gets."""

    waits = True

    def __init__(self, memory: GradientMemory, steps: Sequence[slice]):
        self.memory, self.per_slot = memory, isinstance(memory, SlotMemory)
        rows = rows_per_step(steps)
        self.m = grown(memory.m, max(rows)) if self.per_slot else memory.m
        self.total, self.count = torch.zeros_like(self.m), self.m.new_zeros(len(self.m), 1)
        for n in rows:
            self.count[: n if self.per_slot else 1] += 1 if self.per_slot else n

    def estimate(self, grad_gates: Tensor, sparsify: Sparsify) -> Tensor:
        g, m = self.memory.estimate(grad_gates, sparsify)
        rows = len(g) if self.per_slot else 1
        self.total[:rows] += m[:rows] * (len(g) / rows)
        return g

    def finish(self) -> None:
        self.memory.store(torch.where(self.count > 0, self.total / self.count.clamp(min=1), self.m))


class NoMemory:
    """SBP: unpropagated gradients are dropped."""

    per_slot, m, total, waits = False, None, None, False

    def estimate(self, grad_gates: Tensor, sparsify: Sparsify) -> Tensor:
        return sparsify(grad_gates)

    def finish(self) -> None:
        """Do nothing."""


Carry = AlongTime | PerBatch | NoMemory
CARRIES: dict[str, type[AlongTime] | type[PerBatch]] = {"time": AlongTime, "batch": PerBatch}


def rows_per_step(steps: Sequence[slice]) -> list[int]:
    """Return the number of rows of each time step."""
    return [step.stop - step.start for step in steps]


def grown(m: Tensor, rows: int) -> Tensor:
    """Return m (slots, ·) with at least `rows` slots, the new ones zero."""
    return torch.cat([m, m.new_zeros(max(0, rows - len(m)), m.shape[1])])
