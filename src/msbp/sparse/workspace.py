"""A pass of a batch through a run of stages by kernel: one call forward, one call backward.

Letters: B batch, i in_features, n out_features, k kept.
"""

from collections.abc import Iterable
from itertools import repeat

import numpy as np
import torch
from torch import Tensor

from .activations import IDENTITY
from .blas import SGEMM
from .buffers import Buffers
from .factored import Factors
from .kernels import layout
from .kernels.backward import NARROW, SCRATCH_ROWS, backward, scratch_stride
from .kernels.forward import forward
from .memory import SlotMemory
from .stage import Stage

Gradient = Tensor | Factors | None


class Workspace:
    """Where a batch of up to `capacity` rows is worked on; what the backward pass needs stays here in between."""

    def __init__(self, stages: tuple[Stage, ...], addresses: list[int], capacity: int):
        self.stages, self.capacity = stages, capacity
        self.table = table = np.zeros(len(stages), layout.STAGE)
        self.address = table.ctypes.data
        self.column = {name: table[name] for name in layout.STAGE.names or ()}
        last = len(stages) - 1
        self.parts = [Buffers(stage, table[at], capacity, at == last) for at, stage in enumerate(stages)]
        for at, part in enumerate(self.parts):
            table["weight"][at] = addresses[2 * at]
            table["bias"][at] = addresses[2 * at + 1] or part.new("bias", 1, stages[at].linear.out_features).data_ptr()
        for below, above in zip(range(last), range(1, last + 1), strict=True):
            table["x"][above] = table["z"][below]
            if self.parts[above].sparse is None and stages[above].linear.out_features > NARROW:
                if not table["grad_h"][below]:
                    self.parts[below].new("grad_h", capacity, stages[below].linear.out_features)
                table["grad_x"][above] = table["grad_h"][below]
        self.reads_out = stages[-1].activation is not IDENTITY and not stages[-1].activation.needs_slope
        self.fresh = True  # factors of an earlier backward pass do not lie in its buffers
        widest = max(stage.linear.out_features for stage in stages)
        self.scratch = torch.empty(SCRATCH_ROWS * scratch_stride(widest), dtype=torch.uint8)

    def forward(self, x: Tensor, key: int) -> Tensor:
        """The output (B, n) of the last stage, a tensor of its own."""
        column, stages = self.column, self.stages
        out = torch.empty(len(x), stages[-1].linear.out_features)
        column["x"][0], column["z"][-1] = x.data_ptr(), out.data_ptr()
        for depth, stage in enumerate(stages):
            column["p"][depth] = stage.p
        forward(self.address, len(stages), len(x), key, SGEMM)
        return out

    def backward(
        self,
        grad: Tensor,
        x: Tensor,
        out: Tensor | None,
        lease: object,
        needs: Iterable[bool] = repeat(True),
        needs_x: bool = False,
    ) -> tuple[Tensor | None, list[Gradient]]:
        """∂ℓ/∂x, and the gradients of a weight and a bias per stage, None where none is needed.

        The weight of a sparse stage gets Factors, which keep the lease on this workspace.
        """
        B, column, wanted = len(x), self.column, iter(needs)
        if not self.fresh:  # the graph was retained
            self._renew()
        self.fresh = False
        if out is not None:
            column["z"][-1] = out.data_ptr()
        grad_x = torch.empty_like(x) if needs_x else None
        column["grad_x"][0] = 0 if grad_x is None else grad_x.data_ptr()
        gradients: list[Gradient] = []
        for depth, part in enumerate(self.parts):
            need, need_bias = next(wanted), next(wanted)
            if part.sparse is None:
                gradients.append(self._dense("grad_weight", depth, part.shape, need))
            else:
                self._find_memory(depth)
                gradients.append(self._factors(depth, x, lease) if need else None)
            gradients.append(self._dense("grad_bias", depth, part.shape[:1], need_bias and part.biased))
        bad = backward(self.address, len(self.parts), B, grad.data_ptr(), SGEMM, self.scratch.data_ptr())
        if bad:
            self.stages[bad - 1].sparse.refuse()
        for part in self.parts:
            if part.sparse is not None:
                part.sparse.finish(self._overflow(part, B))
        return grad_x, gradients

    def _renew(self) -> None:
        for part in self.parts:
            if part.sparse is not None:
                part.renew_factors()

    def _dense(self, name: str, depth: int, shape: tuple[int, ...], needed: bool) -> Tensor | None:
        gradient = torch.empty(shape) if needed else None
        self.column[name][depth] = 0 if gradient is None else gradient.data_ptr()
        return gradient

    def _factors(self, depth: int, x: Tensor, lease: object) -> Factors:
        part, B = self.parts[depth], len(x)
        below = x if depth == 0 else self.parts[depth - 1].z
        if B == self.capacity:
            return Factors(part.values, part.columns, below, lease)
        return Factors(part.values[:B], part.columns[:B], below[:B], lease)

    def _find_memory(self, depth: int) -> None:
        """Look up where the memory is; it may have been moved, loaded or grown since the last pass."""
        memory = self.parts[depth].sparse.memory
        if memory is not None:
            m = memory._buffers["m"]
            self.column["memory"][depth], self.column["slots"][depth] = m.data_ptr(), len(m)

    def _overflow(self, part: Buffers, B: int) -> Tensor | None:
        """The memory of a batch that has more rows than there were slots; the kernel has stored any other."""
        memory = part.sparse.memory
        return part.memory_next[:B] if isinstance(memory, SlotMemory) and len(memory.m) < B else None
