"""From a line of text to words and their numbers, and back to text that reads as usual."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, takewhile
from typing import NamedTuple

from torchtext.vocab import Vocab

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
