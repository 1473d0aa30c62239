"""An embedding in front of a chain, as part of the chain's node.

Letters: B batch, F tokens an example, V rows of the table, E their width, n outputs of the first stage,
U distinct tokens of a batch.
"""

import torch
from torch import Tensor, nn

from ..blas import SGEMM
from ..factored import Factors
from ..kernels import embedding as kernels
from .buffers import Buffers


class Lookup:
    """Where up to `capacity` examples are looked up; x (B, F E) is the input of the first stage."""

    def __init__(self, embedding: nn.Embedding, first: Buffers, inputs: int, capacity: int):
        self.V, self.E, self.padding = (
            embedding.num_embeddings,
            embedding.embedding_dim,
            embedding.padding_idx,
        )
        self.F, self.first, self.room = inputs // self.E, first, 2 * capacity
        self.x = torch.empty(capacity, inputs)
        self.shared = torch.empty(self.room, first.n)
        self.seen = torch.zeros(self.V + 1, 2, dtype=torch.int32)
        self.numbers, self.found = torch.empty(2, capacity * self.F, dtype=torch.int32)
        self.grad_x = torch.empty(capacity, inputs) if first.sparse is None else None

    def forward(self, tokens: Tensor, table: int, weight: int, z: int) -> None:
        """Fill x, and z (B, n) = x weightᵀ; IndexError for a token that is not in the table."""
        self.tokens = tokens = tokens.int()
        B = len(tokens)
        if not kernels.gather(tokens.data_ptr(), table, self.x.data_ptr(), B * self.F, self.V, self.E):
            wrong = tokens[(tokens < 0) | (tokens >= self.V)][0]
            raise IndexError(f"token {wrong} is not in the embedding, which has {self.V} rows")
        scratch = (t.data_ptr() for t in (self.seen, self.numbers, self.shared))
        sizes = (B, self.F, self.V, self.E, self.first.n)
        addresses = (tokens.data_ptr(), table, self.x.data_ptr(), weight, z)
        kernels.first_product(*addresses, *sizes, *scratch, self.room, SGEMM)

    def gradient(self, weight: int) -> Factors:
        """∂ℓ/∂table after the backward pass of the first stage: a row for each distinct token."""
        tokens, first, numbers, E = self.tokens, self.first, self.numbers.data_ptr(), self.E
        B, count = len(tokens), tokens.numel()
        scratch = (self.seen.data_ptr(), numbers, self.found.data_ptr())
        U = kernels.number_all(tokens.data_ptr(), count, self.V, *scratch)
        rows, columns = torch.empty(U, E), self.found[:U].clone().view(U, 1)
        if self.grad_x is not None:
            kernels.gradient_from_rows(self.grad_x.data_ptr(), numbers, rows.data_ptr(), B, self.F, E, U)
        else:
            entries = first.values.data_ptr(), first.columns.data_ptr()
            sizes = (B, self.F, E, first.n, first.values.shape[1], U)
            kernels.gradient_from_factors(*entries, numbers, weight, rows.data_ptr(), *sizes)
        counts = torch.ones(U, 1) if self.padding is None else (columns != self.padding).float()
        return Factors(counts, columns, rows, self.V)
