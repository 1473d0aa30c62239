"""Activations that a stage can swallow: their value and the gradient at the pre-activation h.

The gradient passes a NaN on: an entry counts as cut off only where the activation says so.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


class Cube(nn.Module):
    """x³, the activation of Chen and Manning's parser."""

    def forward(self, x: Tensor) -> Tensor:
        return x * x * x


@dataclass(frozen=True)
class Activation:
    """z = apply(h), and grad(∂ℓ/∂z, h) = ∂ℓ/∂h.

    For the kernels: its code, and whether ∂z/∂h has to be kept because z does not tell it.
    """

    code: int
    needs_slope: bool
    apply: Callable[[Tensor], Tensor]
    grad: Callable[[Tensor, Tensor], Tensor]


IDENTITY = Activation(0, False, lambda h: h, lambda grad, h: grad)
RELU = Activation(1, False, torch.relu, lambda grad, h: torch.where(h <= 0, 0, grad))
ACTIVATIONS: dict[type[nn.Module], Activation] = {
    nn.ReLU: RELU,
    nn.Tanh: Activation(2, True, torch.tanh, lambda grad, h: grad * (1 - torch.tanh(h).square())),
    Cube: Activation(3, True, lambda h: h * h * h, lambda grad, h: grad * (3 * h * h)),
}
