"""The part of the gradient that sparse layers do not propagate, counted during a step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor, nn

from .buffers import plain_torch
from .status import Sparse


@dataclass
class Unpropagated:
    """Sums over the gradients ∂ℓ/∂h (B, n) of one layer: all of it, and what was not propagated."""

    entries: int = 0
    entries_unpropagated: int = 0
    squares: float = 0.0
    squares_unpropagated: float = 0.0

    def add(self, grad_h: Tensor, g: Tensor) -> None:
        """Count the gradient of a batch and its estimate g."""
        unpropagated = grad_h[g == 0]
        self.entries += int(grad_h.count_nonzero())
        self.entries_unpropagated += int(unpropagated.count_nonzero())
        self.squares += float(grad_h.square().sum())
        self.squares_unpropagated += float(unpropagated.square().sum())

    def fractions(self) -> dict[str, float]:
        """Return the unpropagated shares of the non-zero entries and of the squared norm; 0 of nothing."""
        return {
            "entries": self.entries_unpropagated / self.entries if self.entries else 0.0,
            "squared_norm": self.squares_unpropagated / self.squares if self.squares else 0.0,
        }


def count(layer: Sparse, sums: Unpropagated) -> None:
    """Have the layer's `estimate`, which plain torch calls, also add its argument and result to the sums."""
    estimate: Callable[..., tuple[Tensor, object] | None] = layer.estimate

    def counting(grad_h: Tensor, *options: object) -> tuple[Tensor, object] | None:
        estimated = estimate(grad_h, *options)
        if estimated is not None:  # a gradient that is not finite is propagated whole
            sums.add(grad_h, estimated[0])
        return estimated

    layer.__dict__["estimate"] = counting


@contextmanager
def unpropagated(model: nn.Module) -> Iterator[dict[str, float]]:
    """Measure in the passes within the context, which run in plain torch with the same results.

    After it, the dictionary has for every layer the share of the squared norm of ∂ℓ/∂h whose entries were
    not selected; 0 for a layer that was dense or got no gradient.
    """
    layers = {name: module for name, module in model.named_modules() if isinstance(module, Sparse)}
    sums = {name: Unpropagated() for name in layers}
    shares: dict[str, float] = {}
    for name, layer in layers.items():
        count(layer, sums[name])
    try:
        with plain_torch():
            yield shares
    finally:
        for layer in layers.values():
            del layer.__dict__["estimate"]
        shares |= {name: each.fractions()["squared_norm"] for name, each in sums.items()}
