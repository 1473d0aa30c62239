"""Beam search against exhaustive and greedy search, on models that depend on the whole prefix."""

import itertools
import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from msbp.tasks.translation import beam_search
from msbp.tasks.translation.beam_search import BeamSearch

PAD, UNK, BEGIN, END = range(4)
NEVER = (PAD, UNK, BEGIN)
WORDS = 7  # the special ones with them


@dataclass
class State:
    """The sentence of each row and the words so far (A, L)."""

    sentence: Tensor
    words: Tensor

    def select(self, index: Tensor) -> "State":
        return State(self.sentence[index], self.words[index])


class Toy:
    """Log-probabilities of a next word that are noise seeded by the source and all words before."""

    def __init__(self, ending: float = 0.0):
        self.ending, self.rows = ending, []

    def encode(self, source, lengths):
        return State(source.sum(1), source[:, :0])

    def step(self, tokens, state):
        self.rows.append(len(tokens))
        words = torch.cat([state.words, tokens[:, None]], 1)
        pairs = zip(state.sentence.tolist(), words.tolist(), strict=True)
        return torch.stack([self.logp(*pair) for pair in pairs]).float(), State(state.sentence, words)

    def logp(self, sentence: int, words: list[int]) -> Tensor:
        seed = hash((sentence, *words)) % 2**32
        logits = torch.randn(WORDS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        logits[END] += self.ending
        return logits.log_softmax(0)


def sources(*lengths: int) -> tuple[Tensor, Tensor]:
    rows = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
    for row, length in zip(rows, lengths, strict=True):
        row[:length] = length + 4
    return rows, torch.tensor(lengths)


def exhaustive(model: Toy, sentence: int, longest: int, alpha: float) -> list[int]:
    """The best of all translations of up to `longest` words."""
    best, result = -math.inf, []
    for length in range(longest + 1):
        for words in itertools.product(range(END + 1, WORDS), repeat=length):
            path = [BEGIN, *words, END]
            score = sum(float(model.logp(sentence, path[:i])[path[i]]) for i in range(1, len(path)))
            if (value := score / (length + 1) ** alpha) > best:
                best, result = value, list(words)
    return result


@pytest.fixture
def short(monkeypatch):
    """Translations of up to four words, so that all can be tried."""
    monkeypatch.setattr(beam_search, "TIMES", 0)
    monkeypatch.setattr(beam_search, "MORE", 4)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 1.5])
def test_a_wide_beam_returns_the_translation_of_highest_probability(short, alpha):
    source, lengths = sources(2, 3, 1, 5)
    result = BeamSearch(BEGIN, END, NEVER, width=3**4, alpha=alpha)(Toy(), source, lengths)
    assert result == [exhaustive(Toy(), int(row.sum()), 4, alpha) for row in source]
    assert alpha < 1 or any(result)


def test_a_beam_of_one_is_greedy():
    source, lengths = sources(2, 3, 1, 4)
    result = BeamSearch(BEGIN, END, NEVER, width=1)(Toy(), source, lengths)
    for row, length, words in zip(source, lengths.tolist(), result, strict=True):
        path = [BEGIN]
        while path[-1] != END and len(path) <= 2 * length + 10:
            path.append(END + int(Toy().logp(int(row.sum()), path)[END:].argmax()))
        assert words == [word for word in path[1:] if word != END]


def test_a_wider_beam_returns_translations_of_no_lower_probability_on_average():
    def total(width: int) -> float:
        result = BeamSearch(BEGIN, END, NEVER, width=width, alpha=0.0)(Toy(1.0), source, lengths)
        paths = [[BEGIN, *words, END] for words in result]
        return sum(
            float(Toy(1.0).logp(int(row.sum()), path[:i])[path[i]])
            for row, path in zip(source, paths, strict=True)
            for i in range(1, len(path))
        )

    source, lengths = sources(1, 2, 3, 4, 5, 6)
    assert total(1) < total(4) <= total(12) + 1e-9


def test_every_search_ends_and_gives_no_special_word():
    source, lengths = sources(1, 3)
    result = BeamSearch(BEGIN, END, NEVER, width=3)(Toy(ending=-1000.0), source, lengths)
    assert [len(words) for words in result] == [12, 16]
    assert all(word > END for words in result for word in words)


def test_a_sentence_is_translated_alike_in_any_batch_and_every_time():
    source, lengths = sources(6, 2, 3, 1, 5)
    search = BeamSearch(BEGIN, END, NEVER, width=4)
    together = search(Toy(), source, lengths)
    assert together == search(Toy(), source, lengths)
    alone = [search(Toy(), source[i : i + 1], lengths[i : i + 1])[0] for i in range(5)]
    assert together == alone


def test_finished_sentences_are_not_decoded_further():
    class OneEndsAtOnce(Toy):
        def logp(self, sentence, words):
            wished = torch.full((WORDS,), -9.0)
            wished[END if sentence == 5 or len(words) > 3 else END + 1] = 0.0
            return wished.log_softmax(0)

    model = OneEndsAtOnce()
    result = BeamSearch(BEGIN, END, NEVER, width=2)(model, *sources(1, 2))
    assert result == [[], [4, 4, 4]]
    assert model.rows[:2] == [2, 2] and max(model.rows) <= 4  # first one row each, then two of what is left


def test_the_length_penalty_follows_alpha(short):
    source, lengths = sources(2, 3, 4, 5)
    lengths_at = [
        sum(map(len, BeamSearch(BEGIN, END, NEVER, 3**4, alpha)(Toy(1.0), source, lengths)))
        for alpha in (0.0, 2.0)
    ]
    assert lengths_at[0] < lengths_at[1]
