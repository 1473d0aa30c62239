"""The Wall Street Journal of the Penn Treebank, whole or as NLTK's sample: where its files lie."""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from ..files import written_whole
from .brackets import read_mrg
from .conversion import to_dependencies
from .download import fetch, md5_of, warn_of_others
from .treebank import Sentence

NLTK_DATA = "https://raw.githubusercontent.com/nltk/nltk_data/5db857e6f7df11eabb5e5665836db9ec8df07e28/"
SAMPLE = NLTK_DATA + "packages/corpora/treebank.zip"
SAMPLE_FILES = 199
SAMPLE_MD5 = "23b0db3d094c6cd1141545bc93c39d82"  # of its .mrg files, one after the other
Part = str | int  # an unquoted 22 on a command line is a number


@dataclass(frozen=True, kw_only=True)
class Bracketed:
    """Bracketed files of the Wall Street Journal, read as dependencies; train, dev, test: files by number."""

    train: Part
    dev: Part
    test: Part
    punctuation: str = "tags"

    @property
    def parts(self) -> dict[str, Part]:
        return {"train": self.train, "dev": self.dev, "test": self.test}

    def read(self, path: Path) -> list[Sentence]:
        """The sentences of one file. Raises TreebankError."""
        return [to_dependencies(tree) for tree in read_mrg(path)]


@dataclass(frozen=True)
class PennTreebank(Bracketed):
    """The files anywhere under root. train, dev, test: a section, "22", or a range, "02-21".

    instead: the open task that the error for a missing corpus recommends.
    """

    root: Path | str
    instead: str

    def files(self) -> dict[str, list[Path]]:
        """The files of each part. FileNotFoundError names the sections that are missing."""
        found = wsj_files(self.root)
        if missing := absent(found, *self.parts.values()):
            listed = ", ".join(missing[:5]) + " ..." * (len(missing) > 5)
            raise FileNotFoundError(
                f"no wsj_NNNN.mrg of section {listed} under {self.root}. The Penn Treebank is "
                "licensed (LDC99T42, from the Linguistic Data Consortium): copy its bracketed files there, "
                "as wsj/00 to wsj/24, or let paths.ptb name the folder that has them. "
                f"task={self.instead} runs now, on open data"
            )
        return cut(found, self.parts)


@dataclass(frozen=True)
class PennSample(Bracketed):
    """The sample of the Penn Treebank that NLTK distributes, files 0001 to 0199; fetched if it is missing.

    train, dev, test: ranges of files, "0001-0160".
    """

    data: Path | str
    offline: bool = False

    def files(self) -> dict[str, list[Path]]:
        """The files of each part. OSError if some are missing and none can be fetched."""
        folder = Path(self.data, "ptb_sample/corpora/treebank/combined")
        found = wsj_files(folder)
        if len(found) < SAMPLE_FILES:
            if self.offline:
                raise FileNotFoundError(
                    f"{len(found)} of {SAMPLE_FILES} files wsj_NNNN.mrg under {folder}; put NLTK's treebank "
                    "sample there, point paths.data or MSBP_DATA_DIR at a folder that has ptb_sample/, "
                    "or set paths.offline=false"
                )
            fetch_sample(folder)
            found = wsj_files(folder)
        warn_of_others(found.values(), SAMPLE_MD5, "NLTK's treebank sample")
        return cut(found, self.parts)


def wsj_files(root: Path | str) -> dict[int, Path]:
    """The files wsj_NNNN.mrg by number, in whatever folders and case. ValueError if one is there twice."""
    found: dict[int, Path] = {}
    for path in sorted(Path(root).rglob("*")):
        if name := re.fullmatch(r"wsj_(\d{4})\.mrg", path.name, re.IGNORECASE):
            number = int(name[1])
            if number in found:
                raise ValueError(
                    f"one file twice, {found[number]} and {path}; name a folder that has it once"
                )
            found[number] = path
    return dict(sorted(found.items()))


def bounds(part: Part) -> tuple[int, int]:
    """The lowest and the highest file number of a section, a file or a range of them."""
    name = str(part)
    if not re.fullmatch(r"(\d\d|\d{4})(-(\d\d|\d{4}))?", name, re.ASCII):
        raise ValueError(f"a part of the treebank is named like '22', '02-21' or '0001-0160', got {name!r}")
    first, _, last = name.partition("-")
    return int(first.ljust(4, "0")), int((last or first).ljust(4, "9"))


def within(found: dict[int, Path], part: Part) -> list[Path]:
    lowest, highest = bounds(part)
    return [path for number, path in found.items() if lowest <= number <= highest]


def cut(found: dict[int, Path], parts: Mapping[str, Part]) -> dict[str, list[Path]]:
    """The files of each part. ValueError if a part has none, or if two share a file."""
    files = {split: within(found, part) for split, part in parts.items()}
    for split, paths in files.items():
        if not paths:
            raise ValueError(
                f"task.corpus.{split} names no file of the treebank, got {parts[split]!r}; "
                "wanted a section or file, or a range of them from low to high, like 0001-0160"
            )
    path, times = Counter(chain.from_iterable(files.values())).most_common(1)[0]
    if times > 1:
        asked = ", ".join(f"{split}={part}" for split, part in parts.items())
        raise ValueError(
            f"{path} is in several of {asked}; wanted parts of the treebank without common files"
        )
    return files


def absent(found: dict[int, Path], *parts: Part) -> list[str]:
    """The sections of the parts of which no file was found."""
    wanted = {n // 100 for part in parts for n in range(bounds(part)[0], bounds(part)[1] + 1)}
    return [f"{section:02}" for section in sorted(wanted - {number // 100 for number in found})]


def fetch_sample(folder: Path) -> None:
    """Put the sample's .mrg files into folder; those that are there stay. Raises OSError."""
    with tempfile.TemporaryDirectory() as place:
        archive = Path(place, "treebank.zip")
        fetch([SAMPLE], archive)
        try:
            with zipfile.ZipFile(archive) as packed:
                names = sorted(name for name in packed.namelist() if name.endswith(".mrg"))
                texts = {Path(name).name: packed.read(name) for name in names}
        except zipfile.BadZipFile as error:
            raise OSError(
                f"{SAMPLE} answered with no archive ({error}); nothing was kept: run again"
            ) from error
    found = md5_of(b"".join(texts.values()))
    if found != SAMPLE_MD5:
        raise OSError(f"the files of {SAMPLE} have md5 {found}, wanted {SAMPLE_MD5}; nothing was kept")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        if (folder / name).exists():
            continue
        with written_whole(folder / name) as file:
            file.write(text)
