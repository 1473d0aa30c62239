"""Translation with an encoder and a decoder (paper, Section 6, Table 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from typing import Annotated, ClassVar, Literal, cast

import pydantic.dataclasses
import torch
from pydantic import Field
from sacrebleu.metrics import BLEU
from torch import nn

from ...config import STRICT
from .. import synthetic
from ..base import Batch, Count, Name, Sample, Score, Splits, Task, digest
from .beam_search import Alpha, BeamSearch, Decoder, Width
from .bitext import Bitext, ParallelText, read_texts
from .encoding import BOS, EOS, PAD, SPECIAL, TOKENS, UNK, Pairs, Side, Tokens, Words, count_words

Vocabulary = Annotated[int, Field(ge=10, le=2**31 - 1)]
SOURCE_WORDS, TARGET_WORDS = "source.words.txt", "target.words.txt"  # kept with a run that translates later
VIEWS = "tokenised", "detokenised"
Tokenizer = Literal["13a", "zh", "intl", "char", "none"]  # sacreBLEU's others need packages or a download
Lines = Sequence[str]


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Bleu:
    """BLEU of two views of the same translations, of which one is the score.

    score: tokenised (words separated by spaces, tok:none, as multi-bleu counts) | detokenised (plain text,
    cut by sacreBLEU's tokenizer).  ignore_case: of the tokenised view.  tokenizer: of the detokenised one.
    """

    score: Literal["tokenised", "detokenised"] = "detokenised"
    ignore_case: bool = False
    tokenizer: Tokenizer = "13a"

    def __call__(
        self, translations: Sequence[Sequence[str]], references: Sequence[Lines], tokens: Tokens
    ) -> Score:
        """Return BLEU in percent of translations as words; each reference has as many lines as there are."""
        lines = {view: list(map(write, translations)) for view, write in writers(tokens).items()}
        expected = {view: self.written(references, tokens, view) for view in VIEWS}
        counted = {view: self.count(view, lines[view], expected[view]) for view in VIEWS}
        (other,) = set(VIEWS) - {self.score}
        return Score(
            counted[self.score][0],
            f"bleu {self.score}|{counted[self.score][1]}; {other}|{counted[other][1]}",
            {f"bleu_{view}": value for view, (value, _) in counted.items()},
            lines[self.score],
        )

    def written(
        self, references: Sequence[Lines], tokens: Tokens, view: str | None = None
    ) -> list[list[str]]:
        """Return the lines of each reference in a view, by default in that of the score."""
        write = writers(tokens)[view or self.score]
        return [[write(tokens.split(line)) for line in lines] for lines in references]

    def count(self, view: str, translations: Lines, references: Sequence[Lines]) -> tuple[float, str]:
        """Return BLEU in percent and its signature."""
        # force: no warning for each corpus whose full stops are words
        if view == "tokenised":
            metric = BLEU(lowercase=self.ignore_case, tokenize="none", force=True)
        else:
            metric = BLEU(tokenize=self.tokenizer, force=True)
        value = metric.corpus_score(translations, references).score
        return value, str(metric.get_signature())


def writers(tokens: Tokens) -> dict[str, Callable[[Sequence[str]], str]]:
    """Return for each view the function from the words of a sentence to a line."""
    return {"tokenised": " ".join, "detokenised": tokens.join}


@pydantic.dataclasses.dataclass(config=STRICT)
class Translation(Task[Pairs]):
    """From one language to another, sentence by sentence; the score is BLEU of a beam search.

    corpus: None for a task that only translates.
    tokens: spaces (the corpus comes tokenised) | edges (raw text, cut at punctuation).
    lower: the side whose words are lower-cased: none | source | both; references never are.
    source_words, target_words: the largest vocabulary, with <unk>, <s> and </s>; None: no limit.
    min_count: words that occur less often in training are unknown.
    longest: training pairs with more words on a side are left out, as are those with none on one.
    bucket: number of batches whose pairs are sorted by length together.
    beam, dev_beam: widths of the search on test and on dev, which chooses the epoch.
    alpha: hypotheses compete by log-probability / length ** alpha.
    """

    name: Name
    corpus: Bitext | None
    batch_size: Count
    tokens: Literal["spaces", "edges"] = "spaces"
    lower: Literal["none", "source", "both"] = "none"
    source_words: Vocabulary | None = None
    target_words: Vocabulary | None = None
    min_count: Count = 1
    longest: Count = 100
    bucket: Count = 20
    beam: Width = 10
    dev_beam: Width = 1
    alpha: Alpha = 1.0
    bleu: Bleu = field(default_factory=Bleu)
    sample: Sample = "full"
    metric: ClassVar[str] = "bleu"
    unit: ClassVar[str] = "tokens"

    def splits(self, seed: int) -> Splits[Pairs]:
        texts, data = self.read()
        texts["train"], note = self.trainable(texts["train"])
        source, target = self.vocabularies(texts["train"])
        pairs = {split: self.pairs(text, source, target, split) for split, text in texts.items()}
        for split, part in pairs.items():
            if not len(part.complete):
                raise ValueError(
                    f"no {split} pair of {len(part)} has words on both sides: there is nothing to score, and "
                    "the files are not what they should be"
                )
        notes = [
            f"{split}: {len(part)} pairs, {len(part.source.words)} words ({part.source.unknown()} unknown) "
            f"to {len(part.target.words)} ({part.target.unknown()} unknown)"
            for split, part in pairs.items()
        ]
        sizes = {"source_words": len(source), "target_words": len(target)}
        keep = {SOURCE_WORDS: source.words, TARGET_WORDS: target.words}
        for i, lines in enumerate(self.bleu.written(texts["test"].references, TOKENS[self.tokens])):
            keep[f"references.{i}.txt"] = lines
        return Splits(**pairs, sizes=sizes, notes=(note, *notes), keep=keep, digest=data)

    def read(self) -> tuple[dict[str, ParallelText], str]:
        """Return the text of each split, and the digest of the data."""
        if self.sample == "tiny":
            return synthetic.parallel_texts(), synthetic.digest("parallel text", synthetic.PARALLEL)
        if self.corpus is None:
            raise ValueError("task.corpus is null: name a corpus, or task.sample=tiny for a synthetic one")
        files = self.corpus.files()
        data = digest(path for texts in files.values() for paths in texts for path in paths)
        return read_texts(files), data

    def vocabularies(self, train: ParallelText) -> tuple[Words, Words]:
        """Return the words of both sides of the training text.

        ValueError if all words of a side are unknown.
        """
        source = count_words(map(self.source, train.source), self.source_words, self.min_count)
        target = count_words(map(self.target, train.references[0]), self.target_words, self.min_count)
        for side, words in (("source", source), ("target", target)):
            if len(words) == len(SPECIAL):
                raise ValueError(
                    f"task.min_count={self.min_count} makes every {side} word unknown: none occurs so "
                    "often in training; lower it"
                )
        return source, target

    def trainable(self, text: ParallelText) -> tuple[ParallelText, str]:
        """Return the pairs to learn from, and a note on those left out. ValueError if none remain."""
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
        """Return the words of a source line."""
        return TOKENS[self.tokens].split(line.lower() if self.lower != "none" else line)

    def target(self, line: str) -> list[str]:
        """Return the words of a target line."""
        return TOKENS[self.tokens].split(line.lower() if self.lower == "both" else line)

    def pairs(self, text: ParallelText, source: Words, target: Words, split: str) -> Pairs:
        """Return a split as numbers; of several references the model sees the first."""
        return Pairs(
            Side.of(source.encode(self.source(line)) for line in text.source),
            Side.of(target.encode(self.target(line)) for line in text.references[0]),
            text.references,
            target,
            self.beam if split == "test" else self.dev_beam,
        )

    def batches(self, split: Pairs, seed: int, epoch: int) -> Iterator[Batch]:
        return split.batches(self.batch_size, self.bucket, seed, epoch)

    def score(self, model: nn.Module, split: Pairs) -> Score:
        """Return BLEU of the translations; others are the mean loss and BLEU of both views."""
        translations = [split.known.decode(words) for words in self.search(model, split.source, split.beam)]
        score = self.bleu(translations, split.references, TOKENS[self.tokens])
        rule = f"beam:{self.beam}|dev_beam:{self.dev_beam}|alpha:{self.alpha:g}|unk:never"
        others = {"loss": self.mean_loss(model, split)} | score.others
        return replace(score, signature=f"{score.signature}; {rule}", others=others)

    def mean_loss(self, model: nn.Module, split: Pairs) -> float:
        """Return the mean loss over the words of the target and their end marks."""
        device, total, count = next(model.parameters()).device, 0.0, 0
        for batch in split.batches(self.batch_size, self.bucket, seed=0, epoch=0):
            words = int((batch[-1] != PAD).sum())
            loss = self.loss(model, tuple(part.to(device) for part in batch))
            total, count = total + float(loss) * words, count + words
        return total / count

    def search(self, model: nn.Module, side: Side, beam: int) -> list[list[int]]:
        """Return the words of each translation by number; that of an empty sentence is empty."""
        search = BeamSearch(BOS, EOS, never=(PAD, UNK, BOS), width=beam, alpha=self.alpha)
        device = next(model.parameters()).device
        translations: list[list[int]] = [[] for _ in range(len(side))]
        filled = side.lengths.nonzero().flatten()
        if not len(filled):
            return translations
        longest_first = filled[side.lengths[filled].argsort(descending=True, stable=True)]
        for chosen in longest_first.split(self.batch_size):
            source, lengths = side.padded(chosen).to(device), side.lengths[chosen].to(device)
            outputs = search(cast(Decoder, model), source, lengths)
            for i, words in zip(chosen.tolist(), outputs, strict=True):
                translations[i] = words
        return translations

    def translate(self, model: nn.Module, lines: Sequence[str], source: Words, target: Words) -> list[str]:
        """Return a line of plain text for each line."""
        side = Side.of(source.encode(self.source(line)) for line in lines)
        with torch.no_grad():
            translations = self.search(model, side, self.beam)
        return [TOKENS[self.tokens].join(target.decode(words)) for words in translations]
