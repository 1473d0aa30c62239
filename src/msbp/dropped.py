"""How much of the gradient a trained model's sparse layers leave out.

Letters: B batch, n out_features.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .sparse import SparseConvolution, SparseLinear, SparseLSTM


@dataclass
class Shares:
    """Sums over the gradients ∂ℓ/∂h (B, n) of one layer: all of it, and what was not propagated."""

    entries: int = 0
    entries_dropped: int = 0
    squares: float = 0.0
    squares_dropped: float = 0.0

    def add(self, grad_h: Tensor, g: Tensor) -> None:
        dropped = grad_h[g == 0]
        self.entries += int(grad_h.count_nonzero())
        self.entries_dropped += int(dropped.count_nonzero())
        self.squares += float(grad_h.square().sum())
        self.squares_dropped += float(dropped.square().sum())

    def fractions(self) -> dict[str, float]:
        """Dropped shares of the non-zero entries and of the squared norm; 0 of nothing is 0."""
        return {
            "entries": self.entries_dropped / self.entries if self.entries else 0.0,
            "squared_norm": self.squares_dropped / self.squares if self.squares else 0.0,
        }


def dropped_fraction(
    model: nn.Module, task: Any, batches: Iterable[tuple[Tensor, ...]], layers: Iterable[str]
) -> dict[str, dict[str, float]]:
    """Per layer the shares of ∂ℓ/∂h at places that were not selected; 0 for a layer that is not sparse.

    Works on a copy in float64, where every layer runs in plain torch; the model, its memory and the random
    state stay as they are.
    """
    twin = copy.deepcopy(model).double().train()
    found = {name: Shares() for name in layers}
    for name, layer in twin.named_modules():
        if isinstance(layer, SparseLinear | SparseConvolution | SparseLSTM):
            watch(layer, found.setdefault(name, Shares()))
    device = next(twin.parameters()).device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        for batch in batches:
            doubles = (t.double() if t.is_floating_point() else t for t in batch)
            task.loss(twin, tuple(t.to(device) for t in doubles)).backward()
    return {name: shares.fractions() for name, shares in found.items()}


def watch(layer: SparseLinear | SparseConvolution | SparseLSTM, shares: Shares) -> None:
    """Add up what the layer's selection sees and keeps."""
    estimate: Any = layer.estimate

    def watched(grad_h: Tensor, *place: Any) -> tuple[Tensor, Tensor | None]:
        g, m = estimate(grad_h, *place)
        shares.add(grad_h, g)
        return g, m

    layer.estimate = watched  # type: ignore[method-assign]
    layer.enabled = True  # also where it was not its turn in the last step
