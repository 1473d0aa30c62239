"""Where treebanks lie, how they are cut into train, dev and test, and where the free ones come from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from .download import fetch, warn_of_others
from .treebank import Sentence, read_conll

GITHUB = "https://raw.githubusercontent.com/UniversalDependencies/"
EWT = GITHUB + "UD_English-EWT/15d613d8447b3478787d4c278730a1e48a945efb/"  # release 2.16
EWT_MD5 = {
    "en_ewt-ud-train.conllu": "fa9865539033efcf99ea90f8b93d6646",
    "en_ewt-ud-dev.conllu": "cb1da95ff28a449cb9bc286c922e15e1",
    "en_ewt-ud-test.conllu": "01630da0129f8600ef761dbcfd18b9e2",
}


class Corpus(Protocol):
    """A treebank in files, each of which belongs to one split."""

    @property
    def punctuation(self) -> str:
        """The rule by which scores leave out punctuation, a key of attachment.PUNCTUATION."""

    def files(self) -> dict[str, list[Path]]:
        """The files of train, dev and test. Raises OSError naming what is missing and what to do."""

    def read(self, path: Path) -> list[Sentence]:
        """The sentences of one file. Raises TreebankError."""


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
        paths = [Path(self.data, "ud_english_ewt", name) for name in EWT_MD5]
        for path in paths:
            if path.is_file():
                warn_of_others([path], EWT_MD5[path.name], "UD English EWT 2.16")
                continue
            if self.offline:
                raise FileNotFoundError(
                    f"no {path}; put the three .conllu files of UD English EWT there, point paths.data or "
                    "MSBP_DATA_DIR at a folder that has ud_english_ewt/, or set paths.offline=false"
                )
            fetch([EWT + path.name], path, EWT_MD5[path.name])
        return {split: [path] for split, path in zip(("train", "dev", "test"), paths, strict=True)}

    def read(self, path: Path) -> list[Sentence]:
        return [replace(s, labels=[label.split(":")[0] for label in s.labels]) for s in read_conll(path)]
