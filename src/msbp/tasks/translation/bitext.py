"""Parallel text: line n of one file translates line n of the others. Reading it, and corpora of it."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from ..download import Remote, parallel_lines, require

Texts = dict[str, list[list[Path]]]  # of each split one or several texts: a source, then its references
CONTROLS = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f]")  # all but the line feed
STANFORD = "https://nlp.stanford.edu/projects/nmt/data/iwslt15.en-vi/"
STANFORD_MD5 = {
    "tst2012.en": "c14a0955ed8b8d6929fdabf4606e3875",
    "tst2012.vi": "dddf990faa149e980b11a36fca4a8898",
    "tst2013.en": "c41c43cb6d3b122c093ee89608ba62bd",
    "tst2013.vi": "a3185b00264620297901b647a4cacf38",
}
EN_VI_HUB = "thainq107/iwslt2015-en-vi"
MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw/"
MULTI30K_MD5 = {
    "train.en.gz": "0065d13af80720a55ca8153d126e6627",
    "train.de.gz": "81ff90b99829c0cd4b1b587d394afd39",
    "val.en.gz": "2b69aa9253948ac9f67e94917272dd40",
    "val.de.gz": "6e0e229eb049e3fc99a1ef02fb2d5f91",
    "test_2016_flickr.en.gz": "ff2c0fcb4893a13bd73414306bc250ae",
    "test_2016_flickr.de.gz": "efd67d314d98489b716b145475101932",
}


@dataclass(frozen=True)
class ParallelText:
    """Lines of a source, and as many of each reference: a translation, or several by different people."""

    source: Sequence[str]
    references: Sequence[Sequence[str]]

    def __len__(self) -> int:
        return len(self.source)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 file, gzip or plain, their words separated by one space; empty lines stay.

    Only a line feed ends a line: control characters and Unicode's separators count as spaces. ValueError
    names the file, and the line that is not UTF-8.
    """
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not UTF-8 ({error.reason}); convert the file") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is no whole gzip file ({error}): get it anew") from error
    if not text:
        raise ValueError(f"{path} is empty; expected one sentence a line: get it anew")
    lines = CONTROLS.sub(" ", text).removesuffix("\n").split("\n")
    return [" ".join(line.split()) for line in lines]


def read_parallel(source: Path, *references: Path) -> ParallelText:
    """Return the lines of files of equal length.

    ValueError names two files of different lengths, and these.
    """
    lines = read_lines(source)
    translations = [read_lines(path) for path in references]
    for path, translation in zip(references, translations, strict=True):
        if len(translation) != len(lines):
            raise ValueError(
                f"{source} has {len(lines)} lines and {path} has {len(translation)}: line n of one must "
                "translate line n of the other; get both files anew, of one edition"
            )
    return ParallelText(lines, translations)


def merged(parts: Sequence[ParallelText]) -> ParallelText:
    """Return several texts joined to one. ValueError unless all have the same number of references."""
    counts = [len(part.references) for part in parts]
    if len(set(counts)) > 1:
        raise ValueError(f"texts with {', '.join(map(str, counts))} references cannot be scored as one")
    streams = zip(*(part.references for part in parts), strict=True)
    return ParallelText(
        [line for part in parts for line in part.source],
        [[line for lines in stream for line in lines] for stream in streams],
    )


def read_texts(files: Texts) -> dict[str, ParallelText]:
    """Return the text of each split: all of its texts as one."""
    return {split: merged([read_parallel(*paths) for paths in texts]) for split, texts in files.items()}


@runtime_checkable
class Bitext(Protocol):
    """A parallel corpus in files."""

    def files(self) -> Texts:
        """Return the files of train, dev and test.

        OSError or ValueError name what is missing and what to do.
        """
        ...


@dataclass(frozen=True)
class EnglishVietnamese:
    """IWSLT'15 in Stanford's edition under data/iwslt15_en_vi: tst2012 is dev, tst2013 test.

    Missing files are fetched, those of train from the Hub.
    """

    data: Path | str
    offline: bool = False

    def files(self) -> Texts:
        folder = Path(self.data, "iwslt15_en_vi")
        remote = {name: Remote([STANFORD + name], md5) for name, md5 in STANFORD_MD5.items()}
        train = {
            side: folder / f"train.{side}" for side in ("en", "vi") if not stored(folder / f"train.{side}")
        }
        parallel_lines(EN_VI_HUB, "train", train, self.offline, instead="multi30k")
        require(missing(folder, remote), self.offline, instead="multi30k")
        return pairs(folder, {"train": "train", "dev": "tst2012", "test": "tst2013"}, ("en", "vi"))


@dataclass(frozen=True)
class EnglishGerman:
    """Multi30k's captions under data/multi30k_en_de, raw; test is test_2016_flickr. Fetched if missing."""

    data: Path | str
    offline: bool = False

    def files(self) -> Texts:
        folder = Path(self.data, "multi30k_en_de")
        remote = {name: Remote([MULTI30K + name], md5) for name, md5 in MULTI30K_MD5.items()}
        require(missing(folder, remote), self.offline)
        return pairs(folder, {"train": "train", "dev": "val", "test": "test_2016_flickr"}, ("en", "de"))


@dataclass(frozen=True)
class ChineseEnglish:
    """LDC's news and NIST's tests under root, tokenised: NAME.zh, and NAME.en or NAME.en0, NAME.en1, ...

    dev: a NAME; test: several, scored as one text.  instead: the open task that errors recommend.
    """

    root: Path | str
    instead: str
    dev: str = "mt02"
    test: Sequence[str] = ("mt03", "mt04", "mt05", "mt06")

    def files(self) -> Texts:
        names = {"train": ["train"], "dev": [self.dev], "test": list(self.test)}
        texts = {split: [self._text(name) for name in part] for split, part in names.items()}
        absent = [
            f"{name}.zh with {name}.en*"
            for split, part in names.items()
            for name, files in zip(part, texts[split], strict=True)
            if len(files) < 2
        ]
        if absent:
            raise FileNotFoundError(
                f"no {', '.join(absent)} under {self.root}. The corpora are licensed by the Linguistic Data "
                "Consortium (train: LDC2002E18, 2003E07, 2003E14, 2004T07, 2004T08, 2005T06; NIST 2002 "
                "to 2006: LDC2010T10, T11, T12, T14, T17): put them there tokenised, one sentence a line, or "
                f"let paths.nist name their folder. task={self.instead} runs now, on open data"
            )
        return texts

    def _text(self, name: str) -> list[Path]:
        """Return the source, then each reference."""
        source = stored(Path(self.root, f"{name}.zh"))
        return [source, *sorted(Path(self.root).glob(f"{name}.en*"))] if source else []


def stored(path: Path) -> Path | None:
    """Return the existing file, plain or as .gz; None if there is neither."""
    packed = path.with_name(path.name + ".gz")
    return path if path.is_file() else packed if packed.is_file() else None


def missing(folder: Path, remote: Mapping[str, Remote]) -> dict[Path, Remote]:
    """Return the remote files, by their paths in folder, that are missing there, packed or not."""
    return {
        folder / name: one for name, one in remote.items() if not stored(folder / name.removesuffix(".gz"))
    }


def pairs(folder: Path, stems: Mapping[str, str], languages: tuple[str, str]) -> Texts:
    """Return the existing files STEM.LANGUAGE of each split, plain or as .gz."""
    paths = {
        split: [stored(folder / f"{stem}.{side}") for side in languages] for split, stem in stems.items()
    }
    return {split: [[path for path in part if path]] for split, part in paths.items()}
