"""Sparsifying functions S of the paper (Definition 3): which k entries of a gradient are propagated.

Letters: B batch, n width (out_features), k kept. A sparsifier maps v (B, ..., n) to a tensor of that shape.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Sparsifier = Callable[[Tensor, int], Tensor]


def entries_kept(r: float, out_features: int) -> int:
    """Return k, the number of entries that a sparse ratio r keeps of a layer's width: at least one."""
    return max(1, round(r * out_features))


def largest(magnitude: Tensor, k: int) -> Tensor:
    """Return indices (..., k) of the k largest entries of the last dimension, ties to the lowest index."""
    width = magnitude.shape[-1]
    if not 1 <= k <= width:
        raise ValueError(f"k must lie between 1 and the width {width}, got {k}")
    # torch.topk picks ties differently by build, device and k; a stable sort has one answer.
    return magnitude.sort(dim=-1, descending=True, stable=True).indices[..., :k]


def top_k(v: Tensor, k: int) -> Tensor:
    """Keep the k entries of largest magnitude of each row (the paper's top_k), zeros elsewhere."""
    return kept(v, v.abs(), k)


def unified_top_k(v: Tensor, k: int) -> Tensor:
    """Keep the same k columns for the batch, those of largest sums of magnitudes (meProp's unified top-k)."""
    return kept(v, v.abs().sum(dim=0, keepdim=True), k)


def kept(v: Tensor, magnitude: Tensor, k: int) -> Tensor:
    """Return v where magnitude, of as many rows or one for all, is among the k largest of its row; else 0."""
    chosen = torch.zeros_like(magnitude, dtype=torch.bool).scatter_(-1, largest(magnitude, k), True)
    return v.where(chosen, 0)


# A row of a linear layer is an example, a position and a pooled vector at once; convolutions tell them apart.
SPARSIFIERS: dict[str, Sparsifier] = {
    "per_example": top_k,
    "per_position": top_k,
    "pooled": top_k,
    "unified": unified_top_k,
}
