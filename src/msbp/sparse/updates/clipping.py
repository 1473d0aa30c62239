"""Clipping gradients by norm and by value; those that wait as factors are not formed for it."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..eager import eager
from ..factored import Factors, gradient_of


@eager
def clip_grad_norm_(
    parameters: Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients so that their common norm is at most max_norm; return the norm they had.

    As torch.nn.utils.clip_grad_norm_; for the 2-norm, factored gradients are measured and scaled as factors.
    """
    if not max_norm > 0:
        raise ValueError(f"max_norm must be positive, got {max_norm}")
    if float(norm_type) != 2:
        return nn.utils.clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
    found: list[tuple[Tensor, Any]] = [(p, gradient_of(p)) for p in _listed(parameters)]
    found = [(p, gradient) for p, gradient in found if gradient is not None]
    found = [(p, p.grad if isinstance(g, Factors) and g.limit else g) for p, g in found]
    norms = [g.norm() if isinstance(g, Factors) else torch.linalg.vector_norm(g) for _, g in found]
    total = (
        torch.linalg.vector_norm(torch.stack([norm.to(norms[0]) for norm in norms]))
        if norms
        else torch.zeros(())
    )
    if error_if_nonfinite and not total.isfinite():
        raise RuntimeError(f"the norm of all gradients is {total.item()}, so they cannot be clipped")
    scale = torch.clamp(max_norm / (total + 1e-6), max=1.0)
    for _, gradient in found:
        (gradient.values if isinstance(gradient, Factors) else gradient).mul_(scale)
    return total


@eager
def clip_grad_value_(parameters: Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Hold every gradient entry within ±clip_value; factored gradients are clipped when they are formed."""
    if not clip_value > 0:
        raise ValueError(f"clip_value must be positive, got {clip_value}")
    for p in _listed(parameters):
        gradient = gradient_of(p)
        if isinstance(gradient, Factors):
            gradient.limit = min(gradient.limit or math.inf, float(clip_value))
        elif gradient is not None:
            gradient.clamp_(-clip_value, clip_value)


def _listed(parameters: Iterable[Tensor]) -> list[Tensor]:
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)
