"""Sparsifying functions S of the paper (Definition 3): which k entries of a gradient are propagated.

Letters: B batch, n width (out_features), k kept. A sparsifier maps v (B, n) to a tensor of the same shape.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Sparsifier = Callable[[Tensor, int], Tensor]


def entries_kept(r: float, out_features: int) -> int:
    """k, the number of entries that a sparse ratio r keeps of a layer's width: at least one."""
    return max(1, round(r * out_features))


def largest(magnitude: Tensor, k: int) -> Tensor:
    """Indices (..., k) of the k largest entries along the last dimension; ties go to the lowest index."""
    width = magnitude.shape[-1]
    if not 1 <= k <= width:
        raise ValueError(f"k must lie between 1 and the width {width}, got {k}")
    # torch.topk picks ties differently by build, device and k; a stable sort has one answer.
    return magnitude.sort(dim=-1, descending=True, stable=True).indices[..., :k]


def top_k(v: Tensor, k: int) -> Tensor:
    """The k entries of largest magnitude of each row (the paper's top_k), zeros elsewhere."""
    columns = largest(v.abs(), k)
    return torch.zeros_like(v).scatter_(-1, columns, v.gather(-1, columns))


def unified_top_k(v: Tensor, k: int) -> Tensor:
    """The same k columns for the whole batch, by the largest sum of magnitudes (meProp's unified top-k)."""
    columns = largest(v.abs().sum(dim=0), k)
    return torch.zeros_like(v).index_copy_(1, columns, v[:, columns])


# A row of a linear layer is an example, a position and a pooled vector at once; convolutions tell them apart.
SPARSIFIERS: dict[str, Sparsifier] = {
    "per_example": top_k,
    "per_position": top_k,
    "pooled": top_k,
    "unified": unified_top_k,
}
