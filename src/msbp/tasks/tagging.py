"""Part-of-speech tagging (paper, Section 6, Table 2): words, features of spelling, tags, packed batches.

Letters: W words of a split, S its sentences, N words of a batch, time step after time step; T time steps, F
features.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import pydantic.dataclasses
import torch
from torch import Tensor, nn

from ..config import STRICT
from . import synthetic
from .base import Batch, Count, Cutoff, Name, Sample, Score, Splits, Task, accuracy, digest, in_buckets
from .text import UNKNOWN, WordVectors, load_vectors, vocabulary
from .treebanks import Corpus, Sentence

TAGS = {"xpos": "tags", "upos": "upos"}
Spelling = Mapping[str, Callable[[str], str]]  # features of a word by name


class TaggedWords(NamedTuple):
    """A sentence and a tag for each word."""

    words: Sequence[str]
    tags: Sequence[str]


@dataclass(frozen=True)
class Tagged:
    """A split, its sentences concatenated: words (W), features (W, F), tags (W), lengths of sentences (S)."""

    words: Tensor
    features: Tensor
    tags: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def starts(self) -> Tensor:
        """The position of the first word of each sentence (S)."""
        return self.lengths.cumsum(0) - self.lengths

    def batch(self, chosen: Tensor) -> Batch:
        """Return the words (N), features (N, F), the number of words of each time step (T), tags (N).

        The longest sentence is first.
        """
        chosen = chosen[self.lengths[chosen].argsort(descending=True, stable=True)]
        steps = torch.arange(int(self.lengths[chosen[0]]))[:, None]
        present = steps < self.lengths[chosen]
        index = (self.starts[chosen] + steps)[present]
        return self.words[index], self.features[index], present.sum(1), self.tags[index]


class Encoder:
    """Numbers for words, spellings and tags; 0 is the unknown word or spelling.

    A word is known if it has a vector, or occurs more than `cutoff` times in training; a spelling if it
    occurs more than `cutoff` times in training; the tags are those of all splits.
    """

    def __init__(
        self, splits: Mapping[str, Sequence[TaggedWords]], spelling: Spelling, vectors: WordVectors | None,
        cutoff: int, seed: int,
    ):  # fmt: skip
        train = [word for sentence in splits["train"] for word in sentence.words]
        known = set(vectors.itos if vectors else ()) | frequent((word.lower() for word in train), cutoff)
        every = ([w for w in map(str.lower, s.words) if w in known] for part in splits.values() for s in part)
        self.words = vocabulary(every, vectors, seed)
        self.spelling = spelling
        self.values = {key: number(frequent(map(of, train), cutoff)) for key, of in spelling.items()}
        self.tags = number({tag for part in splits.values() for s in part for tag in s.tags}, first=0)

    @property
    def sizes(self) -> dict[str, object]:
        """The sizes that a tagger's constructor needs."""
        features = {key: 1 + len(values) for key, values in self.values.items()}
        vectors = self.words.vectors
        return {
            "vocabulary": len(self.words), "features": features, "outputs": len(self.tags), "vectors": vectors
        }  # fmt: skip

    def encode(self, sentences: Sequence[TaggedWords]) -> Tagged:
        """Return a split as numbers."""
        words = list(chain.from_iterable(s.words for s in sentences))
        features = [
            [values.get(self.spelling[key](w), 0) for key, values in self.values.items()] for w in words
        ]
        return Tagged(
            torch.tensor([self.words[word.lower()] for word in words]),
            torch.tensor(features, dtype=torch.int64).view(len(words), len(self.values)),
            torch.tensor([self.tags[tag] for s in sentences for tag in s.tags]),
            torch.tensor([len(s.words) for s in sentences]),
        )

    def unknown(self, split: Tagged) -> int:
        """Return the number of unknown words of a split."""
        return int((split.words == self.words[UNKNOWN]).sum())


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


def frequent(values: Iterable[str], cutoff: int) -> set[str]:
    """Return the values that occur more than `cutoff` times."""
    return {value for value, count in Counter(values).items() if count > cutoff}


def number(values: Iterable[str], first: int = 1) -> dict[str, int]:
    """Return the number of each value, in alphabetic order."""
    return {value: i for i, value in enumerate(sorted(values), first)}


def capitals(word: str) -> str:
    """Return the pattern of capital letters: none | first (the first alone) | all (of several) | some."""
    if word == word.lower():
        return "none"
    if word[0].isupper() and word[1:] == word[1:].lower():
        return "first"
    return "all" if word == word.upper() else "some"


def suffix(word: str, letters: int) -> str:
    """Return the last letters, lower-cased; every digit is 0, because numbers differ in little else."""
    return re.sub(r"\d", "0", word.lower())[-letters:]
