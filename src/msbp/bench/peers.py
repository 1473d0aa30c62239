"""Further opponents: how the model is trained without this project.

Letters: B batch, n out_features, k kept.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from ..methods import Installed
from ..sparse import entries_kept


@dataclass(frozen=True)
class PlainTorch:
    """The model as it is built: torch.nn layers and autograd."""

    name: str = "torch"

    def install(self, model: nn.Module) -> Installed:
        return Installed({})

    def before_step(self, step: int) -> None:
        """Every step is alike."""


@dataclass(frozen=True)
class MaskedDense:
    """Algorithm 1 in torch's own operations: topk, a mask, and dense products with what is left."""

    r: float
    name: str = "masked_dense"

    def install(self, model: nn.Module) -> Installed:
        for name in (name for group in model.hidden_layers for name in group):  # type: ignore[union-attr]
            layer = model.get_submodule(name)
            k = entries_kept(self.r, layer.out_features)  # type: ignore[arg-type]
            layer.register_forward_hook(partial(masks_gradient, k))
        return Installed({})  # no layer is replaced, so every product stays dense

    def before_step(self, step: int) -> None:
        """Every step is alike."""


def masks_gradient(k: int, layer: nn.Module, inputs: tuple[Tensor, ...], h: Tensor) -> None:
    """Forward hook: let ∂ℓ/∂h (B, n) keep the k largest entries of each row."""
    if h.requires_grad:
        h.register_hook(partial(masked, k))


def masked(k: int, grad_h: Tensor) -> Tensor:
    """∂ℓ/∂h (B, n) with zeros for all but the k largest entries of each row."""
    columns = grad_h.abs().topk(k, dim=-1).indices
    return torch.zeros_like(grad_h).scatter_(-1, columns, grad_h.gather(-1, columns))
