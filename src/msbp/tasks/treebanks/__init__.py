"""Dependency treebanks: sentences, the interface of a corpus, and a module for each file format.

A corpus in another format is a module beside conll.py and penn.py with a class like `Corpus`, which
conf/corpus names. Files are read without a library, so that errors name the file and the line.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

UNKNOWN = -1  # the head of a word whose file gives none


@dataclass(frozen=True)
class Sentence:
    """A tagged sentence and its dependency tree, one list entry a word.

    `heads` counts words from 1; 0 is the root, `UNKNOWN` a head that the file does not give (`_`).
    `tags` are the fine-grained tags (Penn's in the English corpora), `upos` the universal ones or `_`.
    """

    words: list[str]
    tags: list[str]
    upos: list[str]
    heads: list[int]
    labels: list[str]
    source: str = field(default="", compare=False)  # file:line, for messages

    def __len__(self) -> int:
        return len(self.words)


@runtime_checkable
class Corpus(Protocol):
    """A treebank in files, each of which belongs to one split.

    punctuation: the rule by which scores exclude punctuation, a key of `parsing.encoding.PUNCTUATION`.
    """

    @property
    def punctuation(self) -> str: ...

    def files(self) -> dict[str, list[Path]]:
        """Return the files of train, dev and test. OSError names what is missing and what to do."""
        ...

    def read(self, path: Path) -> list[Sentence]:
        """Return the sentences of one file. Raises TreebankError."""
        ...


class TreebankError(ValueError):
    """A malformed treebank file; the message begins with file:line and ends with what to do."""

    def __init__(self, message: str):
        super().__init__(f"{message}; mend the file, or get it anew")


class Line(NamedTuple):
    """A line of a file, with `source` as file:line."""

    source: str
    text: str


def lines(path: Path | str) -> Iterator[Line]:
    """Yield the lines of a file in UTF-8, without line feeds. Raises TreebankError."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number, byte = error.object.count(b"\n", 0, error.start) + 1, error.object[error.start]
        raise TreebankError(f"{path}:{number}: byte {byte:#04x} is not UTF-8") from error
    # not str.splitlines, which would also cut at U+0085 or U+2028 inside a word
    for number, line in enumerate(io.StringIO(text, newline=None), start=1):
        yield Line(f"{path}:{number}", line.rstrip("\n"))
