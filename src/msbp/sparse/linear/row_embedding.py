"""RowEmbedding: an embedding table whose gradient is kept as the rows that a batch looked up.

Letters: N lookups, V rows of the table, E their width.
"""

from typing import Any, TypeGuard, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..eager import Converted, eager, eager_forward
from ..factored import Factors
from ..suited import by_kernel
from .node import hand_over


class RowEmbedding(Converted, nn.Embedding):
    """nn.Embedding whose ∂ℓ/∂W is never written as a table: its factors are an entry 1 a lookup, and ∂ℓ/∂x.

    So an optimizer that takes factors forms the rows looked up and leaves the others to their momentum, as on
    a dense gradient. Baseline and sparse methods alike have it; `adopt` makes it in place.
    """

    plain = nn.Embedding

    @classmethod
    def adopt(cls, embedding: nn.Embedding) -> "RowEmbedding":
        """The same object, parameter, hooks and state_dict key."""
        embedding.__class__ = cls
        return cast(RowEmbedding, embedding)

    @eager_forward
    def forward(self, ids: Tensor) -> Tensor:
        """x (..., E) of ids (...)."""
        if torch.is_grad_enabled() and self.weight.requires_grad and by_kernel(self.weight) and ids.numel():
            return RowLookup.apply(self, ids, self.weight)
        return super().forward(ids)


class RowLookup(torch.autograd.Function):
    """The node: forward looks up, backward hands on what came as factors."""

    @staticmethod
    def forward(ctx: Any, layer: RowEmbedding, ids: Tensor, weight: Tensor) -> Tensor:
        ctx.layer, ctx.rows = layer, len(weight)
        ctx.save_for_backward(ids)
        return nn.functional.embedding(ids, weight)

    @staticmethod
    @eager
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor | None]:
        (ids,), layer = ctx.saved_tensors, ctx.layer
        columns = ids.reshape(-1, 1).int()
        counts = torch.ones_like(columns) if layer.padding_idx is None else columns != layer.padding_idx
        # a copy, for the tensor that came may be the gradient of others, too
        rows = grad.reshape(-1, grad.shape[-1]).clone(memory_format=torch.contiguous_format)
        factors = Factors(counts.float(), columns, rows, ctx.rows)
        accumulator, _ = ctx.next_functions[-1]
        return None, None, hand_over(layer.weight, factors, accumulator)


def keeps_rows(module: nn.Module) -> TypeGuard[nn.Embedding]:
    """Whether a module is an embedding that RowEmbedding can stand in for."""
    return type(module) is nn.Embedding and module.weight.requires_grad and has_ordinary_rows(module)


def has_ordinary_rows(embedding: nn.Embedding) -> bool:
    """Whether looking up is all that an embedding does."""
    known = type(embedding) in (nn.Embedding, RowEmbedding) and "weight" in embedding._parameters
    return known and embedding.max_norm is None and not embedding.scale_grad_by_freq and not embedding.sparse
