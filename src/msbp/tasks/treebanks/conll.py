"""The column formats CoNLL-U and CoNLL-X, and treebanks in them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from ..download import Remote, require, warn_of_others
from . import UNKNOWN, Line, Sentence, TreebankError, lines

COLUMNS = 10
GITHUB = "https://raw.githubusercontent.com/UniversalDependencies/"
EWT = GITHUB + "UD_English-EWT/15d613d8447b3478787d4c278730a1e48a945efb/"  # release 2.16
EWT_MD5 = {
    "en_ewt-ud-train.conllu": "fa9865539033efcf99ea90f8b93d6646",
    "en_ewt-ud-dev.conllu": "cb1da95ff28a449cb9bc286c922e15e1",
    "en_ewt-ud-test.conllu": "01630da0129f8600ef761dbcfd18b9e2",
}


class Row(NamedTuple):
    source: str
    word: str
    tag: str
    upos: str
    head: str
    label: str


def read_conll(path: Path | str) -> list[Sentence]:
    """Return sentences of a CoNLL-U or CoNLL-X file; comments, multiword ranges and empty nodes give no word.

    A word without a fine-grained tag (`_`) gets its coarse one. Raises TreebankError.
    """
    sentences = [_sentence(block) for block in _blocks(path)]
    if not sentences:
        raise TreebankError(f"{path}:1: no sentence in the whole file")
    return sentences


def _sentence(block: list[Line]) -> Sentence:
    rows: list[Row] = []
    for line in block:
        row = _columns(line)
        if re.fullmatch(r"[0-9]+-[0-9]+|[0-9]+\.[0-9]+", row[0]):
            continue
        if row[0] != str(len(rows) + 1):
            raise TreebankError(f"{line.source}: the id is {row[0]!r}, expected {len(rows) + 1}")
        tag = row[4] if row[4] != "_" else row[3]
        rows.append(Row(line.source, row[1], tag, row[3], row[6], row[7]))
    if not rows:
        raise TreebankError(f"{block[0].source}: a sentence without words")
    heads = [_head(row, len(rows)) for row in rows]
    if word := _on_cycle(heads):
        raise TreebankError(f"{rows[word - 1].source}: word {word} is its own ancestor, expected a tree")
    words, tags, upos = [row.word for row in rows], [row.tag for row in rows], [row.upos for row in rows]
    return Sentence(words, tags, upos, heads, [row.label for row in rows], block[0].source)


def _blocks(path: Path | str) -> Iterator[list[Line]]:
    """Yield the lines of each sentence, separated by blank lines."""
    block: list[Line] = []
    for line in lines(path):
        if line.text.strip() == "":
            if block:
                yield block
            block = []
        elif not line.text.startswith("#"):
            block.append(line)
    if block:
        yield block


def _columns(line: Line) -> list[str]:
    row = line.text.split("\t")
    if len(row) != COLUMNS:
        got = f"{len(row)} columns, expected {COLUMNS} separated by tabs"
        raise TreebankError(f"{line.source}: {got}: {line.text[:60]!r}")
    if "" in row:
        raise TreebankError(f"{line.source}: an empty column, expected a value or _: {line.text[:60]!r}")
    return row


def _head(row: Row, words: int) -> int:
    if row.head == "_":
        return UNKNOWN
    if not re.fullmatch("[0-9]{1,9}", row.head) or int(row.head) > words:
        raise TreebankError(
            f"{row.source}: the head is {row.head[:60]!r}, expected 0 (root) to {words}, or _"
        )
    return int(row.head)


def _on_cycle(heads: list[int]) -> int:
    """Return a word that is its own ancestor, counted from 1; 0 if there is none."""
    walk_of = [0] * len(heads)
    for start in range(1, len(heads) + 1):
        word = start
        while word > 0 and not walk_of[word - 1]:
            walk_of[word - 1] = start
            word = heads[word - 1]
        if word > 0 and walk_of[word - 1] == start:
            return word
    return 0


@dataclass(frozen=True)
class ConllFiles:
    """A treebank in one CoNLL-U or CoNLL-X file a split."""

    train: Path | str
    dev: Path | str
    test: Path | str
    punctuation: str = "upos"

    def files(self) -> dict[str, list[Path]]:
        files = {"train": Path(self.train), "dev": Path(self.dev), "test": Path(self.test)}
        for split, path in files.items():
            if not path.is_file():
                raise FileNotFoundError(f"no file {path}; name the {split} file in task.corpus.{split}")
        return {split: [path] for split, path in files.items()}

    def read(self, path: Path) -> list[Sentence]:
        return read_conll(path)


@dataclass(frozen=True)
class EnglishEwt:
    """UD English EWT under data/ud_english_ewt, fetched if it is missing; relations without subtypes."""

    data: Path | str
    offline: bool = False
    punctuation: str = "upos"

    def files(self) -> dict[str, list[Path]]:
        folder = Path(self.data, "ud_english_ewt")
        require({folder / name: Remote([EWT + name], md5) for name, md5 in EWT_MD5.items()}, self.offline)
        for name, md5 in EWT_MD5.items():
            warn_of_others([folder / name], md5, "UD English EWT 2.16")
        return {split: [folder / name] for split, name in zip(("train", "dev", "test"), EWT_MD5, strict=True)}

    def read(self, path: Path) -> list[Sentence]:
        return [replace(s, labels=[label.split(":")[0] for label in s.labels]) for s in read_conll(path)]
