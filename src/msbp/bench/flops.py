"""Arithmetic of a dense backward pass, counted by torch: the products of matrices and the convolutions."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.backends import mkldnn
from torch.utils.flop_counter import FlopCounterMode


@dataclass(frozen=True)
class Flops:
    """Additions and multiplications of one backward pass, and the hidden layers' share of them.

    The share is that of the forward pass, of which the counter knows what belongs to which layer.
    """

    backward: float
    hidden_share: float

    def at(self, r: float) -> float:
        """What is left if hidden layers propagate a share r of their entries."""
        return self.backward * (1 - self.hidden_share * (1 - r))


class Whole(nn.Module):
    """A model and its loss as one module, so that the counter knows the model's parts by their names."""

    def __init__(self, task: Any, model: nn.Module):
        super().__init__()
        self.task, self.model = task, model

    def forward(self, *batch: Tensor) -> Tensor:
        return self.task.loss(self.model, batch)


def backward_flops(task: Any, model: nn.Module, batches: Iterable[tuple[Tensor, ...]]) -> Flops:
    """The mean over batches, for a model of plain torch layers; it and the random state stay as they are."""
    whole = Whole(task, copy.deepcopy(model))
    hidden = [f"Whole.model.{name}" for group in model.hidden_layers for name in group]  # type: ignore
    known = mkldnn.enabled
    mkldnn.enabled = False  # type: ignore[assignment]  # an LSTM of oneDNN is one operation to the counter
    try:
        with torch.random.fork_rng():
            counts = [count(whole, batch, hidden) for batch in batches]
    finally:
        mkldnn.enabled = known
    backward, forward, in_hidden = (sum(column) / len(counts) for column in zip(*counts, strict=True))
    return Flops(backward, in_hidden / forward)


def count(whole: Whole, batch: tuple[Tensor, ...], hidden: list[str]) -> tuple[int, int, int]:
    """Operations of the backward pass, of the forward pass, and of the hidden layers' forward pass."""
    with FlopCounterMode(display=False) as counter:
        loss = whole(*batch)
        layers, forward = counter.get_flop_counts(), counter.get_total_flops()
        in_hidden = sum(sum(layers[name].values()) for name in hidden)
        loss.backward()
    return counter.get_total_flops() - forward, forward, in_hidden
