"""Workspace: the buffers in which one batch passes through a chain by kernel, forwards and backwards.

Letters: B batch, i in_features, n out_features, k kept, u rows of a weight that have a gradient.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..buffers import CPU, address, address_of, arange, empty, zeros
from ..dropout import draw_key, keep_scale, probability
from ..kernels import parallel
from ..kernels.chain_backward import NARROW, backward, weight_gradients
from ..kernels.chain_forward import RECORD_WORDS, STAGE, forward
from ..kernels.chain_select import scratch_bytes
from ..kernels.select import FIRST_DISTANCE
from ..memory import MEMORIES, SlotMemory
from ..row_sparse import Parts, RowSparseGradient
from ..torch_compat import SGEMM
from .embedding import Lookup
from .stage import IDENTITY, RELU, SavedStage, Stage, backward_stages, lowest

KINDS = {kind: code for code, kind in enumerate([type(None), *MEMORIES.values()])}
INT32 = torch.int32
Table = tuple[int, int, int | None]  # rows and width of an embedding's table, and the row of padding
WORDS = len(RECORD_WORDS)
(
    WEIGHT, BIAS, X, Z, P, GAMMA, MEMORY, SLOTS, STARTS, TOUCHED, INDICES, ROWS,
    GRAD_WEIGHT, GRAD_BIAS, GRAD_X,
) = (
    RECORD_WORDS[name]
    for name in (
        "weight", "bias", "x", "z", "p", "gamma", "memory", "slots", "starts", "touched", "indices", "rows",
        "grad_weight", "grad_bias", "grad_x",
    )
)  # fmt: skip


class StageBuffers:
    """Buffers of one stage for up to `capacity` rows, and its record in the table that the kernels read."""

    def __init__(
        self, stage: Stage, n: int, i: int, record: np.void, capacity: int, below: "StageBuffers | None"
    ):
        self.stage, self.n, self.i, self.record = stage, n, i, record
        settings = stage.for_kernel()
        assert settings is not None
        k, self.memory = settings
        self.k = min(k, n)
        self.tensors: dict[str, Tensor] = {}  # owners of the record's addresses
        record["inputs"], record["outputs"], record["k"] = i, n, self.k
        record["activation"] = stage.activation.code
        self.slope = None
        if stage.activation.needs_slope or (stage.activation is IDENTITY and stage.dropout is not None):
            self.slope = self.new("slope", capacity, n)
        if below is not None:
            self.z = below.new("z", capacity, i)  # the output of the stage below
            record["x"] = self.z.data_ptr()
        if not self.k:
            self.new("grad_h", capacity, n)
            if n <= NARROW:
                self.new("columns", n, dtype=INT32).copy_(arange(n))
            elif below is not None:
                grad_h = below.tensors.get("grad_h")
                record["grad_x"] = (below.new("grad_h", capacity, i) if grad_h is None else grad_h).data_ptr()
            return
        self.per_slot = isinstance(self.memory, SlotMemory)
        self.new("values", capacity * self.k)
        self.new("columns", capacity * self.k, dtype=INT32)
        self.new("examples", capacity * self.k, dtype=INT32)
        self.new("weights", capacity * self.k)
        self.starts = self.new("starts", n + 2, dtype=INT32)
        assert stage.sparse is not None
        record["unified"], record["dense_bias"] = stage.sparse.unified, stage.sparse.dense_bias
        record["skip_zero_rows"] = stage.sparse.skip_zero_rows
        record["distance"], record["kind"] = FIRST_DISTANCE, KINDS[type(self.memory)]
        if stage.sparse.unified:
            self.new("grad_h", capacity, n)
        if self.memory is not None:
            self.memory_shape = torch.Size((0, 0))  # of m when it was last checked
            self.memory_next = self.new("memory_next", capacity if self.per_slot else 1, n)

    def new(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return a buffer whose address the record has under this name."""
        buffer = self.tensors[name] = zeros(*shape, dtype=dtype)
        self.record[name] = buffer.data_ptr()
        return buffer

    def find_memory(self, weight: Tensor) -> tuple[int, int]:
        """Return address and slots of the memory, which may have been moved, loaded, grown or replaced."""
        if self.memory is None:
            return 0, 0
        m = self.memory.held()
        pointer = address_of(m, self.memory_shape)
        if not pointer:
            m = self.memory.on(weight, self.n)
            self.memory_shape, sparse = m.shape, self.stage.sparse
            pointer = address(m, (len(m), self.n), "the memory", of=sparse and sparse.name)
        self.slots = self.memory_shape[0]
        return pointer, self.slots

    def finish(self, B: int) -> None:
        """Count the step; store the memory of a batch with more rows than slots, unlike the kernel."""
        sparse = self.stage.sparse
        assert sparse is not None
        sparse.finish(self.memory_next[:B] if self.per_slot and B > self.slots else None)


