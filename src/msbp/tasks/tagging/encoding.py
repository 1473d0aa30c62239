"""Tagged sentences as numbers: words, features of their spelling, tags; batches of packed sentences.

Letters: W words of a split, S its sentences, N words of a batch, time step after time step; T time steps, F
features.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from ..base import Batch
from ..text import UNKNOWN, WordVectors, vocabulary

Spelling = Mapping[str, Callable[[str], str]]  # features of a word by name


class TaggedWords(NamedTuple):
    """A sentence and a tag for each word."""

    words: Sequence[str]
    tags: Sequence[str]


@dataclass(frozen=True)
class Tagged:
    """A split, its sentences concatenated: words (W), features (W, F), tags (W), lengths of sentences (S)."""

    words: Tensor
    features: Tensor
    tags: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def starts(self) -> Tensor:
        """The position of the first word of each sentence (S)."""
        return self.lengths.cumsum(0) - self.lengths

    def batch(self, chosen: Tensor) -> Batch:
        """Return the words (N), features (N, F), the number of words of each time step (T), tags (N).

        The longest sentence is first.
        """
        chosen = chosen[self.lengths[chosen].argsort(descending=True, stable=True)]
        steps = torch.arange(int(self.lengths[chosen[0]]))[:, None]
        present = steps < self.lengths[chosen]
        index = (self.starts[chosen] + steps)[present]
        return self.words[index], self.features[index], present.sum(1), self.tags[index]


class Encoder:
    """Numbers for words, spellings and tags; 0 is the unknown word or spelling.

    A word is known if it has a vector, or occurs more than `cutoff` times in training; a spelling if it
    occurs more than `cutoff` times in training; the tags are those of all splits.
    """

    def __init__(
        self, splits: Mapping[str, Sequence[TaggedWords]], spelling: Spelling, vectors: WordVectors | None,
        cutoff: int, seed: int,
    ):  # fmt: skip
        train = [word for sentence in splits["train"] for word in sentence.words]
        known = set(vectors.itos if vectors else ()) | frequent((word.lower() for word in train), cutoff)
        every = ([w for w in map(str.lower, s.words) if w in known] for part in splits.values() for s in part)
        self.words = vocabulary(every, vectors, seed)
        self.spelling = spelling
        self.values = {key: number(frequent(map(of, train), cutoff)) for key, of in spelling.items()}
        self.tags = number({tag for part in splits.values() for s in part for tag in s.tags}, first=0)

    @property
    def sizes(self) -> dict[str, object]:
        """The sizes that a tagger's constructor needs."""
        features = {key: 1 + len(values) for key, values in self.values.items()}
        vectors = self.words.vectors
        return {
            "vocabulary": len(self.words), "features": features, "outputs": len(self.tags), "vectors": vectors
        }  # fmt: skip

    def encode(self, sentences: Sequence[TaggedWords]) -> Tagged:
        """Return a split as numbers."""
        words = list(chain.from_iterable(s.words for s in sentences))
        features = [
            [values.get(self.spelling[key](w), 0) for key, values in self.values.items()] for w in words
        ]
        return Tagged(
            torch.tensor([self.words[word.lower()] for word in words]),
            torch.tensor(features, dtype=torch.int64).view(len(words), len(self.values)),
            torch.tensor([self.tags[tag] for s in sentences for tag in s.tags]),
            torch.tensor([len(s.words) for s in sentences]),
        )

    def unknown(self, split: Tagged) -> int:
        """Return the number of unknown words of a split."""
        return int((split.words == self.words[UNKNOWN]).sum())


def frequent(values: Iterable[str], cutoff: int) -> set[str]:
    """Return the values that occur more than `cutoff` times."""
    return {value for value, count in Counter(values).items() if count > cutoff}


def number(values: Iterable[str], first: int = 1) -> dict[str, int]:
    """Return the number of each value, in alphabetic order."""
    return {value: i for i, value in enumerate(sorted(values), first)}


def capitals(word: str) -> str:
    """Return the pattern of capital letters: none | first (the first alone) | all (of several) | some."""
    if word == word.lower():
        return "none"
    if word[0].isupper() and word[1:] == word[1:].lower():
        return "first"
    return "all" if word == word.upper() else "some"


def suffix(word: str, letters: int) -> str:
    """Return the last letters, lower-cased; every digit is 0, because numbers differ in little else."""
    return re.sub(r"\d", "0", word.lower())[-letters:]
