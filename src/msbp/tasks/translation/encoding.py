"""Lines of text as words, words as numbers, and pairs of sentences in padded batches.

Letters: N sentences of a split, W words of all of them, B sentences of a batch, S words of the longest
source, T of the longest target with its end mark.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, takewhile
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torchtext.vocab import Vocab

from ..base import Batch, in_buckets

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
PAD, UNK, BOS, EOS = range(len(SPECIAL))
JOINER = "\N{HALFWIDTH BLACK SQUARE}"  # marks the side on which a word touches the next
EDGES = re.compile(r"(\W*)(.*?)(\W*)", re.DOTALL)
RULES = (  # of text whose punctuation stands apart
    (re.compile(r' " ([^"]*?) " '), r' "\1" '),
    (re.compile(r' ([.,;:!?%)\]}…]+)(?=[ "])'), r"\1"),
    (re.compile(r"(?<= )([(\[{]) "), r"\1"),
    (re.compile(r" ('(?:s|re|ve|ll|d|m|t))(?= )", re.IGNORECASE), r"\1"),
)


@dataclass(frozen=True)
class Words:
    """Words by number, special ones first. Special words in a text are unknown: they would end sentences."""

    words: Sequence[str]

    def __post_init__(self) -> None:
        if tuple(self.words[: len(SPECIAL)]) != SPECIAL:
            raise ValueError(f"a vocabulary begins with {', '.join(SPECIAL)}, got {list(self.words[:4])}")
        if " ".join(self.words).split() != list(self.words):
            raise ValueError(
                "a word of a vocabulary is empty or contains spaces, which no word of a text does"
            )

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """By word, without the special ones."""
        return {word: i for i, word in enumerate(self.words) if i >= len(SPECIAL)}

    def encode(self, words: Iterable[str]) -> list[int]:
        return [self.numbers.get(word, UNK) for word in words]

    def decode(self, numbers: Iterable[int]) -> list[str]:
        """Return the words up to the first end mark."""
        return [self.words[number] for number in takewhile(lambda number: number != EOS, numbers)]


def count_words(sentences: Iterable[Iterable[str]], most: int | None = None, min_count: int = 1) -> Words:
    """Return the words that occur at least min_count times, the most frequent first.

    most: the largest size, counting <unk>, <s> and </s>, as the lists of Stanford's En-Vi files do.
    """
    most = None if most is None else most - len(SPECIAL) + 1  # torchtext counts none of the special ones
    counts = Counter(chain.from_iterable(sentences))
    return Words(Vocab(counts, max_size=most, min_freq=min_count, specials=list(SPECIAL)).itos)


class Tokens(NamedTuple):
    """The tokenisation of a corpus: from a line of text to words, and from words to text."""

    split: Callable[[str], list[str]]
    join: Callable[[Sequence[str]], str]


def split_at_edges(line: str) -> list[str]:
    """Return words separated by spaces, and punctuation at their edges: "he (Tim)." is he, (￭, Tim, ￭), ￭."""
    return [word for chunk in line.replace(JOINER, "").split() for word in _cut(chunk)]


def _cut(chunk: str) -> list[str]:
    before, word, after = EDGES.fullmatch(chunk).groups()  # type: ignore[union-attr]
    if not word:
        return [chunk]  # punctuation alone
    return [*(mark + JOINER for mark in before), word, *(JOINER + mark for mark in after)]


def join_at_edges(words: Sequence[str]) -> str:
    """Return the line whose `split_at_edges` the words are."""
    return re.sub(f"{JOINER} | {JOINER}", "", " ".join(words)).replace(JOINER, "")


def join_as_usual(words: Sequence[str]) -> str:
    """Return plain text of tokenised words: without entities such as &apos; and spaces before punctuation."""
    text = f" {html.unescape(' '.join(words))} "
    for pattern, replacement in RULES:
        text = pattern.sub(replacement, text)
    return " ".join(text.split())


TOKENS = {"spaces": Tokens(str.split, join_as_usual), "edges": Tokens(split_at_edges, join_at_edges)}


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