class Workspace:
    """Buffers for batches of up to `capacity` rows, in use from a forward pass to its backward pass."""

    def __init__(
        self,
        stages: tuple[Stage, ...],
        sizes: Sequence[tuple[int, int]],
        capacity: int,
        embedding: Table | None,
    ):
        self.stages, self.capacity, self.width = stages, capacity, sizes[-1][0]
        self.table = table = np.zeros(len(stages), STAGE)
        self.address = table.ctypes.data
        self.words = table.view(np.uint8).data.cast("q")  # the fastest way to write single numbers
        self.numbers = table.view(np.uint8).data.cast("d")
        self.parts: list[StageBuffers] = []
        for depth, (stage, (n, i)) in enumerate(zip(stages, sizes, strict=True)):
            below = self.parts[-1] if self.parts else None
            self.parts.append(StageBuffers(stage, n, i, table[depth], capacity, below))
        self.sparse_parts = [(depth, part) for depth, part in enumerate(self.parts) if part.k]
        self.dropouts = [(at, stage.dropout) for at, stage in enumerate(stages) if stage.dropout is not None]
        self.shapes = [*sizes] if embedding is None else [*sizes, embedding[:2]]
        # After dropout, torch lets the output be changed in place: the backward pass reads a copy.
        is_relu, drops = stages[-1].activation is RELU, stages[-1].dropout is not None
        self.reads_out = is_relu and not drops
        self.z = empty(capacity, self.width) if is_relu and drops else None
        self.low, self.saved_grad_x = 0, 0  # the first stage of a backward pass
        self.no_bias = zeros(max(n for n, _ in sizes))
        zero_bias = self.no_bias.data_ptr()
        self.no_bias_addresses = [  # none where the product itself is the output
            0 if part.stage.activation is IDENTITY and part.slope is None else zero_bias
            for part in self.parts
        ]
        self.lookup, self.grad_x = None, None
        if embedding is not None:
            V, E, padding = embedding
            n, i = sizes[0]
            self.lookup = Lookup(V, E, padding, i, n, capacity)
            self.grad_x = None if self.parts[0].k else empty(capacity, i)
        self.make_scratch(parallel.threads())

    def make_scratch(self, count: int) -> None:
        """Make the scratch memory of the backward pass for so many threads."""
        width = max(part.n for part in self.parts)
        self.scratch = empty(scratch_bytes(width, self.capacity, count), dtype=torch.uint8)
        self.scratch_address, self.threads = self.scratch.data_ptr(), count

    def forward(self, x: Tensor, B: int, addresses: Sequence[int]) -> Tensor:
        """Return the output (..., n) of the last stage for x: B rows, or the tokens of an embedding.

        addresses: of a weight and a bias (or 0) per stage, and of the embedding's table if there is one.
        """
        words, depths = self.words, len(self.stages)
        out = empty(*x.shape[:-1], self.width)
        for depth in range(depths):
            base = depth * WORDS
            words[base + WEIGHT] = addresses[2 * depth]
            words[base + BIAS] = addresses[2 * depth + 1] or self.no_bias_addresses[depth]
        words[base + Z] = out.data_ptr() if self.z is None else self.z.data_ptr()
        drops = False
        for depth, dropout in self.dropouts:
            self.numbers[depth * WORDS + P] = p = probability(dropout)
            drops |= p > 0
        given = 0
        if self.lookup is None:
            words[X] = x.data_ptr()
        else:
            given, words[X] = 1, self.lookup.x.data_ptr()
            self.lookup.forward(x, addresses[-1], addresses[0], words[Z])
        key, count = draw_key() if drops else 0, parallel.threads()
        forward(self.address, depths, B, key, SGEMM, given, count)
        if self.z is not None:
            out.view(B, -1).copy_(self.z[:B])
        return out

    def start_from(self, low: int) -> None:
        """Have the backward pass end at this stage, which then propagates nothing below it."""
        words = self.words
        words[self.low * WORDS + GRAD_X] = self.saved_grad_x
        self.low, self.saved_grad_x = low, words[low * WORDS + GRAD_X]
        words[low * WORDS + GRAD_X] = 0

    def backward(
        self,
        grad: Tensor,
        x: Tensor,
        B: int,
        out: Tensor | None,
        weights: Sequence[Tensor],
        needs: Sequence[bool],
        needs_x: bool,
    ) -> tuple[Tensor | None, list[Tensor | None]]:
        """Return ∂ℓ/∂x, and the gradients of a weight and a bias per stage and of the embedding's table.

        None where none is needed. The weight of a sparse stage gets a RowSparseGradient. A gradient that is
        not finite is propagated whole, as by torch, with memories unchanged.
        """
        words, count = self.words, parallel.threads()
        if count != self.threads:
            self.make_scratch(count)
        gradients: list[Tensor | None] = [None] * len(needs)
        top = address(grad, (*x.shape[:-1], self.width), "the gradient of a chain's output")
        lookup = self.lookup if self.lookup is not None and needs[-1] else None
        low = 0 if needs_x or lookup is not None else lowest(needs)
        if low != self.low:
            self.start_from(low)
        for depth in range(low, len(self.parts)):
            part = self.parts[depth]
            base, at, pointer = depth * WORDS, 2 * depth, 0
            if part.k:
                words[base + MEMORY], words[base + SLOTS] = part.find_memory(weights[depth])
                if part.memory is not None:
                    self.numbers[base + GAMMA] = part.memory.gamma
                words[base + STARTS] = part.starts.data_ptr() if needs[at] else 0
                words[base + ROWS] = 0
            elif needs[at]:
                gradients[at] = gradient = empty(part.n, part.i)
                pointer = gradient.data_ptr()
            words[base + GRAD_WEIGHT], pointer = pointer, 0
            if needs[at + 1]:
                gradients[at + 1] = gradient = empty(part.n)
                pointer = gradient.data_ptr()
            words[base + GRAD_BIAS] = pointer
        grad_x = empty(*x.shape) if needs_x else None
        below = self.grad_x if lookup is not None else grad_x
        words[GRAD_X] = 0 if below is None else below.data_ptr()
        first, depths = self.address + low * STAGE.itemsize, len(self.stages) - low
        if backward(first, depths, B, top, SGEMM, self.scratch_address, count):
            return self._whole(grad, x, B, out, weights, needs, needs_x)
        for depth, part in self.sparse_parts:
            if depth < low:
                continue
            part.finish(B)
            if needs[2 * depth]:
                base = depth * WORDS
                u = words[base + TOUCHED]
                indices, rows = empty(u, dtype=torch.int64), empty(u, part.i)
                words[base + INDICES], words[base + ROWS] = indices.data_ptr(), rows.data_ptr()
                gradients[2 * depth] = RowSparseGradient.wrap(
                    (part.n, part.i), torch.float32, CPU, Parts(indices, rows)
                )
        if self.sparse_parts:
            weight_gradients(first, depths, B, count)
        if lookup is not None:
            k, record = self.parts[0].k, self.table[0]
            entries = (int(record["values"]), int(record["columns"]), k) if k else None
            gradients[-1] = lookup.gradient(B, int(record["weight"]), entries, self.grad_x)
        return grad_x, gradients

    def _whole(
        self,
        grad: Tensor,
        x: Tensor,
        B: int,
        out: Tensor | None,
        weights: Sequence[Tensor],
        needs: Sequence[bool],
        needs_x: bool,
    ) -> tuple[Tensor | None, list[Tensor | None]]:
        """Return the gradients as torch would form them, without selection or memory."""
        saved = []
        z: Any = x.reshape(B, -1) if self.lookup is None else self.lookup.x[:B]
        for depth, part in enumerate(self.parts):
            slope = None if part.slope is None else part.slope[:B]
            inputs = z
            last = part is self.parts[-1]
            z = self.z if out is None else out.view(B, -1)
            z = self.parts[depth + 1].z[:B] if not last else None if z is None else z[:B]
            if part.stage.activation is RELU and z is not None:
                slope = (~(z <= 0)).to(z.dtype) * keep_scale(float(self.table[depth]["p"]))
            saved.append(SavedStage(inputs, slope))
        grad_x, formed = backward_stages(
            self.stages, [0] * len(saved), saved, weights[: len(saved)], grad.view(B, -1)
        )
        gradients: list[Tensor | None] = list(formed)
        if self.lookup is not None:
            table, tokens = zeros(self.lookup.V, self.lookup.E), x.reshape(-1)
            table.index_add_(0, tokens, grad_x.reshape(-1, self.lookup.E))
            if self.lookup.padding is not None:
                table[self.lookup.padding] = 0
            gradients.append(table)
        needed = [g if need else None for g, need in zip(gradients, needs, strict=True)]
        return grad_x.view(x.shape) if needs_x else None, needed
