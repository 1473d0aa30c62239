"""Forward and backward pass of a run of stages in plain torch: Algorithms 1 and 2 on any device and dtype.

Letters: B batch, i in_features, n out_features.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from ..dropout import draw_key, keep_mask, keep_scale, key_at
from .activations import IDENTITY
from .stage import Stage

Stages = tuple[Stage, ...]
Parameters = Sequence[Any]  # tensors; None for a bias that is not there


class SavedStage(NamedTuple):
    """What a backward pass needs: x (B, i), pre-activation h and keep = mask times scale (B, n), or None."""

    x: Tensor
    h: Tensor | None
    keep: Tensor | None


def push(stages: Stages, x: Tensor, parameters: Parameters) -> tuple[Tensor, list[SavedStage]]:
    """Forward: the output, and what each stage saves. parameters: a weight and a bias per stage."""
    key = draw_key() if any(stage.p for stage in stages) else 0
    saved = []
    for depth, stage in enumerate(stages):
        h = nn.functional.linear(x, *parameters[2 * depth : 2 * depth + 2])
        z, keep = stage.activation.apply(h), None
        if stage.p:
            mask = keep_mask((h.shape[0], h.shape[1]), stage.p, key_at(key, depth), h.device)
            keep = mask.to(h.dtype) * keep_scale(stage.p)
            z = z * keep
        saved.append(SavedStage(x, None if stage.activation is IDENTITY else h, keep))
        x = z
    return x, saved


def pull(
    stages: Stages, saved: list[SavedStage], weights: Sequence[Tensor], grad: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Backward: ∂ℓ/∂x and the gradients of a weight and a bias per stage.

    Memories are stored last, so that an error in any stage leaves all of them as they were.
    """
    gradients: list[Tensor] = []
    memories = []
    for stage, weight, (x, h, keep) in reversed(list(zip(stages, weights, saved, strict=True))):
        sparse = stage.sparse
        grad_z = grad if keep is None else grad * keep
        grad_h = grad_z if h is None else stage.activation.grad(grad_z, h)
        g = grad_h
        if sparse is not None and sparse.enabled:
            g, m = sparse.estimate(grad_h)
            memories.append((sparse, m))
        dense_bias = sparse is not None and sparse.dense_bias
        grad_bias = (grad_h if dense_bias else g).sum(0)
        grad, grad_weight = g @ weight, g.T @ x  # ∂ℓ/∂x, ∂ℓ/∂W
        gradients = [grad_weight, grad_bias, *gradients]
    for sparse, m in memories:
        sparse.finish(m)
    return grad, gradients
