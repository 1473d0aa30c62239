"""Translation with an encoder and a decoder (paper section 5, table of sequence-to-sequence models)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..decoding import STEEPEST, WIDEST, BeamSearch
from ..kinds import fits
from ..limits import check_choice, check_counts
from .base import SAMPLES, Batch, Score, Splits
from .bitexts import Bitext
from .bleu import Bleu
from .pairs import Pairs, Side
from .parallel import ParallelText, made_up
from .tokens import TOKENS
from .vocabulary import BOS, EOS, PAD, UNK, Words, count_words

TINY = {"train": 320, "dev": 40, "test": 40}  # sentences
LOWER = ("none", "source", "both")
SOURCE_WORDS, TARGET_WORDS = "source.words.txt", "target.words.txt"  # what a run keeps to translate later


@dataclass
class Translation:
    """From one language to another, sentence by sentence; the score is BLEU of a beam search.

    tokens: spaces (the corpus comes tokenised) | edges (raw text, cut at punctuation).
    lower: whose words are lower-cased: none | source | both; references never are.
    source_words, target_words: the most words to know, with <unk>, <s> and </s>; None: all of them.
    min_count: words that training shows less often are unknown.
    longest: training pairs with more words on a side are left out, as are those with none on one.
    bucket: the pairs of so many batches are sorted by length before they are cut into batches.
    beam, dev_beam: widths of the search on test and on dev, which chooses the epoch.
    alpha: hypotheses compete by log-probability / length ** alpha.
    """

    name: str
    corpus: Bitext
    batch_size: int
    tokens: str = "spaces"
    lower: str = "none"
    source_words: int | None = None
    target_words: int | None = None
    min_count: int = 1
    longest: int = 100
    bucket: int = 20
    beam: int = 10
    dev_beam: int = 1
    alpha: float = 1.0
    bleu: Bleu = field(default_factory=Bleu)
    sample: str = "full"
    metric: ClassVar[str] = "bleu"
    unit: ClassVar[str] = "tokens"

    def __post_init__(self) -> None:
        counts = ("batch_size", "min_count", "longest", "bucket", "beam", "dev_beam")
        check_counts("task", **{key: getattr(self, key) for key in counts})
        for key in ("source_words", "target_words"):
            value = getattr(self, key)
            if value is not None and (not isinstance(value, int) or value < 10):
                raise ValueError(f"task.{key} must be a whole number of at least 10, or null, got {value!r}")
        for key, known in (("sample", SAMPLES), ("tokens", TOKENS), ("lower", LOWER)):
            check_choice(f"task.{key}", getattr(self, key), known)
        for key in ("beam", "dev_beam"):
            if getattr(self, key) > WIDEST:
                raise ValueError(f"task.{key} must be at most {WIDEST}, got {getattr(self, key)}")
        if not (fits(self.alpha, float) and 0 <= self.alpha <= STEEPEST):
            raise ValueError(
                f"task.alpha must be a number in [0, {STEEPEST}], got {self.alpha!r}; 0 does not look at the "
                "length"
            )

    def splits(self, seed: int) -> Splits:
        texts = self.read()
        texts["train"], note = self.trainable(texts["train"])
        lines, translations = texts["train"].source, texts["train"].references[0]
        source = count_words(map(self.source, lines), self.source_words, self.min_count)
        target = count_words(map(self.target, translations), self.target_words, self.min_count)
        made = {split: self.pairs(text, source, target, split) for split, text in texts.items()}
        for split, part in made.items():
            if not len(part.complete):
                raise ValueError(
                    f"no {split} pair of {len(part)} has words on both sides: there is nothing to score, and "
                    "the files are not what they should be"
                )
        notes = [
            f"{split}: {len(part)} pairs, {len(part.source.words)} words ({part.source.unknown()} unknown) "
            f"to {len(part.target.words)} ({part.target.unknown()} unknown)"
            for split, part in made.items()
        ]
        sizes = {"source_words": len(source), "target_words": len(target)}
        keep = {SOURCE_WORDS: source.words, TARGET_WORDS: target.words}
        for i, lines in enumerate(self.bleu.written(texts["test"].references, TOKENS[self.tokens])):
            keep[f"references.{i}.txt"] = lines
        return Splits(**made, sizes=sizes, notes=(note, *notes), keep=keep)

    def read(self) -> dict[str, ParallelText]:
        """The text of each split."""
        if self.sample == "tiny":
            return {split: made_up(count, seed) for seed, (split, count) in enumerate(TINY.items())}
        return self.corpus.read()

    def trainable(self, text: ParallelText) -> tuple[ParallelText, str]:
        """The pairs to learn from, and a note on those left out. ValueError if none remain."""
        lines, translations = text.source, text.references[0]
        sizes = [(len(self.source(a)), len(self.target(b))) for a, b in zip(lines, translations, strict=True)]
        empty = sum(min(pair) == 0 for pair in sizes)
        long = sum(min(pair) > 0 and max(pair) > self.longest for pair in sizes)
        chosen = [i for i, pair in enumerate(sizes) if min(pair) > 0 and max(pair) <= self.longest]
        if not chosen:
            raise ValueError(
                f"no training pair has 1 to {self.longest} words on both sides: task.longest is too small, "
                "or the files are not what they should be"
            )
        note = (
            f"train: left out {empty} pairs with an empty side and {long} of more than {self.longest} words"
        )
        kept = ParallelText([lines[i] for i in chosen], [[translations[i] for i in chosen]])
        return kept, note

    def source(self, line: str) -> list[str]:
        """The words of a line to be translated."""
        return TOKENS[self.tokens].split(line.lower() if self.lower != "none" else line)

    def target(self, line: str) -> list[str]:
        """The words of a translation."""
        return TOKENS[self.tokens].split(line.lower() if self.lower == "both" else line)

    def pairs(self, text: ParallelText, source: Words, target: Words, split: str) -> Pairs:
        """A split as numbers; of several references the model sees the first."""
        return Pairs(
            Side.of(source.encode(self.source(line)) for line in text.source),
            Side.of(target.encode(self.target(line)) for line in text.references[0]),
            text.references,
            target,
            self.beam if split == "test" else self.dev_beam,
        )

    def batches(self, split: Pairs, seed: int, epoch: int) -> Iterator[Batch]:
        return split.batches(self.batch_size, self.bucket, seed, epoch)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return model.loss(*batch)  # type: ignore[operator]

    def score(self, model: nn.Module, split: Pairs) -> Score:
        """BLEU of the translations; others are the mean loss and BLEU of both views."""
        found = [split.known.decode(words) for words in self.search(model, split.source, split.beam)]
        score = self.bleu(found, split.references, TOKENS[self.tokens])
        rule = f"beam:{self.beam}|dev_beam:{self.dev_beam}|alpha:{self.alpha:g}|unk:never"
        others = {"loss": self.mean_loss(model, split)} | score.others
        return replace(score, signature=f"{score.signature}; {rule}", others=others)

    def mean_loss(self, model: nn.Module, split: Pairs) -> float:
        """Over the words of the target and their end marks."""
        device, total, count = next(model.parameters()).device, 0.0, 0
        for batch in split.batches(self.batch_size, self.bucket, seed=0, epoch=0):
            words = int((batch[-1] != PAD).sum())
            loss = self.loss(model, tuple(part.to(device) for part in batch))
            total, count = total + float(loss) * words, count + words
        return total / count

    def search(self, model: Any, side: Side, beam: int) -> list[list[int]]:
        """The numbers of the words of each translation; that of an empty sentence is empty."""
        search = BeamSearch(BOS, EOS, never=(PAD, UNK, BOS), width=beam, alpha=self.alpha)
        device = next(model.parameters()).device
        found: list[list[int]] = [[] for _ in range(len(side))]
        filled = side.lengths.nonzero().flatten()
        if not len(filled):
            return found
        longest_first = filled[side.lengths[filled].argsort(descending=True, stable=True)]
        for chosen in longest_first.split(self.batch_size):
            lengths = side.lengths[chosen].to(device)
            for i, words in zip(
                chosen.tolist(), search(model, side.padded(chosen).to(device), lengths), strict=True
            ):
                found[i] = words
        return found

    def translate(self, model: nn.Module, lines: Sequence[str], source: Words, target: Words) -> list[str]:
        """A line of plain text for each line."""
        side = Side.of(source.encode(self.source(line)) for line in lines)
        with torch.no_grad():
            found = self.search(model, side, self.beam)
        return [TOKENS[self.tokens].join(target.decode(words)) for words in found]
