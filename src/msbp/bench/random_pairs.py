"""Synthetic tasks for benchmarks without a corpus: pairs of sentences, and of a point and its class.

Letters: N pairs, V words of a language, i inputs.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from ..tasks.base import Batch, Examples, Splits, Task, order
from ..tasks.translation.encoding import SPECIAL, Pairs, Side, Words

BATCHES = 40  # of an epoch
MEDIAN, SPREAD = 15, 0.7  # of source lengths, the latter of their logarithm: English of TED talks
RATIO, NOISE = 1.25, 0.15  # of a target's length to its source's: Vietnamese


@dataclass(frozen=True)
class RandomPairs(Task[Pairs]):
    """Training batches of pairs whose lengths and words are distributed as those of talks are: lengths
    log-normal up to `longest` words, words by the law of Zipf."""

    name: str
    source_words: int
    target_words: int
    batch_size: int = 64
    longest: int = 50
    bucket: int = 20  # batches whose sentences are sorted by length together
    sample: str = "full"

    def splits(self, seed: int) -> Splits:
        random = np.random.default_rng(seed)
        source = np.exp(random.normal(math.log(MEDIAN), SPREAD, BATCHES * self.batch_size))
        target = source * np.exp(random.normal(math.log(RATIO), NOISE, len(source)))
        one, other = [
            Side.of([zipf(random, words, n) for n in lengths.round().astype(int).clip(1, self.longest)])
            for lengths, words in ((source, self.source_words), (target, self.target_words))
        ]
        sizes = {"source_words": self.source_words, "target_words": self.target_words}
        train = Pairs(one, other, references=[], known=Words(SPECIAL), beam=1)
        return Splits(train, None, None, sizes)

    def batches(self, split: Pairs, seed: int, epoch: int) -> Iterator[Batch]:
        return split.batches(self.batch_size, self.bucket, seed, epoch)


@dataclass(frozen=True)
class RandomPoints(Task[Examples]):
    """Training batches of normal random points (N, i) and their class: whether the sum of i is > 0."""

    name: str
    inputs: int = 20
    batch_size: int = 512
    sample: str = "full"

    def splits(self, seed: int) -> Splits:
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(BATCHES * self.batch_size, self.inputs, generator=generator)
        train = Examples(x, (x.sum(1) > 0).long())
        return Splits(train, None, None, {"inputs": self.inputs, "outputs": 2})

    def batches(self, split: Examples, seed: int, epoch: int) -> Iterator[Batch]:
        return ((split.x[i], split.y[i]) for i in order(len(split), seed, epoch).split(self.batch_size))


def zipf(random: np.random.Generator, words: int, count: int) -> list[int]:
    """Return so many numbers of words drawn from V, the one of rank q as often as 1 / q."""
    ordinary = words - len(SPECIAL)
    return (len(SPECIAL) + ordinary ** random.random(count) - 1).astype(int).tolist()
