"""Sentence classification: MR sentence polarity and SUBJ subjectivity (Pang and Lee), for TextCNN.

Text files of labelled sentences, one file a class, one sentence a line; their folds; and batches. Letters: B
sentences of a batch, N their words, concatenated, or the examples of a corpus.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pydantic.dataclasses
import torch
from torch import Tensor, nn

from ..config import STRICT
from . import synthetic
from .base import Batch, Count, Name, Sample, Score, Splits, Task, accuracy, digest, order
from .download import labelled_lines
from .text import load_vectors, vocabulary

Parts = tuple[np.ndarray, np.ndarray, np.ndarray]  # indices of train, dev and test
FOLDS = 10
SCORED_AT_ONCE = 256


@dataclass(frozen=True)
class Lines:
    """The sentences of a file, its encoding, and the numbers of blank lines and control characters."""

    sentences: list[list[str]]
    encoding: str  # UTF-8 | Latin-1
    blank: int
    controls: int


def read_lines(path: Path) -> Lines:
    """Read a file in UTF-8, or in Latin-1 if it is not that; ValueError if it holds no sentence.

    Only a line feed ends a line. Blank lines are left out; control characters, such as the U+0085 of the
    original polarity files, count as spaces, but for NUL: other encodings and packed files hold it.
    """
    content = path.read_bytes()
    try:
        text, encoding = content.decode("utf-8-sig"), "UTF-8"
    except UnicodeDecodeError:
        text, encoding = content.decode("latin-1"), "Latin-1"
    if "\0" in text:
        number = text.count("\n", 0, text.index("\0")) + 1
        raise ValueError(
            f"{path}:{number}: a NUL character; expected text in UTF-8 or Latin-1: get the file anew"
        )
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    controls = {c for c in text if c != "\n" and unicodedata.category(c) == "Cc"}
    clean = str.maketrans(dict.fromkeys(controls, " "))
    sentences = [words for line in lines if (words := line.translate(clean).lower().split())]
    if not sentences:
        raise ValueError(f"{path} holds no sentence; expected one a line: get the file anew")
    count = sum(c in controls for line in lines for c in line)
    return Lines(sentences, encoding, len(lines) - len(sentences), count)


@dataclass(frozen=True)
class LabelledSentences:
    """Sentences and the class (0, 1, ...) of each, and notes for the reader of a record."""

    sentences: list[list[str]]
    labels: list[int]
    notes: tuple[str, ...]


def read_corpus(files: Sequence[Path]) -> LabelledSentences:
    """Return the sentences of files, one a class, in the order of the classes."""
    read = [read_lines(path) for path in files]
    notes = [
        f"{path.name}: {len(lines.sentences)} sentences in {lines.encoding}; {lines.blank} blank lines left "
        f"out, {lines.controls} control characters read as spaces"
        for path, lines in zip(files, read, strict=True)
    ]
    sentences = [words for lines in read for words in lines.sentences]
    labels = [label for label, lines in enumerate(read) for _ in lines.sentences]
    repeated = len(sentences) - len({tuple(words) for words in sentences})
    notes.append(f"{repeated} repeated lines, which may be in train and test at once")
    return LabelledSentences(sentences, labels, tuple(notes))


def synthetic_corpus() -> LabelledSentences:
    """Return sentences of two classes for trials."""
    sentences, labels = synthetic.labelled_sentences()
    return LabelledSentences(sentences, labels, (f"{len(sentences)} synthetic sentences",))


def stratified_folds(labels: Sequence[int], folds: int, seed: int) -> np.ndarray:
    """Return the fold of each example (N), stratified by class.

    The sizes of two folds differ by one at most, in each class and in all.
    """
    random, classes = np.random.default_rng(seed), np.asarray(labels)
    order = np.concatenate([random.permutation(np.flatnonzero(classes == c)) for c in np.unique(classes)])
    fold = np.empty(len(order), np.int64)
    fold[order] = np.arange(len(order)) % folds
    return fold


def cross_validation(labels: Sequence[int], seed: int) -> Parts:
    """Return train, dev (a tenth of the rest) and test of fold seed modulo 10.

    Seeds from 10 on shuffle anew.
    """
    shuffle, test = divmod(seed, FOLDS)
    fold = stratified_folds(labels, FOLDS, shuffle)
    rest = np.flatnonzero(fold != test)
    dev = stratified_folds(np.asarray(labels)[rest].tolist(), FOLDS, seed) == 0
    return rest[~dev], rest[dev], np.flatnonzero(fold == test)


def fixed_split(labels: Sequence[int], seed: int) -> Parts:
    """Return a split of 80, 10 and 10 %, the same for every seed."""
    fold = stratified_folds(labels, FOLDS, 0)
    return np.flatnonzero(fold > 1), np.flatnonzero(fold == 1), np.flatnonzero(fold == 0)


PROTOCOLS = {"cross_validation": cross_validation, "fixed_split": fixed_split}


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
        corpus = synthetic_corpus() if tiny else self.read(paths)
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
