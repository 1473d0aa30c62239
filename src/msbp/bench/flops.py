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
    """Additions and multiplications of one backward pass, weight gradients included."""

    hidden: float
    other: float

    def at(self, r: float) -> float:
        """What is left if hidden layers propagate a share r of their entries."""
        return r * self.hidden + self.other


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
    names = ["Global", *(f"Whole.model.{name}" for group in model.hidden_layers for name in group)]  # type: ignore
    counts = torch.zeros(0, len(names), dtype=torch.double)
    known = mkldnn.enabled
    mkldnn.enabled = False  # type: ignore[assignment]  # an LSTM of oneDNN is one operation to the counter
    try:
        with torch.random.fork_rng():
            for batch in batches:
                counts = torch.cat([counts, count(whole, batch, names)])
    finally:
        mkldnn.enabled = known
    total, *hidden = counts.mean(0).tolist()
    return Flops(sum(hidden), total - sum(hidden))


def count(whole: Whole, batch: tuple[Tensor, ...], names: list[str]) -> Tensor:
    """Operations (1, names) of the backward pass alone."""
    with FlopCounterMode(display=False) as counter:
        loss = whole(*batch)
        forward = torch.tensor([[sum(counter.get_flop_counts()[name].values()) for name in names]])
        loss.backward()
        both = torch.tensor([[sum(counter.get_flop_counts()[name].values()) for name in names]])
    return both - forward
