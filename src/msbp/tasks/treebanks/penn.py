"""The Wall Street Journal of the Penn Treebank in bracketed files (.mrg), whole or as NLTK's sample."""

from __future__ import annotations

import logging
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from ...files import written_whole
from ..download import Remote, md5_of, retrieved, unavailable, warn_of_others, writing
from . import Sentence, TreebankError, lines
from .constituents import Tree, to_dependencies

TOKEN = re.compile(r"[()]|[^\s()]+")
DEEPEST = 200  # nested brackets, several times what a sentence needs
EMPTY = "-NONE-"  # the tag of traces and other elements that are not in the text
NLTK_DATA = "https://raw.githubusercontent.com/nltk/nltk_data/5db857e6f7df11eabb5e5665836db9ec8df07e28/"
SAMPLE = NLTK_DATA + "packages/corpora/treebank.zip"
SAMPLE_FILES = range(1, 200)
SAMPLE_MD5 = "23b0db3d094c6cd1141545bc93c39d82"  # of its .mrg files, one after the other
log = logging.getLogger(__name__)
Part = str | int  # an unquoted 22 on a command line is a number


def read_mrg(path: Path | str) -> list[Tree]:
    """Return the trees of a .mrg file without empty elements, an empty top node with one child removed.

    Only brackets delimit trees; line breaks and blank lines are white space. Raises TreebankError.
    """
    trees, empty = [], 0
    for tree in _trees(path):
        full = _without_empty(tree)
        if full is None:
            empty += 1
            continue
        while not full.label and len(full.children) == 1:
            full = full.children[0]
        trees.append(full)
    if not trees:
        raise TreebankError(f"{path}:1: no tree with a word in the whole file")
    if empty:
        log.info("%s: left out %d trees of empty elements alone", path, empty)
    return trees


def _trees(path: Path | str) -> Iterator[Tree]:
    open_nodes: list[Tree] = []
    after_bracket = False  # a label may follow
    for source, token in _tokens(path):
        if token == "(":
            if len(open_nodes) == DEEPEST:
                raise TreebankError(f"{source}: {DEEPEST} brackets are open here: some are not closed")
            open_nodes.append(Tree("", source=source))
        elif not open_nodes:
            raise TreebankError(f"{source}: {token!r} outside of all brackets")
        elif token == ")":
            node = _closed(open_nodes.pop())
            if not open_nodes:
                yield node
            elif open_nodes[-1].word is not None:
                raise TreebankError(f"{source}: a bracket after the word {open_nodes[-1].word!r} of a leaf")
            else:
                open_nodes[-1].children.append(node)
        elif after_bracket:
            open_nodes[-1].label = token
        elif open_nodes[-1].word is not None or open_nodes[-1].children or not open_nodes[-1].label:
            raise TreebankError(f"{source}: {token!r} where a bracket is expected: a leaf is (TAG word)")
        else:
            open_nodes[-1].word = token
        after_bracket = token == "("
    if open_nodes:
        raise TreebankError(f"{open_nodes[0].source}: the tree that begins here is never closed")


def _tokens(path: Path | str) -> Iterator[tuple[str, str]]:
    for source, text in lines(path):
        for token in TOKEN.findall(text):
            yield source, token


def _closed(node: Tree) -> Tree:
    if node.word is None and not node.children:
        raise TreebankError(f"{node.source}: ({node.label}) holds nothing; a leaf is (TAG word)")
    return node


def _without_empty(tree: Tree) -> Tree | None:
    if tree.word is not None:
        return None if tree.label == EMPTY else tree
    children = [kept for child in tree.children if (kept := _without_empty(child)) is not None]
    return Tree(tree.label, children, source=tree.source) if children else None


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
        """Return the sentences of one file. Raises TreebankError."""
        return [to_dependencies(tree) for tree in read_mrg(path)]


@dataclass(frozen=True)
class PennTreebank(Bracketed):
    """The files anywhere under root. train, dev, test: a section, "22", or a range, "02-21".

    instead: the open task that the error for a missing corpus recommends.
    """

    root: Path | str
    instead: str

    def files(self) -> dict[str, list[Path]]:
        """Return the files of each part. FileNotFoundError names the sections that are missing."""
        paths = wsj_files(self.root)
        if missing := missing_sections(paths, *self.parts.values()):
            listed = ", ".join(missing[:5]) + " ..." * (len(missing) > 5)
            raise FileNotFoundError(
                f"no wsj_NNNN.mrg of section {listed} under {self.root}. The Penn Treebank is "
                "licensed (LDC99T42, from the Linguistic Data Consortium): copy its bracketed files there, "
                "as wsj/00 to wsj/24, or let paths.ptb name the folder that has them. "
                f"task={self.instead} runs now, on open data"
            )
        return files_by_split(paths, self.parts)


