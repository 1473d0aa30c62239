"""Attachment scores: the share of words with the right head (UAS), and with the right head and label (LAS).

Letters: N words or nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..treebanks.corpus import Sentence


@dataclass(frozen=True)
class Punctuation:
    """The rule that words with one of `values` in a field of the gold sentence are punctuation."""

    field: str
    values: frozenset[str]

    def marks(self, sentence: Sentence) -> list[bool]:
        """For each word of a sentence, true if it is punctuation."""
        return [value in self.values for value in getattr(sentence, self.field)]

    def rule(self, matched: bool) -> str:
        """Its part of a metric signature; a rule that matched nothing may not fit the tags of the corpus."""
        outcome = "left out" if matched else "none found"
        return f"punctuation:{outcome} by {self.field} {' '.join(sorted(self.values))}"


PUNCTUATION = {
    "tags": Punctuation("tags", frozenset({"``", "''", ",", ".", ":"})),  # $ and % are words
    "upos": Punctuation("upos", frozenset({"PUNCT"})),
}


@dataclass(frozen=True)
class Attachment:
    """Percent of the counted words, their number, and the punctuation rule that excluded others."""

    uas: float
    las: float
    words: int
    rule: str

    @classmethod
    def of(
        cls, gold: Sequence[ArrayLike], parsed: Sequence[ArrayLike], counted: ArrayLike, rule: str
    ) -> Attachment:
        """From heads and labels, (N) each, of gold and parsed trees. ValueError if no word counts."""
        counted = np.asarray(counted, bool)
        if not counted.any():
            raise ValueError(f"no word to score ({rule})")
        heads, labels = (np.asarray(a) == np.asarray(b) for a, b in zip(gold, parsed, strict=True))
        right, labelled = heads[counted], (heads & labels)[counted]
        return cls(100 * float(right.mean()), 100 * float(labelled.mean()), len(right), rule)
