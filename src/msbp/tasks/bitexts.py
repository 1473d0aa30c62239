"""Where parallel texts lie, how they are cut into train, dev and test, and where the free ones come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .download import fetch, parallel_lines
from .parallel import ParallelText, merged, read_parallel

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


class Bitext(Protocol):
    """A parallel corpus."""

    def read(self) -> dict[str, ParallelText]:
        """Train, dev and test. Raises OSError or ValueError naming the file and what to do."""


@dataclass(frozen=True)
class EnglishVietnamese:
    """IWSLT'15 in Stanford's edition under data/iwslt15_en_vi: tst2012 is dev, tst2013 test.

    Missing files are fetched, those of train from the Hub.
    """

    data: Path | str
    offline: bool = False

    def read(self) -> dict[str, ParallelText]:
        folder = Path(self.data, "iwslt15_en_vi")
        stems = {"train": "train", "dev": "tst2012", "test": "tst2013"}
        names = [f"{stem}.{language}" for stem in stems.values() for language in ("en", "vi")]
        missing = [name for name in names if present(folder / name) is None]
        if missing and self.offline:
            raise FileNotFoundError(
                f"no {', '.join(missing)} under {folder}: put the files of Stanford's edition of IWSLT'15 "
                f"there ({STANFORD}), point paths.data or MSBP_DATA_DIR at a folder that has iwslt15_en_vi/, "
                "or set paths.offline=false; task=multi30k runs on open data"
            )
        try:
            self._fetch(folder, missing)
        except OSError as error:
            raise OSError(f"{error}; task=multi30k runs on open data") from error
        return read_splits(folder, stems, ("en", "vi"))

    def _fetch(self, folder: Path, names: Sequence[str]) -> None:
        if columns := {name[-2:]: folder / name for name in names if name not in STANFORD_MD5}:
            parallel_lines(EN_VI_HUB, "train", columns)
        for name in names:
            if name in STANFORD_MD5:
                fetch([STANFORD + name], folder / name, STANFORD_MD5[name])


@dataclass(frozen=True)
class EnglishGerman:
    """Multi30k's captions under data/multi30k_en_de, raw; test is test_2016_flickr. Fetched if missing."""

    data: Path | str
    offline: bool = False

    def read(self) -> dict[str, ParallelText]:
        folder = Path(self.data, "multi30k_en_de")
        for name, md5 in MULTI30K_MD5.items():
            path = folder / name
            if present(path.with_suffix("")) is not None:
                continue
            if self.offline:
                raise FileNotFoundError(
                    f"no {path}; put {', '.join(MULTI30K_MD5)} of Multi30k there, point paths.data or "
                    "MSBP_DATA_DIR at a folder that has multi30k_en_de/, or set paths.offline=false"
                )
            fetch([MULTI30K + name], path, md5)
        stems = {"train": "train", "dev": "val", "test": "test_2016_flickr"}
        return read_splits(folder, stems, ("en", "de"))


@dataclass(frozen=True)
class ChineseEnglish:
    """LDC's news and NIST's tests under root, tokenised: NAME.zh, and NAME.en or NAME.en0, NAME.en1, ...

    dev: a NAME; test: several, scored as one text.  instead: the open task that errors recommend.
    """

    root: Path | str
    instead: str
    dev: str = "mt02"
    test: Sequence[str] = ("mt03", "mt04", "mt05", "mt06")

    def read(self) -> dict[str, ParallelText]:
        texts = {name: self._files(name) for name in ("train", self.dev, *self.test)}
        if missing := [name for name, files in texts.items() if len(files) < 2]:
            wanted = ", ".join(f"{name}.zh with {name}.en*" for name in missing)
            raise FileNotFoundError(
                f"no {wanted} under {self.root}. The corpora are licensed by the Linguistic Data Consortium "
                "(train: LDC2002E18, 2003E07, 2003E14, 2004T07, 2004T08, 2005T06; NIST 2002 to 2006: "
                "LDC2010T10, T11, T12, T14, T17): put them there tokenised, one sentence a line, or let "
                f"paths.nist name their folder. task={self.instead} runs now, on open data"
            )
        read = {name: read_parallel(*files) for name, files in texts.items()}
        return {
            "train": read["train"],
            "dev": read[self.dev],
            "test": merged([read[name] for name in self.test]),
        }

    def _files(self, name: str) -> list[Path]:
        """The source, then each reference."""
        source = present(Path(self.root, f"{name}.zh"))
        return [source, *sorted(Path(self.root).glob(f"{name}.en*"))] if source else []


def present(path: Path) -> Path | None:
    """The file, plain or as .gz, if it is there."""
    packed = path.with_name(path.name + ".gz")
    return path if path.is_file() else packed if packed.is_file() else None


def read_splits(
    folder: Path, stems: Mapping[str, str], languages: tuple[str, str]
) -> dict[str, ParallelText]:
    """The texts STEM.LANGUAGE of each split, plain or as .gz."""
    texts = {}
    for split, stem in stems.items():
        source, target = (present(folder / f"{stem}.{language}") for language in languages)
        if source is None or target is None:
            raise FileNotFoundError(f"no {stem}.{languages[0]} with {stem}.{languages[1]} under {folder}")
        texts[split] = read_parallel(source, target)
    return texts
