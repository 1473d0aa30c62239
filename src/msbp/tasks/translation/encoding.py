"""Pairs of sentences as numbers, in padded batches.

Letters: N sentences of a split, W words of all of them, B sentences of a batch, S words of the longest
source, T of the longest target with its end mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from ..base import Batch, in_buckets
from .vocabulary import BOS, EOS, PAD, UNK, Words


@dataclass(frozen=True)
class Side:
    """Sentences as numbers, concatenated: words (W), lengths (N)."""

    words: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, sentences: Iterable[Sequence[int]]) -> Side:
        lengths: list[int] = []

        def counted() -> Iterator[Sequence[int]]:
            for sentence in sentences:
                lengths.append(len(sentence))
                yield sentence

        words = np.fromiter(chain.from_iterable(counted()), np.int32)
        return cls(torch.from_numpy(words), torch.tensor(lengths, dtype=torch.int64))

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def starts(self) -> Tensor:
        """The position of the first word of each sentence (N)."""
        return self.lengths.cumsum(0) - self.lengths

    def padded(self, chosen: Tensor) -> Tensor:
        """Return the chosen sentences as rows, (B, S)."""
        lengths = self.lengths[chosen][:, None]
        steps = torch.arange(int(lengths.max()))
        present = steps < lengths
        rows = torch.full(present.shape, PAD)
        rows[present] = self.words[(self.starts[chosen][:, None] + steps)[present]].long()
        return rows

    def unknown(self) -> int:
        """Return the number of unknown words."""
        return int((self.words == UNK).sum())


@dataclass(frozen=True)
class Pairs:
    """A split: both sides as numbers, and for scoring:

    references: the lines of each.  known: the words of the target.  beam: the width of the search.
    """

    source: Side
    target: Side
    references: Sequence[Sequence[str]]
    known: Words
    beam: int

    def __len__(self) -> int:
        return len(self.source)

    @cached_property
    def complete(self) -> Tensor:
        """The pairs with words on both sides."""
        return ((self.source.lengths > 0) & (self.target.lengths > 0)).nonzero().flatten()

    def batch(self, chosen: Tensor) -> Batch:
        """Return source (B, S), lengths (B), the target's input words and labels (B, T)."""
        rows = self.target.padded(chosen)
        given = torch.nn.functional.pad(rows, (1, 0), value=BOS)
        following = torch.nn.functional.pad(rows, (0, 1), value=PAD)
        following[torch.arange(len(chosen)), self.target.lengths[chosen]] = EOS
        return self.source.padded(chosen), self.source.lengths[chosen], given, following

    def batches(self, size: int, bucket: int, seed: int, epoch: int) -> Iterator[Batch]:
        """Return batches of complete pairs of similar lengths, the longest first.

        They are sorted by source, then by target.
        """
        source, target = self.source.lengths[self.complete], self.target.lengths[self.complete]
        longest_first = -source * (1 + int(target.max())) - target
        batches = in_buckets(longest_first, size, bucket, seed, epoch)
        return (self.batch(self.complete[chosen]) for chosen in batches)
