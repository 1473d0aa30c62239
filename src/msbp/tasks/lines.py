"""Labelled sentences from text files: one file a class, one sentence a line, words apart by spaces."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Lines:
    """The sentences of a file, and what was found on the way."""

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
            f"{path}:{number}: a NUL character; wanted text in UTF-8 or Latin-1: get the file anew"
        )
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    controls = {c for c in text if c != "\n" and unicodedata.category(c) == "Cc"}
    clean = str.maketrans(dict.fromkeys(controls, " "))
    sentences = [words for line in lines if (words := line.translate(clean).lower().split())]
    if not sentences:
        raise ValueError(f"{path} holds no sentence; wanted one a line: get the file anew")
    found = sum(c in controls for line in lines for c in line)
    return Lines(sentences, encoding, len(lines) - len(sentences), found)


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
    notes.append(f"{repeated} repeated lines, which may stand in train and test at once")
    return LabelledSentences(sentences, labels, tuple(notes))
