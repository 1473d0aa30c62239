"""Stage: a linear layer with the activation and dropout after it, the unit of the paper's section 4.2.

Letters: B batch, n out_features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

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
        return self.dropout.p if self.dropout is not None and self.dropout.training else 0.0

    @property
    def k(self) -> int:
        """Return the number of kept entries; 0 for a plain backward pass: disabled, or in eval mode."""
        sparse = self.sparse
        return sparse.k if sparse is not None and sparse.enabled and sparse.training else 0

    def for_kernel(self) -> tuple[int, Any, float] | None:
        """Return the settings that a workspace depends on: k, the memory and its gamma at present.

        None where no kernel computes the backward pass with the layer's sparsifier and memory.
        """
        sparse = self.sparse
        if sparse is None:
            return 0, None, 0.0
        if not sparse.supports_kernel:
            return None
        k = sparse.k if sparse.enabled and sparse.training else 0
        # nn.Module's own access takes a microsecond
        memory = self.linear._modules.get("memory") if k else None
        return k, memory, 0.0 if memory is None else memory.__dict__["gamma"]
