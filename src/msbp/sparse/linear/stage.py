"""Stage: a linear layer with the activation and dropout after it, the unit of the paper's section 4.2.

A chain of stages has its forward and backward pass here in plain torch, Algorithms 1 and 2 on any device and
dtype. Letters: B batch, i in_features, n out_features, k kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from ..dropout import draw_key, keep_mask, keep_scale, key_at, probability

if TYPE_CHECKING:
    from .linear import SparseLayer


class Cube(nn.Module):
    """x³, the activation of Chen and Manning's parser."""

    def forward(self, x: Tensor) -> Tensor:
        return x * x * x


@dataclass(frozen=True)
class Activation:
    """z = apply(h) and ∂z/∂h = slope(h).

    For the kernels: its code, and whether ∂z/∂h has to be kept because z does not determine it.
    """

    code: int
    needs_slope: bool
    apply: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor | None]


IDENTITY = Activation(0, False, lambda h: h, lambda h: None)
RELU = Activation(1, False, torch.relu, lambda h: (~(h <= 0)).to(h.dtype))  # the gradient at a NaN passes
ACTIVATIONS: dict[type[nn.Module], Activation] = {
    nn.ReLU: RELU,
    nn.Tanh: Activation(2, True, torch.tanh, lambda h: 1 - torch.tanh(h).square()),
    Cube: Activation(3, True, lambda h: h * h * h, lambda h: 3 * h * h),
}


class Stage(NamedTuple):
    """A linear layer with activation and dropout; `sparse` is the layer if its backward pass is sparse."""

    linear: nn.Linear
    sparse: SparseLayer | None = None
    activation: Activation = IDENTITY
    dropout: nn.Dropout | None = None

    @property
    def p(self) -> float:
        """Return the probability of dropout at present."""
        return 0.0 if self.dropout is None else probability(self.dropout)

    @property
    def k(self) -> int:
        """Return the number of kept entries; 0 for a plain backward pass: disabled, or in eval mode."""
        sparse = self.sparse
        return sparse.k if sparse is not None and sparse.active else 0

    def for_kernel(self) -> tuple[int, Any] | None:
        """Return the settings that a workspace depends on: k and the memory at present.

        None where no kernel computes the backward pass with the layer's sparsifier and memory.
        """
        sparse = self.sparse
        if sparse is None:
            return 0, None
        if not sparse.supports_kernel:
            return None
        k = self.k
        # nn.Module's own access takes a microsecond
        return k, self.linear._modules.get("memory") if k else None


Stages = tuple[Stage, ...]
Parameters = Sequence[Any]  # tensors; None for a bias that is not there


class SavedStage(NamedTuple):
    """Tensors of a stage for the backward pass: x (B, i), and ∂z/∂h (B, n) or None where it is 1."""

    x: Tensor
    slope: Tensor | None


def forward_stages(stages: Stages, x: Tensor, parameters: Parameters) -> tuple[Tensor, list[SavedStage]]:
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


def lowest(needs: Sequence[bool]) -> int:
    """Return the first stage of which a gradient is needed: those below it get none, as in torch.

    needs: of a weight and a bias per stage, and of an embedding's table, which comes before them.
    """
    return next((at // 2 for at, need in enumerate(needs) if need), 0)


def backward_stages(
    stages: Stages,
    kept: Sequence[int],
    saved: Sequence[SavedStage],
    weights: Sequence[Tensor],
    grad: Tensor,
    biases: Sequence[Tensor | None] | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """Backward: return ∂ℓ/∂x and the gradients of a weight and a bias per stage.

    kept: k of each stage, 0 for one that propagates everything. biases: if any may have another shape than
    (n), as torch allows. Memories are stored last. A gradient that is not finite is propagated whole, as by
    torch, with all memories unchanged.
    """
    gradients: list[Tensor] = []
    memories = []
    top = grad
    biases = biases or [None] * len(stages)
    for stage, k, weight, bias, (x, slope) in reversed(
        list(zip(stages, kept, weights, biases, saved, strict=True))
    ):
        grad_h = grad if slope is None else grad * slope
        if stage.activation is RELU and slope is not None:
            # zero times an infinite gradient would be NaN, where torch's ReLU has zero
            grad_h = torch.where(slope == 0, 0, grad_h)
        g, sparse = grad_h, stage.sparse
        if k and sparse is not None:
            estimated = sparse.estimate(grad_h, k)
            if estimated is None:
                return backward_stages(stages, [0] * len(stages), saved, weights, top, biases)
            g, m = estimated
            memories.append((sparse, m))
        dense_bias = sparse is not None and sparse.dense_bias
        of_bias = weight.shape[:1] if bias is None else bias.shape
        grad_bias = (grad_h if dense_bias else g).sum_to_size(of_bias)
        grad, grad_weight = g @ weight, g.T @ x  # ∂ℓ/∂x, ∂ℓ/∂W
        gradients = [grad_weight, grad_bias, *gradients]
    for sparse, m in memories:
        sparse.finish(m)
    return grad, gradients
