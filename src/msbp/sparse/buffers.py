"""Buffers of one stage, and its record in the table that the kernels read.

Letters: B batch, n out_features, k kept.
"""

import numpy as np
import torch
from torch import Tensor

from .activations import IDENTITY
from .kernels import backward
from .memory import MEMORIES, SlotMemory
from .stage import Sparse, Stage

FIRST_DISTANCE = 2 << 23  # two octaves below the largest magnitude
KINDS = {kind: code for code, kind in enumerate([type(None), *MEMORIES.values()])}


class Buffers:
    """Room for B rows; the record gets every size, setting and address that does not change from pass to pass."""

    values: Tensor
    columns: Tensor
    memory_next: Tensor

    def __init__(self, stage: Stage, record: np.void, B: int, last: bool):
        self.record, self.B, self.tensors = record, B, {}
        linear, n = stage.linear, stage.linear.out_features
        self.shape, self.biased = (n, linear.in_features), linear.bias is not None
        self.sparse: Sparse | None = stage.sparse if stage.k else None
        record["inputs"], record["outputs"], record["k"] = linear.in_features, n, stage.k
        record["activation"] = stage.activation.code
        self.z = None if last else self.new("z", B, n)
        if stage.activation.needs_slope or (stage.activation is IDENTITY and stage.dropout is not None):
            self.new("slope", B, n)
        if self.sparse is not None:
            self._sparsify(self.sparse, n)
        else:
            self.new("grad_h", B, n)
            if n <= backward.NARROW:
                self.new("columns", 1, n, torch.int32).copy_(torch.arange(n))

    def _sparsify(self, sparse: Sparse, n: int) -> None:
        record, memory = self.record, sparse.memory
        self.renew_factors()
        record["unified"], record["dense_bias"] = sparse.unified, sparse.dense_bias
        record["distance"] = FIRST_DISTANCE
        if sparse.unified:
            self.new("grad_h", self.B, n)
        record["kind"] = KINDS[type(memory)]
        if memory is not None:
            record["gamma"] = memory.gamma
            self.memory_next = self.new("memory_next", self.B if isinstance(memory, SlotMemory) else 1, n)

    def renew_factors(self) -> None:
        """Room for entries; whoever holds those of an earlier pass keeps them."""
        assert self.sparse is not None
        self.values = self.new("values", self.B, self.sparse.k)
        self.columns = self.new("columns", self.B, self.sparse.k, torch.int32)

    def new(self, name: str, rows: int, width: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """A buffer that the record calls by name."""
        buffer = torch.zeros(rows, width, dtype=dtype)
        self.record[name] = buffer.data_ptr()
        self.tensors[name] = buffer
        return buffer
