"""What a convolution may keep: how the rows of ∂ℓ/∂h compete.

Letters: R rows, F maps, T positions, k kept. A row is the gradient of all maps at one position of an example.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..buffers import uses_kernel
from ..kernels.entries import keep_largest
from ..sparsifiers import top_k, unified_top_k


def flat_top_k(v: Tensor, k: int, example: Tensor, positions: int) -> Tensor:
    """The k T largest of all F x T entries of each example (meProp-CNN); ties go to the first position."""
    sizes = example.bincount()
    within = torch.arange(len(v), device=v.device) - (sizes.cumsum(0) - sizes)[example]
    blocks = v.new_zeros(len(sizes), int(sizes.max()), v.shape[1])
    blocks[example, within] = v
    kept = largest_of_rows(blocks.flatten(1), min(k * positions, blocks[0].numel()))
    return kept.view_as(blocks)[example, within]


def row_top_k(v: Tensor, k: int, example: Tensor, positions: int) -> Tensor:
    """The k largest maps of each row."""
    return largest_of_rows(v, k)


def largest_of_rows(v: Tensor, k: int) -> Tensor:
    """top_k, by kernel where one can read v (R, n)."""
    if not uses_kernel(v):
        return top_k(v, k)
    out = torch.empty_like(v)
    keep_largest(v.numpy(), k, out.numpy())
    return out


def unified_maps(v: Tensor, k: int, example: Tensor, positions: int) -> Tensor:
    """The same k maps in all rows of the batch."""
    return unified_top_k(v, k)


class Selection(NamedTuple):
    """What competes for being kept: the sparsifier takes rows v (R, F), k, the example (R) of each row, T.

    pooled: the entries behind the maximum over time compete, not those before it.
    """

    sparsifier: Callable[..., Tensor]
    pooled: bool = False


SELECTIONS = {
    "per_example": Selection(flat_top_k),
    "per_position": Selection(row_top_k),
    "pooled": Selection(row_top_k, pooled=True),
    "unified": Selection(unified_maps),
}
