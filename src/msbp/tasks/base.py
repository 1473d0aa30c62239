"""The interface of a task: data, their order, a loss and a score.

Letters: N examples of a split, B batch.
"""

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Generic, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

log = logging.getLogger(__name__)
Batch = tuple[Tensor, ...]  # the labels last
Sample = Literal["full", "tiny"]  # tiny: synthetic, for offline trials
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]  # products of two fit what torch counts with
Name = Annotated[str, Field(min_length=1)]
Cutoff = Annotated[int, Field(ge=0, le=2**31 - 1)]
Split = TypeVar("Split")


@dataclass(frozen=True)
class Splits(Generic[Split]):
    """Train, dev and test in the task's own form, and the sizes that a model's constructor needs.

    digest: of the data, as `digest` gives it; empty if the task does not say.  notes: remarks for the reader
    of the record, such as sentences left out.  keep: lines of text to keep with a run, by file name.
    """

    train: Split
    dev: Split
    test: Split
    sizes: Mapping[str, object]
    notes: tuple[str, ...] = ()
    keep: Mapping[str, Sequence[str]] = field(default_factory=dict)
    digest: str = ""


@dataclass(frozen=True)
class Score:
    """Percent, 0 to 100, and how it was counted; others are further metrics of the same outputs by name.

    texts: the outputs themselves, a line an example, where they are text.
    """

    value: float
    signature: str
    others: dict[str, float] = field(default_factory=dict)
    texts: Sequence[str] = ()


@runtime_checkable
class Task(Protocol[Split]):
    """Data, their order, a loss and a score.

    unit: what a label of a batch belongs to, such as a word; throughput counts these.
    """

    name: str
    metric: ClassVar[str]
    unit: ClassVar[str]

    def splits(self, seed: int) -> Splits[Split]:
        """Return the data, read or generated. FileNotFoundError or ValueError name the file and a remedy."""
        ...

    def batches(self, split: Split, seed: int, epoch: int) -> Iterable[Batch]:
        """Return the batches of one epoch; their order depends on seed and epoch alone."""
        ...

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean loss of one batch, by the model's own `loss`."""
        return model.loss(*batch)  # type: ignore[operator]

    def score(self, model: nn.Module, split: Split) -> Score:
        """Return the task's metric; the model is in eval mode and no gradient is kept; untimed."""
        ...


@dataclass(frozen=True)
class Examples:
    """A split held in memory as inputs x (N, ...) and labels y (N)."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)


def digest(files: Iterable[Path]) -> str:
    """Return 16 hex digits over the contents of data files in this order, not their paths.

    The folder that holds them all is logged.
    """
    whole, every = hashlib.blake2b(digest_size=8), list(files)
    log.info("data read from %s", os.path.commonpath([path.parent.absolute() for path in every]))
    for path in every:
        with open(path, "rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def order(size: int, seed: int, epoch: int) -> Tensor:
    """Return a permutation of range(size) that depends on seed and epoch alone, not on torch's generator."""
    return torch.from_numpy(np.random.default_rng([seed, epoch]).permutation(size))


def in_buckets(keys: Tensor, size: int, bucket: int, seed: int, epoch: int) -> Iterator[Tensor]:
    """Return the indices of each batch (B): examples of like keys (N) together, batches in random order.

    The examples of each `bucket` batches are sorted by their keys before they are cut into batches.
    """
    pools = order(len(keys), seed, epoch).split(size * bucket)
    batches = [batch for pool in pools for batch in pool[keys[pool].argsort(stable=True)].split(size)]
    return (batches[i] for i in order(len(batches), seed, epoch).tolist())


def accuracy(model: nn.Module, batches: Iterable[Batch]) -> float:
    """Return the percentage of labels that the model gives its highest logit, on the model's device."""
    device, right, count = next(model.parameters()).device, 0, 0
    for batch in batches:
        *inputs, labels = (part.to(device) for part in batch)
        right += int((model(*inputs).argmax(-1) == labels).sum())
        count += len(labels)
    return 100 * right / count
