"""What a task is: data, their order, a loss and a score.

Letters: N examples of a split, B batch.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

Batch = tuple[Tensor, ...]  # the labels last
SAMPLES = ("full", "tiny")  # tiny: made by the task itself, for offline trials


@dataclass(frozen=True)
class Splits:
    """Train, dev and test in the task's own form, and the sizes that a model's constructor needs."""

    train: Any
    dev: Any
    test: Any
    sizes: dict[str, Any]
    notes: tuple[str, ...] = ()  # what a reader of the record should know, such as sentences left out
    keep: Any = field(default_factory=dict)  # lines of text to keep with a run, by file name


@dataclass(frozen=True)
class Score:
    """Percent, 0 to 100, and how it was counted; others are further metrics of the same outputs by name.

    texts: the outputs themselves, a line an example, where they are text.
    """

    value: float
    signature: str
    others: dict[str, float] = field(default_factory=dict)
    texts: Sequence[str] = ()


class Task(Protocol):
    name: str
    metric: str
    unit: str  # what each label of a batch belongs to; throughput counts them

    def splits(self, seed: int) -> Splits:
        """Read or make the data; untimed. Raises FileNotFoundError or ValueError naming file and remedy."""

    def batches(self, split: Any, seed: int, epoch: int) -> Iterable[Batch]:
        """The batches of one epoch; their order depends on seed and epoch alone."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Mean loss of one batch."""

    def score(self, model: nn.Module, split: Any) -> Score:
        """The task's metric; the model is in eval mode and no gradient is kept; untimed."""


@dataclass(frozen=True)
class Examples:
    """A split held in memory as inputs x (N, ...) and labels y (N)."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)


def order(size: int, seed: int, epoch: int) -> Tensor:
    """A permutation of range(size) that depends on seed and epoch alone, not on torch's generator."""
    return torch.from_numpy(np.random.default_rng([seed, epoch]).permutation(size))


def in_buckets(keys: Tensor, size: int, bucket: int, seed: int, epoch: int) -> Iterator[Tensor]:
    """The indices of each batch (B): examples of like keys (N) together, batches in an order of their own.

    So many examples as `bucket` batches have are sorted by their keys before they are cut into batches.
    """
    pools = order(len(keys), seed, epoch).split(size * bucket)
    batches = [batch for pool in pools for batch in pool[keys[pool].argsort(stable=True)].split(size)]
    return (batches[i] for i in order(len(batches), seed, epoch).tolist())


def accuracy(model: nn.Module, batches: Iterable[Batch]) -> float:
    """The percentage of labels that the model gives its highest logit, on the model's device."""
    device, right, count = next(model.parameters()).device, 0, 0
    for batch in batches:
        *inputs, labels = (part.to(device) for part in batch)
        right += int((model(*inputs).argmax(-1) == labels).sum())
        count += len(labels)
    return 100 * right / count
