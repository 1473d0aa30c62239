"""Part-of-speech tagging (paper section 5, Table 1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..limits import check_choice, check_counts
from .base import SAMPLES, Batch, Score, Splits, accuracy, in_buckets
from .corpora import Corpus
from .invented import invented
from .spelling import capitals, suffix
from .tagged import Encoder, Spelling, Tagged, TaggedWords
from .text import WordVectors, find_vectors
from .treebank import Sentence

TINY = {"train": 300, "dev": 60, "test": 60}  # sentences
TAGS = {"xpos": "tags", "upos": "upos"}
FEATURES = ("capitals", "suffixes")


@dataclass
class Tagging:
    """One tag a word; accuracy counts words. A tagger sees a word lower-cased, and features of its spelling.

    tags: xpos (fine-grained, the Penn Treebank's in the English corpora) | upos.
    features: any of capitals, suffixes; suffix: how many letters of a word are its suffix.
    cutoff: words without a vector, and suffixes, seen no more often than this in training are unknown.
    bucket: the sentences of so many batches are sorted by length before they are cut into batches.
    vectors: the folder of word vectors, None for none.
    """

    name: str
    corpus: Corpus
    batch_size: int
    tags: str = "xpos"
    features: Sequence[str] = FEATURES
    suffix: int = 3
    cutoff: int = 1
    bucket: int = 8
    vectors: str | None = "glove_6b_100d"
    sample: str = "full"
    data: str | Path = "data"
    metric: ClassVar[str] = "accuracy"
    unit: ClassVar[str] = "words"

    def __post_init__(self) -> None:
        check_counts("task", batch_size=self.batch_size, suffix=self.suffix, bucket=self.bucket)
        check_counts("task", least=0, cutoff=self.cutoff)
        check_choice("task.sample", self.sample, SAMPLES)
        check_choice("task.tags", self.tags, TAGS)
        if unknown := [feature for feature in self.features if feature not in FEATURES]:
            raise ValueError(
                f"task.features may list {', '.join(FEATURES)}, got {', '.join(map(repr, unknown))}"
            )

    def splits(self, seed: int) -> Splits:
        sentences = self.read()
        spelling: Spelling = {"capitals": capitals, "suffixes": partial(suffix, letters=self.suffix)}
        wanted = {feature: spelling[feature] for feature in self.features}
        vectors = self.read_vectors(sentences)
        encoder = Encoder(sentences, wanted, vectors, self.cutoff, seed)
        made = {split: encoder.encode(part) for split, part in sentences.items()}
        notes = [
            f"{split}: {len(part)} sentences, {len(part.words)} words, {encoder.unknown(part)} unknown"
            for split, part in made.items()
        ]
        notes += [] if vectors is None else [vectors.note()]
        sizes = encoder.sizes | (
            {"vectors": made_up_vectors(len(encoder.words))} if self.sample == "tiny" else {}
        )
        return Splits(**made, sizes=sizes, notes=(*notes, f"{len(encoder.tags)} tags ({self.tags})"))

    def read(self) -> dict[str, list[TaggedWords]]:
        """The tagged sentences of each split."""
        if self.sample == "tiny":
            read = {split: invented(count, seed=i) for i, (split, count) in enumerate(TINY.items())}
        else:
            files = self.corpus.files()
            read = {
                split: [s for path in paths for s in self.corpus.read(path)] for split, paths in files.items()
            }
        return {split: [self._tagged(sentence) for sentence in part] for split, part in read.items()}

    def _tagged(self, sentence: Sentence) -> TaggedWords:
        tags = getattr(sentence, TAGS[self.tags])
        if "_" in tags:
            raise ValueError(
                f"{sentence.source}: a word without a tag; task.tags={self.tags} needs one for each"
            )
        return TaggedWords(sentence.words, tags)

    def read_vectors(self, sentences: dict[str, list[TaggedWords]]) -> WordVectors | None:
        """The vectors of the words that occur."""
        if self.vectors is None or self.sample == "tiny":
            return None
        words = {word.lower() for part in sentences.values() for s in part for word in s.words}
        return WordVectors(find_vectors(self.data, self.vectors), words)

    def batches(self, split: Tagged, seed: int, epoch: int) -> Iterator[Batch]:
        """Sentences of about one length together, as `Tagged.batch` gives them."""
        return map(split.batch, in_buckets(split.lengths, self.batch_size, self.bucket, seed, epoch))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return model.loss(*batch)  # type: ignore[operator]

    def score(self, model: nn.Module, split: Tagged) -> Score:
        batches = map(split.batch, split.lengths.argsort(stable=True).split(self.batch_size))
        return Score(accuracy(model, batches), f"{self.metric} per word, {self.tags}")


def made_up_vectors(words: int, width: int = 20) -> Tensor:
    """Vectors for the words of the invented treebank."""
    return torch.randn(words, width, generator=torch.Generator().manual_seed(0))
