"""Embeddings with a row-sparse gradient, of the rows that a batch looked up: alone, or before a chain.

Letters: B batch, F tokens an example, N lookups, V rows of the table, E their width, n outputs of the first
stage, U distinct tokens of a batch.
"""

from typing import Protocol, TypeGuard, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..buffers import address, empty, plain, uses_kernel, zeros
from ..kernels import embedding as kernels
from ..kernels import parallel
from ..layers import with_reasons
from ..row_sparse import Parts, RowSparseGradient
from ..torch_compat import SGEMM, Context, Converted, eager, eager_forward


class RowEmbedding(Converted, nn.Embedding):
    """nn.Embedding whose ∂ℓ/∂W is row-sparse, for the baseline and the sparse methods alike.

    An optimizer that takes rows updates those looked up and leaves the others to their momentum, as with a
    dense gradient. `adopt` converts in place.
    """

    plain = nn.Embedding

    @classmethod
    def adopt(cls, embedding: nn.Embedding) -> "RowEmbedding":
        """Return the same object under this class, with its parameter, hooks and state_dict key."""
        embedding.__class__ = cls
        return cast(RowEmbedding, embedding)

    @eager_forward
    def forward(self, ids: Tensor) -> Tensor:
        """Return x (..., E) of ids (...)."""
        weight = self.weight
        learns = torch.is_grad_enabled() and weight.requires_grad and not ids.is_nested
        if learns and has_ordinary_rows(self) and uses_kernel(weight) and ids.numel():
            return RowLookup.apply(self.padding_idx, ids, weight)
        return super().forward(ids)


class LookupContext(Context, Protocol):
    padding: int | None
    rows: int


class RowLookup(torch.autograd.Function):
    """A lookup as an autograd function, whose backward pass sums ∂ℓ/∂x by token."""

    @staticmethod
    def forward(ctx: LookupContext, padding: int | None, ids: Tensor, weight: Tensor) -> Tensor:
        ctx.padding, ctx.rows = padding, len(weight)
        ctx.save_for_backward(ids)
        return nn.functional.embedding(ids, weight)

    @staticmethod
    @eager
    @with_reasons
    @once_differentiable
    def backward(ctx: LookupContext, grad: Tensor) -> tuple[None, None, Tensor]:
        (ids,), V = ctx.saved_tensors, ctx.rows
        grad_x = plain(grad.reshape(-1, grad.shape[-1]))
        tokens = ids.reshape(-1).to(torch.int32).contiguous()
        N, E = grad_x.shape
        seen, (numbers, unique) = zeros(V + 1, 2, dtype=torch.int32), empty(2, N, dtype=torch.int32)
        scratch = seen.data_ptr(), numbers.data_ptr(), unique.data_ptr()
        U = kernels.number_all(tokens.data_ptr(), N, V, *scratch)
        rows, source = empty(U, E), address(grad_x, (N, E), "the gradient of an embedding's output")
        kernels.gradient_from_rows(
            source, numbers.data_ptr(), rows.data_ptr(), N, 1, E, U, parallel.threads()
        )
        return None, None, gradient_of_table(unique[:U], rows, V, ctx.padding)


def gradient_of_table(tokens: Tensor, rows: Tensor, V: int, padding: int | None) -> RowSparseGradient:
    """Return ∂ℓ/∂table from distinct tokens (U) and their rows (U, E); that of the padding is zero."""
    if padding is not None:
        rows.masked_fill_((tokens == padding).unsqueeze(1), 0)
    parts = Parts(tokens.long(), rows)
    return RowSparseGradient.wrap((V, rows.shape[1]), rows.dtype, rows.device, parts)


class Lookup:
    """An embedding before a chain, for up to `capacity` examples; x (B, F E) is the chain's input."""

    def __init__(self, V: int, E: int, padding: int | None, inputs: int, n: int, capacity: int):
        self.V, self.E, self.padding, self.n = V, E, padding, n
        self.F, self.room = inputs // E, 2 * capacity
        self.x, self.shared = empty(capacity, inputs), empty(self.room, n)
        self.seen = zeros(V + 1, 2, dtype=torch.int32)
        self.tokens, self.numbers, self.unique = empty(3, capacity * self.F, dtype=torch.int32)

    def forward(self, ids: Tensor, table: int, weight: int, z: int) -> None:
        """Fill x, and z (B, n) = x weightᵀ; IndexError for a token that is not in the table."""
        B, count, tokens = len(ids), ids.numel(), self.tokens.data_ptr()
        given, many = (ids.data_ptr(), tokens, table, self.x.data_ptr(), count), parallel.threads()
        if not kernels.gather(*given, self.V, self.E, many):
            wrong = ids[(ids < 0) | (ids >= self.V)][0]
            raise IndexError(f"token {wrong} is not in the embedding, which has {self.V} rows")
        scratch = (t.data_ptr() for t in (self.seen, self.numbers, self.shared))
        sizes, blas = (B, self.F, self.V, self.E, self.n), (SGEMM, many)
        kernels.first_product(tokens, table, self.x.data_ptr(), weight, z, *sizes, *scratch, self.room, *blas)

    def gradient(
        self, B: int, weight: int, entries: tuple[int, int, int] | None, grad_x: Tensor | None
    ) -> Tensor:
        """Return ∂ℓ/∂table after the backward pass of the first stage, from ∂ℓ/∂x or from its entries.

        entries: addresses of values and columns (B, k), and k.
        """
        count, numbers = B * self.F, self.numbers.data_ptr()
        scratch = (self.seen.data_ptr(), numbers, self.unique.data_ptr())
        U = kernels.number_all(self.tokens.data_ptr(), count, self.V, *scratch)
        rows = empty(U, self.E)
        if entries is None:
            assert grad_x is not None
            sizes = (B, self.F, self.E, U)
            kernels.gradient_from_rows(
                grad_x.data_ptr(), numbers, rows.data_ptr(), *sizes, parallel.threads()
            )
        else:
            values, columns, k = entries
            factors, of = (values, columns, numbers, weight), (B, self.F, self.E, self.n, k, U)
            kernels.gradient_from_factors(*factors, rows.data_ptr(), *of, parallel.threads())
        return gradient_of_table(self.unique[:U], rows, self.V, self.padding)


def keeps_rows(module: nn.Module) -> TypeGuard[nn.Embedding]:
    """Return whether a module is an embedding that RowEmbedding can replace."""
    return type(module) is nn.Embedding and module.weight.requires_grad and has_ordinary_rows(module)


def has_ordinary_rows(embedding: nn.Embedding) -> bool:
    """Return whether an embedding does nothing but look up."""
    known = type(embedding) in (nn.Embedding, RowEmbedding) and "weight" in embedding._parameters
    return known and embedding.max_norm is None and not embedding.scale_grad_by_freq and not embedding.sparse
