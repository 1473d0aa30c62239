"""Beam search for a model of next-word log-probabilities, all sentences of a batch at once.

Letters: B sentences, W hypotheses kept of each, A = B * W active rows, V words, L words of a hypothesis so
far, C candidates for the next step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Protocol, Self, TypeVar

import torch
from pydantic import Field
from torch import Tensor

TIMES, MORE = 2, 10  # a translation has at most 2 * S + 10 words, S those of its source
Width = Annotated[int, Field(ge=1, le=1000)]
# float32 holds any length ** 5
Alpha = Annotated[float, Field(ge=0, le=5, allow_inf_nan=False)]


class State(Protocol):
    """The state of a model between two words of each row."""

    def select(self, index: Tensor) -> Self:
        """Return the rows of index, in its order; a row may be repeated or left out."""
        ...


S = TypeVar("S", bound=State)


class Decoder(Protocol[S]):
    """A model that decodes word by word."""

    def encode(self, source: Tensor, lengths: Tensor) -> S:
        """Return the state of B rows before the first word; source (B, S), lengths (B)."""
        ...

    def step(self, tokens: Tensor, state: S) -> tuple[Tensor, S]:
        """Return log-probabilities (A, V) of the words after tokens (A), and the next state."""
        ...


@dataclass(frozen=True)
class BeamSearch:
    """The translation whose log-probability / length ** alpha is highest among those that a beam finds.

    begin, end: the numbers of the words that open and close a sentence; the end counts in the length.
    never: words that no translation has.  width: 1 is greedy search.
    A sentence is done when no open hypothesis can win, or when `width` have ended and one of them leads.
    """

    begin: int
    end: int
    never: Sequence[int] = ()
    width: int = 10
    alpha: float = 1.0

    def __call__(self, model: Decoder[S], source: Tensor, lengths: Tensor) -> list[list[int]]:
        """Return the numbers of the words of each translation, without begin and end.

        source (B, S), lengths (B).
        """
        best = Best.none(TIMES * lengths + MORE, source.device)
        beams = Beams.start(len(lengths), self.begin, source.device)
        state = model.encode(source, lengths)
        for length in count(1):  # of the hypotheses after this step
            logp, state = model.step(beams.tokens.flatten(), state)
            last = best.limit[beams.sentences] < length
            scores, parents, words = self._candidates(beams, logp, last)
            ends = words == self.end
            # only the first `width` candidates may end, so that a beam of 1 is greedy
            ended = scores.masked_fill(~ends, -math.inf)[:, : self.width] / float(length) ** self.alpha
            best.add(beams, ended, parents)
            goes_on = ends.byte().argsort(dim=1, stable=True)[:, : self.width]  # ended ones last
            scores = scores.masked_fill(ends, -math.inf).gather(1, goes_on)
            done = last | self._settled(best, beams.sentences, scores[:, 0], length)
            open_ = (~done).nonzero().flatten()
            if not len(open_):
                return best.translations()
            chosen = goes_on[open_]
            rows = parents[open_].gather(1, chosen) + open_[:, None] * beams.width
            state = state.select(rows.flatten())
            beams = beams.extended(open_, rows, scores[open_], words[open_].gather(1, chosen))
        raise AssertionError("unreachable: all hypotheses end at their limits")

    def _candidates(self, beams: Beams, logp: Tensor, last: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores, hypotheses and words (B, C) of the best continuations, the best first.

        There are 2 W of them: at most W end, so that W stay open. In `last` sentences (B) all must end.
        """
        total = beams.scores[:, :, None] + logp.view(len(beams.scores), beams.width, -1)
        total[:, :, list(self.never)] = -math.inf
        if last.any():
            ending = total[last][:, :, self.end]
            total[last] = -math.inf
            total[last, :, self.end] = ending
        words = total.shape[2]
        scores, index = total.flatten(1).topk(min(2 * self.width, beams.width * words))
        return scores, index // words, index % words

    def _settled(self, best: Best, sentences: Tensor, open_score: Tensor, length: int) -> Tensor:
        """Return a mask of the sentences (B) that are done.

        open_score (B): the best score of an open hypothesis.
        """
        score, full = best.score[sentences], best.count[sentences] >= self.width
        attainable = open_score / (best.limit[sentences] + 1.0) ** self.alpha  # no step adds to a score
        return (score >= attainable) | full & (score >= open_score / float(length) ** self.alpha)


@dataclass
class Beams:
    """Open hypotheses: their sentences (B), scores and last words (B, W), all their words (B, W, L)."""

    sentences: Tensor
    scores: Tensor
    tokens: Tensor
    words: Tensor

    @classmethod
    def start(cls, size: int, begin: int, device: torch.device) -> Beams:
        tokens = torch.full((size, 1), begin, device=device)
        scores = torch.zeros((size, 1), device=device)
        return cls(torch.arange(size, device=device), scores, tokens, tokens[:, :, None][:, :, :0])

    @property
    def width(self) -> int:
        return self.scores.shape[1]

    def extended(self, open_: Tensor, rows: Tensor, scores: Tensor, tokens: Tensor) -> Beams:
        """Return the hypotheses of the rows (B, W) with one word more each, of the sentences open_ alone."""
        words = torch.cat([self.words.flatten(0, 1)[rows], tokens[:, :, None]], 2)
        return Beams(self.sentences[open_], scores, tokens, words)


@dataclass
class Best:
    """The best ended translation of every sentence: score, length (B) and words (B, longest); count of ended.

    limit (B): the largest length of a translation.
    """

    limit: Tensor
    score: Tensor
    count: Tensor
    length: Tensor
    words: Tensor

    @classmethod
    def none(cls, limit: Tensor, device: torch.device) -> Best:
        limit = limit.to(device)
        zeros = torch.zeros_like(limit)
        words = zeros.new_zeros(len(limit), int(limit.max()))
        return cls(limit, torch.full(limit.shape, -math.inf, device=device), zeros, zeros.clone(), words)

    def add(self, beams: Beams, ended: Tensor, parents: Tensor) -> None:
        """Add hypotheses that have ended; ended (B, C): their normalised scores, -inf for others."""
        self.count[beams.sentences] += ended.isfinite().sum(1)
        value, which = ended.max(1)
        better = (value > self.score[beams.sentences]).nonzero().flatten()
        words = beams.words[better, parents[better, which[better]]]
        sentences = beams.sentences[better]
        self.score[sentences] = value[better]
        self.length[sentences] = words.shape[1]
        self.words[sentences, : words.shape[1]] = words

    def translations(self) -> list[list[int]]:
        pairs = zip(self.words.tolist(), self.length.tolist(), strict=True)
        return [words[:length] for words, length in pairs]
