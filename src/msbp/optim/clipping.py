"""Clipping gradients by norm and by value; row-sparse ones stay row-sparse."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from ..sparse.row_sparse import values_of
from ..sparse.torch_compat import eager


@eager
def clip_grad_norm_(
    parameters: Iterable[Tensor] | Tensor,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients in place so that their common norm is at most max_norm; return the norm they had.

    As torch.nn.utils.clip_grad_norm_.
    """
    if not max_norm > 0:
        raise ValueError(f"max_norm must be positive, got {max_norm}")
    gradients = values(parameters)
    total = nn.utils.get_total_norm(gradients, norm_type, error_if_nonfinite, foreach)
    scale = torch.clamp(max_norm / (total + 1e-6), max=1.0)
    if scale.device.type == "cpu" and scale == 1:
        return total
    for gradient in gradients:
        gradient.mul_(scale.to(gradient.device))
    return total


@eager
def clip_grad_value_(
    parameters: Iterable[Tensor] | Tensor, clip_value: float, foreach: bool | None = None
) -> None:
    """Clamp all gradient entries to ±clip_value in place, as torch.nn.utils.clip_grad_value_."""
    if not clip_value > 0:
        raise ValueError(f"clip_value must be positive, got {clip_value}")
    for gradient in values(parameters):
        gradient.clamp_(-clip_value, clip_value)


def values(parameters: Iterable[Tensor] | Tensor) -> list[Tensor]:
    """Return the tensors with all gradient entries that may differ from zero."""
    listed = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    found = [values_of(p.grad) for p in listed if p.grad is not None]
    return [tensor for tensor in found if tensor.numel()]  # without entries there is no largest one
