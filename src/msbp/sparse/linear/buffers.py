"""Buffers of one stage, and its record in the table that the kernels read.

Letters: B batch, n out_features, k kept.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..factored import Factors
from ..kernels.backward import NARROW
from ..kernels.select import FIRST_DISTANCE
from ..memory import MEMORIES, SlotMemory
from .activations import IDENTITY
from .stage import Sparse, Stage

KINDS = {kind: code for code, kind in enumerate([type(None), *MEMORIES.values()])}


class Buffers:
    """Room for `capacity` rows. The record gets what does not change from pass to pass; `depth` is its place.

    `at` is the place of the weight among the parameters: a weight and a bias per stage.
    """

    values: Tensor
    columns: Tensor
    memory_next: Tensor
    m: Tensor | None  # where the memory was last
    x: Tensor | None  # the input, where it is a buffer of the workspace

    def __init__(
        self, stage: Stage, depth: int, table: np.ndarray, capacity: int, below: "Buffers | None", last: bool
    ):
        self.depth, self.at, self.capacity, self.below = depth, 2 * depth, capacity, below
        self.record, self.n = table[depth], stage.linear.out_features
        self.tensors: dict[str, Tensor] = {}
        self.sparse: Sparse | None = stage.sparse if stage.k else None
        record = self.record
        record["inputs"], record["outputs"], record["k"] = stage.linear.in_features, self.n, stage.k
        record["activation"] = stage.activation.code
        self.z = None if last else self.new("z", capacity)
        if stage.activation.needs_slope or (stage.activation is IDENTITY and stage.dropout is not None):
            self.new("slope", capacity)
        if self.sparse is None:
            self.new("grad_h", capacity)
            if self.n <= NARROW:
                self.new("columns", 1, dtype=torch.int32).copy_(torch.arange(self.n))
        else:
            self._sparsify(self.sparse)
        self.x = None if below is None else below.z
        if below is not None:
            record["x"] = below.record["z"]
            if self.sparse is None and self.n > NARROW:
                record["grad_x"] = below.record["grad_h"] or below.new("grad_h", capacity).data_ptr()

    def _sparsify(self, sparse: Sparse) -> None:
        record, memory = self.record, sparse.memory
        self.renew_factors()
        record["unified"], record["dense_bias"] = sparse.unified, sparse.dense_bias
        record["distance"] = FIRST_DISTANCE
        if sparse.unified:
            self.new("grad_h", self.capacity)
        record["kind"] = KINDS[type(memory)]
        self.memory, self.per_slot, self.m, self.slots = memory, isinstance(memory, SlotMemory), None, 0
        if memory is not None:
            record["gamma"] = memory.gamma
            self.memory_next = self.new("memory_next", self.capacity if self.per_slot else 1)

    def renew_factors(self) -> None:
        """Room for entries; whoever holds those of an earlier pass keeps them."""
        assert self.sparse is not None
        self.values = self.new("values", self.capacity, self.sparse.k)
        self.columns = self.new("columns", self.capacity, self.sparse.k, torch.int32)

    def new(self, name: str, rows: int, width: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
        """A buffer (rows, n), or of another width, that the record calls by name."""
        buffer = torch.zeros(rows, width or self.n, dtype=dtype)
        self.record[name] = buffer.data_ptr()
        self.tensors[name] = buffer
        return buffer

    def find_memory(self) -> None:
        """Look up where the memory is; it may have been moved, loaded or grown since the last pass."""
        if self.memory is None:
            return
        m: Any = self.memory._buffers["m"]  # nn.Module's own way to it takes a microsecond
        if m is not self.m:
            self.m, self.slots = m, len(m)
            self.record["slots"], self.record["memory"] = len(m), m.data_ptr()

    def factors(self, B: int, lease: object) -> Factors:
        """The weight's gradient as the backward pass of B rows left it."""
        x: Any = self.x
        if B == self.capacity == len(x):
            return Factors(self.values, self.columns, x, self.n, lease)
        return Factors(self.values[:B], self.columns[:B], x[:B], self.n, lease)

    def finish(self, B: int) -> None:
        """Count the step; store a memory that the kernel could not, of a batch with more rows than slots."""
        assert self.sparse is not None
        self.sparse.finish(self.memory_next[:B] if self.per_slot and B > self.slots else None)

    def refuse(self) -> None:
        """Report a gradient that is not finite."""
        assert self.sparse is not None
        self.sparse.refuse()
