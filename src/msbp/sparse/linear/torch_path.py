"""Forward and backward pass of a chain of stages in plain torch: Algorithms 1 and 2 on any device and dtype.

Letters: B batch, i in_features, n out_features, k kept.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..dropout import draw_key, keep_mask, keep_scale, key_at
from .stage import Stage

Stages = tuple[Stage, ...]
Parameters = Sequence[Any]  # tensors; None for a bias that is not there


class SavedStage(NamedTuple):
    """Tensors of a stage for the backward pass: x (B, i), and ∂z/∂h (B, n) or None where it is 1."""

    x: Tensor
    slope: Tensor | None


def push(stages: Stages, x: Tensor, parameters: Parameters) -> tuple[Tensor, list[SavedStage]]:
    """Forward: return the output and the saved tensors of each stage, for a weight and a bias per stage."""
    key = draw_key() if any(stage.p for stage in stages) else 0
    saved = []
    for depth, stage in enumerate(stages):
        h = nn.functional.linear(x, *parameters[2 * depth : 2 * depth + 2])
        z, slope = stage.activation.apply(h), stage.activation.slope(h)
        if stage.p:
            mask = keep_mask((h.shape[0], h.shape[1]), stage.p, key_at(key, depth), h.device)
            keep = mask.to(h.dtype) * keep_scale(stage.p)
            z, slope = z * keep, keep if slope is None else slope * keep
        saved.append(SavedStage(x, slope))
        x = z
    return x, saved


def pull(
    stages: Stages, kept: Sequence[int], saved: Sequence[SavedStage], weights: Sequence[Tensor], grad: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Backward: return ∂ℓ/∂x and the gradients of a weight and a bias per stage.

    kept: k of each stage, 0 for one that propagates everything. Memories are stored last. A gradient that is
    not finite is propagated whole, as by torch, with all memories unchanged.
    """
    gradients: list[Tensor] = []
    memories = []
    top = grad
    for stage, k, weight, (x, slope) in reversed(list(zip(stages, kept, weights, saved, strict=True))):
        # zero times an infinite gradient would be NaN, where torch's activations have zero
        grad_h = grad if slope is None else torch.where(slope == 0, 0, grad * slope)
        g, sparse = grad_h, stage.sparse
        if k and sparse is not None:
            estimated = sparse.estimate(grad_h, k)
            if estimated is None:
                return pull(stages, [0] * len(stages), saved, weights, top)
            g, m = estimated
            memories.append((sparse, m))
        dense_bias = sparse is not None and sparse.dense_bias
        grad_bias = (grad_h if dense_bias else g).sum(0)
        grad, grad_weight = g @ weight, g.T @ x  # ∂ℓ/∂x, ∂ℓ/∂W
        gradients = [grad_weight, grad_bias, *gradients]
    for sparse, m in memories:
        sparse.finish(m)
    return grad, gradients
