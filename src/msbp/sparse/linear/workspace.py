"""A pass of a batch through a run of stages by kernel: one call forward, one call backward.

Letters: B batch, i in_features, n out_features, k kept.
"""

from collections.abc import Iterator
from ctypes import memmove

import numpy as np
import torch
from torch import Tensor, nn

from ..blas import SGEMM
from ..dropout import draw_key
from ..factored import Factors
from ..kernels import layout
from ..kernels.backward import SCRATCH_ROWS, backward, scratch_stride
from ..kernels.forward import forward
from .activations import RELU
from .buffers import Buffers
from .lookup import Lookup
from .stage import Stage

Gradient = Tensor | Factors | None


class Workspace:
    """Where a batch of up to `capacity` rows is worked on; it holds what the backward pass needs."""

    def __init__(
        self,
        stages: tuple[Stage, ...],
        addresses: list[int],
        capacity: int,
        embedding: nn.Embedding | None = None,
    ):
        self.stages, self.capacity, self.width = stages, capacity, stages[-1].linear.out_features
        self.table = table = np.zeros(len(stages), layout.STAGE)
        self.address = table.ctypes.data
        self.column = {name: table[name] for name in layout.STAGE.names or ()}
        self.weights = addresses[::2]  # and the embedding's table
        self.gradients: list[Gradient] | None = None  # room for those of the next backward pass
        self.trainable = tuple(address != 0 for address in addresses)
        last = len(stages) - 1
        self.parts: list[Buffers] = []
        for at, stage in enumerate(stages):
            below = self.parts[-1] if self.parts else None
            self.parts.append(Buffers(stage, at, table, capacity, below, at == last))
            table["weight"][at] = addresses[2 * at]
            table["bias"][at] = addresses[2 * at + 1] or self.parts[at].new("bias", 1).data_ptr()
        self.sparse_parts = [part for part in self.parts if part.sparse is not None]
        self.dropouts = [(at, stage.dropout) for at, stage in enumerate(stages) if stage.dropout is not None]
        self.dense = list(self._dense_gradients())
        self.lookup = None
        if embedding is not None:
            self.lookup = Lookup(embedding, self.parts[0], stages[0].linear.in_features, capacity)
            self.parts[0].x = self.lookup.x
        self.copy = 0  # where x is copied to
        if embedding is None and self.parts[0].sparse is not None:
            self.parts[0].x = own = torch.empty(capacity, stages[0].linear.in_features)
            self.copy = own.data_ptr()
        self.reads_out = stages[-1].activation is RELU
        widest = max(stage.linear.out_features for stage in stages)
        self.scratch = torch.empty(SCRATCH_ROWS * scratch_stride(widest), dtype=torch.uint8)
        self.scratch_address = self.scratch.data_ptr()

    def _dense_gradients(self) -> Iterator[tuple[int, np.ndarray, int, tuple[int, ...]]]:
        """Those that are tensors: index among all, where the address goes, at which stage, and the shape."""
        for at, (stage, part) in enumerate(zip(self.stages, self.parts, strict=True)):
            n, i = stage.linear.out_features, stage.linear.in_features
            if part.sparse is None:
                yield 2 * at, self.column["grad_weight"], at, (n, i)
            if self.trainable[2 * at + 1]:
                yield 2 * at + 1, self.column["grad_bias"], at, (n,)

    def forward(self, x: Tensor, needs: tuple[bool, ...]) -> Tensor:
        """The output (B, n) of the last stage, a tensor of its own.

        needs: whether the backward pass is to give the gradients of a weight and a bias per stage.
        """
        self.needs, self.gradients = needs, self._allocate(needs)
        column, B = self.column, x.shape[0]
        out = torch.empty(B, self.width)
        column["x"][0], column["z"][-1] = self._keep(x) if needs[0] else x.data_ptr(), out.data_ptr()
        drops = False
        for depth, dropout in self.dropouts:
            column["p"][depth] = p = dropout.p if dropout.training else 0.0
            drops |= p > 0
        given = 0
        if self.lookup is not None:
            given, column["x"][0] = 1, self.lookup.x.data_ptr()
            self.lookup.forward(x, self.weights[-1], self.weights[0], int(column["z"][0]))
        forward(self.address, len(self.stages), B, draw_key() if drops else 0, SGEMM, given)
        return out

    def _keep(self, x: Tensor) -> int:
        """Where x lies while the weight's gradient may wait as factors: nobody else can write there."""
        if self.copy:
            memmove(self.copy, x.data_ptr(), x.nbytes)
        return self.copy or x.data_ptr()

    def _allocate(self, needs: tuple[bool, ...]) -> list[Gradient]:
        """Tensors for the dense gradients that are needed; their addresses go into the table."""
        gradients: list[Gradient] = [None] * len(needs)
        for at, addresses, depth, shape in self.dense:
            if needs[at]:
                gradients[at] = gradient = torch.empty(*shape)
                addresses[depth] = gradient.data_ptr()
            else:
                addresses[depth] = 0
        return gradients

    def backward(
        self,
        grad: Tensor,
        x: Tensor,
        out: Tensor | None,
        lease: object,
        needs_x: bool = False,
    ) -> tuple[Tensor | None, list[Gradient]]:
        """∂ℓ/∂x, and the gradients of a weight and a bias per stage, None where none is needed.

        The weight of a sparse stage gets Factors, which keep the lease on this workspace.
        """
        column, B = self.column, x.shape[0]
        gradients, self.gradients = self.gradients, None
        if gradients is None:  # the graph was retained
            gradients = self._allocate(self.needs)
            for part in self.sparse_parts:
                part.renew_factors()
        if out is not None:
            column["z"][-1] = out.data_ptr()
        grad_x = torch.empty_like(x) if needs_x else None
        looked_up = self.lookup if self.lookup is not None and self.needs[-1] else None
        below = grad_x if looked_up is None else looked_up.grad_x
        column["grad_x"][0] = 0 if below is None else below.data_ptr()
        for part in self.sparse_parts:
            part.find_memory()
        bad = backward(self.address, len(self.stages), B, grad.data_ptr(), SGEMM, self.scratch_address)
        if bad:
            self.parts[bad - 1].refuse()
        for part in self.sparse_parts:
            part.finish(B)
            if self.needs[part.at]:
                gradients[part.at] = part.factors(B, lease)
        if looked_up is not None:
            gradients[-1] = looked_up.gradient(self.weights[0])
        return grad_x, gradients
