"""Sentence classification: MR sentence polarity and SUBJ subjectivity (Pang and Lee), for TextCNN.

Letters: B sentences of a batch, N their words, concatenated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pydantic.dataclasses
import torch
from torch import Tensor, nn

from ...config import STRICT
from .. import synthetic
from ..base import Batch, Count, Name, Sample, Score, Splits, Task, accuracy, digest, order
from ..download import labelled_lines
from ..text import load_vectors, vocabulary
from .corpus import FOLDS, PROTOCOLS, LabelledSentences, read_corpus

SCORED_AT_ONCE = 256


@dataclass(frozen=True)
class Sentences:
    """A split: the words of each sentence as numbers, and the labels."""

    words: list[Tensor]
    labels: Tensor

    def __len__(self) -> int:
        return len(self.words)

    def batch(self, chosen: Tensor) -> Batch:
        """Return the words (N), offsets of the sentences in them (B + 1), labels (B)."""
        words = [self.words[i] for i in chosen.tolist()]
        ends = np.cumsum([0, *map(len, words)])
        return torch.cat(words), torch.from_numpy(ends), self.labels[chosen]


@pydantic.dataclasses.dataclass(config=STRICT)
class SentenceClassification(Task[Sentences]):
    """Two classes from two files; train, dev and test by protocol.

    protocol: cross_validation (Kim 2014; the seed is the fold) | fixed_split (seeds repeat one split).
    vectors: the folder of word vectors, None for none.
    """

    name: Name
    batch_size: Count
    folder: str
    files: Sequence[str]
    hub: str
    protocol: Literal["cross_validation", "fixed_split"] = "cross_validation"
    vectors: str | None = "glove_6b_100d"
    sample: Sample = "full"
    data: str | Path = "data"
    offline: bool = False
    metric: ClassVar[str] = "accuracy"
    unit: ClassVar[str] = "sentences"

    def __post_init__(self) -> None:
        if len(set(self.files)) < max(2, len(self.files)):
            raise ValueError(f"task.files must name two files or more, one a class, got {self.files!r}")

    def splits(self, seed: int) -> Splits[Sentences]:
        tiny = self.sample == "tiny"
        paths = [] if tiny else self.find()
        corpus = synthetic.labelled_sentences() if tiny else self.read(paths)
        parts = PROTOCOLS[self.protocol](corpus.labels, seed)
        every = {word for sentence in corpus.sentences for word in sentence}
        vectors = None if tiny else load_vectors(self.data, self.vectors, every)
        known = set() if vectors is None else set(vectors.itos)  # those of training need no vector
        known |= {word for i in parts[0] for word in corpus.sentences[i]}
        words = vocabulary(([w for w in s if w in known] for s in corpus.sentences), vectors, seed)
        labels = torch.tensor(corpus.labels)
        numbers = [torch.tensor([words[word] for word in sentence]) for sentence in corpus.sentences]
        train, dev, test = (Sentences([numbers[i] for i in part], labels[part]) for part in parts)
        rows = synthetic.sentence_vectors(len(words)) if tiny else words.vectors
        sizes = {"vocabulary": len(words), "outputs": len(self.files), "vectors": rows}
        notes = [*corpus.notes, *([] if vectors is None else [vectors.note()]), f"protocol {self.protocol}"]
        if tiny:
            data = synthetic.digest("labelled sentences", synthetic.LABELLED)
        else:
            data = digest([*paths, *([] if vectors is None else [vectors.path])])
        return Splits(train, dev, test, sizes, tuple(notes), digest=data)

    def read(self, paths: Sequence[Path]) -> LabelledSentences:
        """Return the sentences of the files; ValueError if one has too few for the folds."""
        corpus = read_corpus(paths)
        for label, path in enumerate(paths):
            if (count := corpus.labels.count(label)) < FOLDS:
                raise ValueError(
                    f"{path} holds {count} sentences, at least {FOLDS} are needed: get the file anew"
                )
        return corpus

    def find(self) -> list[Path]:
        """Return the files, one a class; fetches them where they are missing and a download is allowed."""
        paths = [Path(self.data, self.folder, name) for name in self.files]
        labelled_lines(self.hub, paths, self.offline)
        return paths

    def batches(self, split: Sentences, seed: int, epoch: int) -> Iterator[Batch]:
        """Return batches as of `Sentences.batch`."""
        return map(split.batch, order(len(split), seed, epoch).split(self.batch_size))

    def score(self, model: nn.Module, split: Sentences) -> Score:
        batches = map(split.batch, torch.arange(len(split)).split(SCORED_AT_ONCE))
        return Score(accuracy(model, batches), f"{self.metric}, {self.protocol}")
