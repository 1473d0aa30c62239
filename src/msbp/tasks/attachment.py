"""Attachment scores: the share of words with the right head (UAS), and with the right head and label (LAS).

Letters: N words or nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike

from .treebank import Sentence


@dataclass(frozen=True)
class Punctuation:
    """Which words are punctuation: those with one of `values` in this part of the gold sentence."""

    part: str
    values: frozenset[str]

    def marks(self, sentence: Sentence) -> list[bool]:
        """Which words of a sentence are punctuation."""
        return [value in self.values for value in getattr(sentence, self.part)]

    def rule(self, found: bool) -> str:
        """For a metric signature; a rule that finds nothing may not fit the tags of the corpus."""
        outcome = "left out" if found else "none found"
        return f"punctuation:{outcome} by {self.part} {' '.join(sorted(self.values))}"


PUNCTUATION = {
    "tags": Punctuation("tags", frozenset({"``", "''", ",", ".", ":"})),  # $ and % are words
    "upos": Punctuation("upos", frozenset({"PUNCT"})),
}


@dataclass(frozen=True)
class Attachment:
    """Percent of the counted words, how many these are, and the rule that chose them."""

    uas: float
    las: float
    words: int
    rule: str

    @classmethod
    def of(
        cls, gold: Sequence[ArrayLike], found: Sequence[ArrayLike], counted: ArrayLike, rule: str
    ) -> Attachment:
        """From heads and labels, (N) each, of the gold and the found trees. ValueError if no word counts."""
        counted = np.asarray(counted, bool)
        if not counted.any():
            raise ValueError(f"no word to score ({rule})")
        heads, labels = (np.asarray(a) == np.asarray(b) for a, b in zip(gold, found, strict=True))
        right, labelled = heads[counted], (heads & labels)[counted]
        return cls(100 * float(right.mean()), 100 * float(labelled.mean()), len(right), rule)


def attachment(
    gold: Sequence[Sentence], found: Sequence[Sentence], punctuation: Punctuation | None = None
) -> Attachment:
    """Scores of the found trees, without the gold sentences' punctuation if a rule is given.

    ValueError if the sentences differ in words or number.
    """
    if len(gold) != len(found):
        raise ValueError(f"{len(found)} sentences to score against {len(gold)} gold ones")
    for ours, theirs in zip(gold, found, strict=True):
        if ours.words != theirs.words:
            raise ValueError(f"{theirs.source}: not the words of the gold sentence at {ours.source}")
    marks = [punctuation.marks(s) if punctuation else [False] * len(s) for s in gold]
    marked = np.array(list(chain.from_iterable(marks)), bool)
    rule = punctuation.rule(bool(marked.any())) if punctuation else "punctuation:counted"
    return Attachment.of(_arcs(gold), _arcs(found), ~marked, rule)


def _arcs(sentences: Sequence[Sentence]) -> tuple[list[int], list[str]]:
    heads = chain.from_iterable(s.heads for s in sentences)
    return list(heads), list(chain.from_iterable(s.labels for s in sentences))
