"""Part-of-speech tagging (paper section 5, Table 1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import pydantic.dataclasses
from torch import nn

from ...config import STRICT
from .. import synthetic
from ..base import Batch, Count, Cutoff, Name, Sample, Score, Splits, Task, accuracy, digest, in_buckets
from ..text import load_vectors
from ..treebanks.corpus import Corpus, Sentence
from .encoding import Encoder, Spelling, Tagged, TaggedWords, capitals, suffix

TAGS = {"xpos": "tags", "upos": "upos"}


@pydantic.dataclasses.dataclass(config=STRICT)
class Tagging(Task[Tagged]):
    """One tag a word; accuracy counts words. A tagger sees a word lower-cased, and features of its spelling.

    tags: xpos (fine-grained, the Penn Treebank's in the English corpora) | upos.
    features: any of capitals, suffixes; suffix: number of letters of a suffix.
    cutoff: words without a vector, and suffixes, that occur no more often than this in training are unknown.
    bucket: number of batches whose sentences are sorted by length together.
    vectors: the folder of word vectors, None for none.
    """

    name: Name
    corpus: Corpus
    batch_size: Count
    tags: Literal["xpos", "upos"] = "xpos"
    features: Sequence[Literal["capitals", "suffixes"]] = ("capitals", "suffixes")
    suffix: Count = 3
    cutoff: Cutoff = 1
    bucket: Count = 8
    vectors: str | None = "glove_6b_100d"
    sample: Sample = "full"
    data: str | Path = "data"
    metric: ClassVar[str] = "accuracy"
    unit: ClassVar[str] = "words"

    def splits(self, seed: int) -> Splits[Tagged]:
        tiny = self.sample == "tiny"
        files = {} if tiny else self.corpus.files()
        read = synthetic.treebanks() if tiny else {split: self.read(paths) for split, paths in files.items()}
        sentences = {split: [self._tagged(sentence) for sentence in part] for split, part in read.items()}
        words = {word.lower() for part in sentences.values() for s in part for word in s.words}
        vectors = None if tiny else load_vectors(self.data, self.vectors, words)
        spelling: Spelling = {"capitals": capitals, "suffixes": partial(suffix, letters=self.suffix)}
        chosen = {str(feature): spelling[feature] for feature in self.features}
        encoder = Encoder(sentences, chosen, vectors, self.cutoff, seed)
        if len(encoder.words) == 1:
            raise ValueError(
                f"task.cutoff={self.cutoff} makes every word unknown: none occurs more often in training, "
                "and none has a vector; lower it"
            )
        parts = {split: encoder.encode(part) for split, part in sentences.items()}
        notes = [
            f"{split}: {len(part)} sentences, {len(part.words)} words, {encoder.unknown(part)} unknown"
            for split, part in parts.items()
        ]
        notes += [] if vectors is None else [vectors.note()]
        notes.append(f"{len(encoder.tags)} tags ({self.tags})")
        if tiny:
            sizes = encoder.sizes | {"vectors": synthetic.tagger_vectors(len(encoder.words))}
            data = synthetic.digest("treebank", synthetic.TREEBANK)
        else:
            paths = [path for part in files.values() for path in part]
            sizes, data = encoder.sizes, digest([*paths, *([] if vectors is None else [vectors.path])])
        return Splits(parts["train"], parts["dev"], parts["test"], sizes, tuple(notes), digest=data)

    def read(self, paths: Sequence[Path]) -> list[Sentence]:
        return [sentence for path in paths for sentence in self.corpus.read(path)]

    def _tagged(self, sentence: Sentence) -> TaggedWords:
        tags = getattr(sentence, TAGS[self.tags])
        if "_" in tags:
            raise ValueError(
                f"{sentence.source}: a word without a tag; task.tags={self.tags} needs one for each"
            )
        return TaggedWords(sentence.words, tags)

    def batches(self, split: Tagged, seed: int, epoch: int) -> Iterator[Batch]:
        """Return batches as of `Tagged.batch`, of sentences of similar length."""
        return map(split.batch, in_buckets(split.lengths, self.batch_size, self.bucket, seed, epoch))

    def score(self, model: nn.Module, split: Tagged) -> Score:
        batches = map(split.batch, split.lengths.argsort(stable=True).split(self.batch_size))
        return Score(accuracy(model, batches), f"{self.metric} per word, {self.tags}")
