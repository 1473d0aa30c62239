"""The gradient estimation angle δ (Definition 2): how far the estimated gradient points from the true one.

Both are averages over a whole data set, as in the paper's figure, at fixed weights: the estimate as the
method gives it, its memory going on from where it is, and the truth from full backpropagation.
"""

import copy
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..limits import check_counts
from ..sparse import SparseConvolution, SparseLinear, SparseLSTM

Vectors = dict[str, Tensor]


@dataclass(frozen=True)
class Angle:
    """Watches a run: the angles before training, and after every so many epochs."""

    every: int = 1

    def __post_init__(self) -> None:
        check_counts("trainer.watch", every=self.every)

    def __call__(self, run: Any) -> list[dict[str, Any]]:
        """What to keep of this moment; nothing of the run changes."""
        state = run.state
        if state.epoch % self.every:
            return []
        batches = run.task.batches(run.splits.train, run.seed, state.epoch)
        angle = estimation_angles(run.model, run.task, batches)
        return [{"step": state.step, "epoch": float(state.epoch), "angle": angle}]


def estimation_angles(model: nn.Module, task: Any, batches: Iterable[tuple[Tensor, ...]]) -> dict[str, float]:
    """δ in radians by dotted name of module, of all hidden layers together (`hidden`), and in `total`.

    The output layer's gradient is exact and may be by far the longest, so that the total says little of them.
    A batch weighs as much as its last tensor, the labels, is long. Both gradients see the same dropout masks.
    Works on a copy; the model, its memory and the random state stay as they are.
    """
    twin = copy.deepcopy(model).train()
    device = next(twin.parameters()).device
    kinds = (SparseLinear, SparseConvolution, SparseLSTM)
    sparse = [module for module in twin.modules() if isinstance(module, kinds) and module.enabled]
    estimate, true = zeros(twin), zeros(twin)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        for number, batch in enumerate(batches):
            batch = tuple(tensor.to(device) for tensor in batch)
            for enabled, sums in ((True, estimate), (False, true)):
                torch.manual_seed(number)
                for module in sparse:
                    module.enabled = enabled
                task.loss(twin, batch).backward()
                add_gradients(twin, len(batch[-1]), sums)
    return angles(estimate, true, {name for group in model.hidden_layers for name in group})  # type: ignore[union-attr]


def zeros(model: nn.Module) -> Vectors:
    """A sum for each parameter that learns, in float64."""
    learning = {name: p for name, p in model.named_parameters() if p.requires_grad}
    return {
        name: torch.zeros_like(p, dtype=torch.float64, requires_grad=False) for name, p in learning.items()
    }


def add_gradients(model: nn.Module, weight: int, sums: Vectors) -> None:
    """Move the gradients, times weight, from the parameters to the sums."""
    for name, p in model.named_parameters():
        if p.requires_grad and p.grad is not None:
            sums[name].add_(p.grad.to_dense(), alpha=weight)
    model.zero_grad()


def angles(estimate: Vectors, true: Vectors, hidden: Collection[str]) -> dict[str, float]:
    """The angle by module, over the hidden ones, and in total, of vectors by the names of parameters."""
    parts: dict[str, list[str]] = {}
    for name in true:
        parts.setdefault(name.rpartition(".")[0], []).append(name)
    inside = [name for module, names in parts.items() if module in hidden for name in names]
    parts |= {"hidden": inside, "total": list(true)}
    return {
        part: angle([estimate[name] for name in names], [true[name] for name in names])
        for part, names in parts.items()
    }


def angle(a: Iterable[Tensor], b: Iterable[Tensor]) -> float:
    """∠⟨a, b⟩ in [0, π] of vectors in parts, in float64; π/2 if one of them is zero, 0 if both are."""
    a, b = ([part.double() for part in parts] for parts in (a, b))
    long_a, long_b = norm(a), norm(b)
    if not long_a or not long_b:
        return 0.0 if long_a == long_b else math.pi / 2
    # the arccosine of a cosine near 1 would keep half of the digits
    pairs = [(x / long_a, y / long_b) for x, y in zip(a, b, strict=True)]
    return 2 * math.atan2(norm(x - y for x, y in pairs), norm(x + y for x, y in pairs))


def norm(parts: Iterable[Tensor]) -> float:
    return math.sqrt(sum(float(part.square().sum()) for part in parts))
