"""Labelled sentences from text files, one file a class, one sentence a line; and their folds.

Letters: N examples.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Parts = tuple[np.ndarray, np.ndarray, np.ndarray]  # indices of train, dev and test
FOLDS = 10


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
    """One file a class, in the order of the classes."""
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


def deal(labels: Sequence[int], folds: int, seed: int) -> np.ndarray:
    """A fold (N) for each example: each class is shuffled and dealt out in turn, class after class.

    So the sizes of two folds differ by one at most, in each class and in all.
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
    fold = deal(labels, FOLDS, shuffle)
    rest = np.flatnonzero(fold != test)
    dev = deal(np.asarray(labels)[rest].tolist(), FOLDS, seed) == 0
    return rest[~dev], rest[dev], np.flatnonzero(fold == test)


def fixed_split(labels: Sequence[int], seed: int) -> Parts:
    """Return a split of 80, 10 and 10 %, the same for every seed."""
    fold = deal(labels, FOLDS, 0)
    return np.flatnonzero(fold > 1), np.flatnonzero(fold == 1), np.flatnonzero(fold == 0)


PROTOCOLS = {"cross_validation": cross_validation, "fixed_split": fixed_split}
