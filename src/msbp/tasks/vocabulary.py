"""The words that a translator knows, with their numbers; special ones come first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, takewhile

from torchtext.vocab import Vocab

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
PAD, UNK, BOS, EOS = range(len(SPECIAL))


@dataclass(frozen=True)
class Words:
    """Words by number. What a text itself has of the special words is unknown, as it would end sentences."""

    words: Sequence[str]

    def __post_init__(self) -> None:
        if tuple(self.words[: len(SPECIAL)]) != SPECIAL:
            raise ValueError(f"a vocabulary begins with {', '.join(SPECIAL)}, got {list(self.words[:4])}")
        if " ".join(self.words).split() != list(self.words):
            raise ValueError("a word of a vocabulary is empty or has spaces in it, as no word of a text has")

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """By word, without the special ones."""
        return {word: i for i, word in enumerate(self.words) if i >= len(SPECIAL)}

    def encode(self, words: Iterable[str]) -> list[int]:
        return [self.numbers.get(word, UNK) for word in words]

    def decode(self, numbers: Iterable[int]) -> list[str]:
        """The words up to the first end mark."""
        return [self.words[number] for number in takewhile(lambda number: number != EOS, numbers)]


def count_words(sentences: Iterable[Iterable[str]], most: int | None = None, min_count: int = 1) -> Words:
    """The words that occur at least min_count times, the most frequent first.

    most: how many at most, counting <unk>, <s> and </s>, as the lists of Stanford's En-Vi files do.
    """
    most = None if most is None else most - len(SPECIAL) + 1  # torchtext counts none of the special ones
    counts = Counter(chain.from_iterable(sentences))
    return Words(Vocab(counts, max_size=most, min_freq=min_count, specials=list(SPECIAL)).itos)