@dataclass(frozen=True)
class PennSample(Bracketed):
    """The sample of the Penn Treebank that NLTK distributes, files 0001 to 0199; fetched if it is missing.

    train, dev, test: ranges of files, "0001-0160".
    """

    data: Path | str
    offline: bool = False

    def files(self) -> dict[str, list[Path]]:
        """Return the files of each part. OSError if some are missing and none can be fetched."""
        folder = Path(self.data, "ptb_sample/corpora/treebank/combined")
        absent = [
            folder / f"wsj_{number:04}.mrg" for number in SAMPLE_FILES if number not in wsj_files(folder)
        ]
        if absent and self.offline:
            raise unavailable(absent)
        if absent:
            fetch_sample(absent)
        paths = wsj_files(folder)
        warn_of_others(paths.values(), SAMPLE_MD5, "NLTK's treebank sample")
        return files_by_split(paths, self.parts)


def wsj_files(root: Path | str) -> dict[int, Path]:
    """Return the files wsj_NNNN.mrg by number, in any folders and case. ValueError for two of one number."""
    paths: dict[int, Path] = {}
    for path in sorted(Path(root).rglob("*")):
        if name := re.fullmatch(r"wsj_(\d{4})\.mrg", path.name, re.IGNORECASE):
            number = int(name[1])
            if number in paths:
                raise ValueError(
                    f"two files of one number, {paths[number]} and {path}; name a folder that has each once"
                )
            paths[number] = path
    return dict(sorted(paths.items()))


def bounds(part: Part) -> tuple[int, int]:
    """Return the lowest and the highest file number of a section, a file or a range of them."""
    name = str(part)
    if not re.fullmatch(r"(\d\d|\d{4})(-(\d\d|\d{4}))?", name, re.ASCII):
        raise ValueError(f"a part of the treebank is named like '22', '02-21' or '0001-0160', got {name!r}")
    first, _, last = name.partition("-")
    return int(first.ljust(4, "0")), int((last or first).ljust(4, "9"))


def files_of_part(paths: dict[int, Path], part: Part) -> list[Path]:
    """Return the files whose numbers are in a part."""
    lowest, highest = bounds(part)
    return [path for number, path in paths.items() if lowest <= number <= highest]


def files_by_split(paths: dict[int, Path], parts: Mapping[str, Part]) -> dict[str, list[Path]]:
    """Return the files of each part. ValueError if a part has none, or if two share a file."""
    files = {split: files_of_part(paths, part) for split, part in parts.items()}
    for split, listed in files.items():
        if not listed:
            raise ValueError(
                f"task.corpus.{split} names no file of the treebank, got {parts[split]!r}; "
                "expected a section or file, or a range of them from low to high, like 0001-0160"
            )
    path, times = Counter(chain.from_iterable(files.values())).most_common(1)[0]
    if times > 1:
        named = ", ".join(f"{split}={part}" for split, part in parts.items())
        raise ValueError(f"{path} is in several of {named}; name parts of the treebank without common files")
    return files


def missing_sections(paths: dict[int, Path], *parts: Part) -> list[str]:
    """Return the sections of the parts without any file."""
    sections = {n // 100 for part in parts for n in range(bounds(part)[0], bounds(part)[1] + 1)}
    return [f"{section:02}" for section in sorted(sections - {number // 100 for number in paths})]


def fetch_sample(absent: Sequence[Path]) -> None:
    """Fetch NLTK's archive and write the absent files out of it, if its contents are the known ones."""
    with retrieved(Remote([SAMPLE]), absent) as archive:
        try:
            with zipfile.ZipFile(archive) as packed:
                names = sorted(name for name in packed.namelist() if name.endswith(".mrg"))
                texts = {Path(name).name: packed.read(name) for name in names}
        except zipfile.BadZipFile as error:
            raise unavailable(absent, f"{SAMPLE} answered with no archive ({error})") from error
    if (md5 := md5_of(b"".join(texts.values()))) != SAMPLE_MD5:
        raise unavailable(absent, f"the files of {SAMPLE} have md5 {md5}, not {SAMPLE_MD5}")
    with writing(absent):
        for path in absent:
            path.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(path) as file:
                file.write(texts[path.name])
