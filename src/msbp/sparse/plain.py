"""Forward and backward pass of a run of stages in plain torch: Algorithms 1 and 2 on any device and dtype.

Letters: B batch, i in_features, n out_features.
"""

from typing import NamedTuple

from torch import Tensor, nn

from .activations import IDENTITY
from .dropout import draw_key, keep_mask, keep_scale, key_at
from .stage import Stage


class Saved(NamedTuple):
    """What a backward pass needs: input x (B, i), pre-activation h and keep = mask times scale (B, n), or None."""

    x: Tensor
    h: Tensor | None
    keep: Tensor | None


def push(stages: tuple[Stage, ...], x: Tensor) -> tuple[Tensor, list[Saved]]:
    """Forward: the output of the last stage and what each stage saves."""
    key = draw_key() if any(stage.p for stage in stages) else 0
    saved = []
    for depth, stage in enumerate(stages):
        h = nn.functional.linear(x, stage.linear.weight, stage.linear.bias)
        z, keep = stage.activation.apply(h), None
        if stage.p:
            mask = keep_mask((h.shape[0], h.shape[1]), stage.p, key_at(key, depth), h.device)
            keep = mask.to(h.dtype) * keep_scale(stage.p)
            z = z * keep
        saved.append(Saved(x, None if stage.activation is IDENTITY else h, keep))
        x = z
    return x, saved


def pull(stages: tuple[Stage, ...], saved: list[Saved], grad: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Backward: ∂ℓ/∂x and the gradients of the parameters in order.

    Memories are stored last, so that an error in any stage leaves all of them as they were.
    """
    gradients: list[Tensor] = []
    memories = []
    for stage, (x, h, keep) in zip(reversed(stages), reversed(saved), strict=True):
        linear, sparse = stage.linear, stage.sparse
        grad_z = grad if keep is None else grad * keep
        grad_h = grad_z if h is None else stage.activation.grad(grad_z, h)
        g = grad_h
        if sparse is not None and sparse.enabled:
            g, m = sparse.estimate(grad_h)
            memories.append((sparse, m))
        if linear.bias is not None:
            dense_bias = sparse is not None and sparse.dense_bias
            gradients = [(grad_h if dense_bias else g).sum(0), *gradients]
        gradients = [g.T @ x, *gradients]  # ∂ℓ/∂W
        grad = g @ linear.weight  # ∂ℓ/∂x
    for sparse, m in memories:
        sparse.finish(m)
    return grad, gradients
