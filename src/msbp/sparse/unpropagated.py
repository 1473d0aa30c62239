"""unpropagated: the share of the gradient that sparse layers do not propagate, measured during a step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from .buffers import plain_torch
from .status import Sparse


@contextmanager
def unpropagated(model: nn.Module) -> Iterator[dict[str, float]]:
    """Measure in the passes within the context, which run in plain torch with the same results.

    After it, the dictionary has for every layer the share of the squared norm of ∂ℓ/∂h whose entries were
    not selected; 0 for a layer that was dense or got no gradient.
    """
    layers = {name: module for name, module in model.named_modules() if isinstance(module, Sparse)}
    sums = {name: [0.0, 0.0] for name in layers}
    shares: dict[str, float] = {}
    for name, layer in layers.items():
        layer.__dict__["estimate"] = counting(layer.estimate, sums[name])
    try:
        with plain_torch():
            yield shares
    finally:
        for layer in layers.values():
            del layer.__dict__["estimate"]
        shares |= {name: lost / total if total else 0.0 for name, (lost, total) in sums.items()}


def counting(estimate: Callable[..., Any], sums: list[float]) -> Callable[..., Any]:
    """Return a layer's `estimate` that also adds to two sums of squares: the unpropagated ones, and all."""

    def estimated(grad_h: Tensor, *options: Any) -> Any:
        result = estimate(grad_h, *options)
        if result is not None:
            sums[0] += float(grad_h[result[0] == 0].square().sum())
            sums[1] += float(grad_h.square().sum())
        return result

    return estimated
