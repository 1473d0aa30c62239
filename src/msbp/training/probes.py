"""Probes of a run in training: the estimation angle δ, and the gradient that is not propagated.

Letters: B batch, n out_features.
"""

import copy
import math
from collections.abc import Collection, Iterable

import torch
from pydantic import ConfigDict, PositiveInt
from pydantic.dataclasses import dataclass as validated
from torch import Tensor, nn

from ..files import Fields
from ..methods import WeightFeedback
from ..sparse.layers import hidden_groups
from ..sparse.status import Sparse
from ..sparse.unpropagated import Unpropagated, count
from ..tasks.base import Batch, Task
from .trainer import Run

Vectors = dict[str, Tensor]


@validated(frozen=True, config=ConfigDict(strict=True))
class Angle:
    """Probe of the estimation angle: before training and after every `every`-th epoch."""

    every: PositiveInt = 1

    def __call__(self, run: Run) -> list[Fields]:
        """Return the measurement of this epoch, if it has one; the run does not change."""
        state = run.state
        if isinstance(run.method, WeightFeedback):
            raise ValueError(
                "watch=angle measures what layers propagate, and method=weight_feedback changes the "
                "gradients of weights: leave watch out"
            )
        if state.epoch % self.every:
            return []
        batches = run.task.batches(run.splits.train, run.seed, state.epoch)
        estimate, true = gradients(run.model, run.task, batches)
        hidden = hidden_names(run.model)
        measured = {"angle": angles(estimate, true, hidden), "departure": departures(estimate, true, hidden)}
        return [{"step": state.step, "epoch": float(state.epoch), **measured}]


def gradients(model: nn.Module, task: Task, batches: Iterable[Batch]) -> tuple[Vectors, Vectors]:
    """Return the sums of estimated and of true gradients by parameter, over a data set at fixed weights.

    The estimate has the memory carried on from its present state; the true gradient is that of full
    backpropagation. A batch is weighted by the length of its last tensor, the labels. Both gradients see the
    same dropout masks. Works on a copy; the model, its memory and the random state do not change.
    """
    twin = copy.deepcopy(model).train()
    device = next(twin.parameters()).device
    sparse = [module for module in twin.modules() if isinstance(module, Sparse) and module.enabled]
    estimate, true = _zeros(twin), _zeros(twin)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        for number, batch in enumerate(batches):
            batch = tuple(tensor.to(device) for tensor in batch)
            for enabled, sums in ((True, estimate), (False, true)):
                torch.manual_seed(number)
                for module in sparse:
                    module.enabled = enabled
                task.loss(twin, batch).backward()
                _move_gradients(twin, len(batch[-1]), sums)
    return estimate, true


def hidden_names(model: nn.Module) -> set[str]:
    """Return the dotted names of the hidden layers."""
    return {name for group in hidden_groups(model) or () for name in group}


def departures(estimate: Vectors, true: Vectors, hidden: Collection[str]) -> dict[str, float]:
    """Return ‖estimate − true‖ / ‖true‖ of the hidden layers' weights and of their biases.

    Where all that is not sent is remembered until it is, this tends to zero with the number of batches: the
    memory is all that the sums differ by. A memory of activations has that for biases with gamma = 1, and not
    for weights: what is sent late meets the x of other examples.
    """
    distances = {}
    for kind, is_kind in (("weight", lambda p: p.dim() > 1), ("bias", lambda p: p.dim() == 1)):
        names = [name for name in true if name.rpartition(".")[0] in hidden and is_kind(true[name])]
        length = _norm(true[name] for name in names)
        apart = _norm(estimate[name] - true[name] for name in names)
        distances[kind] = apart / length if length else 0.0
    return distances


def angle(a: Iterable[Tensor], b: Iterable[Tensor]) -> float:
    """Return ∠⟨a, b⟩ in [0, π] of vectors in parts, in float64; π/2 if one of them is zero, 0 if both are."""
    a, b = ([part.double() for part in parts] for parts in (a, b))
    long_a, long_b = _norm(a), _norm(b)
    if not long_a or not long_b:
        return 0.0 if long_a == long_b else math.pi / 2
    # the arccosine of a cosine near 1 would keep half of the digits
    pairs = [(x / long_a, y / long_b) for x, y in zip(a, b, strict=True)]
    return 2 * math.atan2(_norm(x - y for x, y in pairs), _norm(x + y for x, y in pairs))


def _zeros(model: nn.Module) -> Vectors:
    """Return a sum for each parameter that requires a gradient, in float64."""
    learning = {name: p for name, p in model.named_parameters() if p.requires_grad}
    return {
        name: torch.zeros_like(p, dtype=torch.float64, requires_grad=False) for name, p in learning.items()
    }


def _move_gradients(model: nn.Module, weight: int, sums: Vectors) -> None:
    """Add the gradients, times weight, to the sums and clear them."""
    for name, p in model.named_parameters():
        if p.requires_grad and p.grad is not None:
            sums[name].add_(p.grad.to_dense(), alpha=weight)
    model.zero_grad()


def angles(estimate: Vectors, true: Vectors, hidden: Collection[str]) -> dict[str, float]:
    """Return δ (Definition 2) in radians by module, of all hidden layers together (`hidden`), and in `total`.

    The output layer's gradient is exact and may be by far the longest, so that the total says little of the
    hidden layers.
    """
    parts: dict[str, list[str]] = {}
    for name in true:
        parts.setdefault(name.rpartition(".")[0], []).append(name)
    inside = [name for module, names in parts.items() if module in hidden for name in names]
    parts |= {"hidden": inside, "total": list(true)}
    return {
        part: angle([estimate[name] for name in names], [true[name] for name in names])
        for part, names in parts.items()
    }


def _norm(parts: Iterable[Tensor]) -> float:
    return math.sqrt(sum(float(part.square().sum()) for part in parts))


def unpropagated_fraction(
    model: nn.Module, task: Task, batches: Iterable[Batch], layers: Iterable[str]
) -> dict[str, dict[str, float]]:
    """Return by layer the shares of ∂ℓ/∂h that were not selected; 0 for a layer that is not sparse.

    Works on a copy in float64, where every layer runs in plain torch; the model, its memory and the random
    state do not change.
    """
    twin = copy.deepcopy(model).double().train()
    sums = {name: Unpropagated() for name in layers}
    for name, layer in twin.named_modules():
        if isinstance(layer, Sparse):
            count(layer, sums.setdefault(name, Unpropagated()))
            layer.enabled = True  # also where another group had its turn in the last step
    device = next(twin.parameters()).device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        for batch in batches:
            doubles = (t.double() if t.is_floating_point() else t for t in batch)
            task.loss(twin, tuple(t.to(device) for t in doubles)).backward()
    return {name: layer.fractions() for name, layer in sums.items()}
