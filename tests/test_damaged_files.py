"""Random damage to files of data and of runs: each is read all the same, or refused in one paragraph.

A sample runs with the suite; more of it: MSBP_MUTATIONS=2000 pytest tests/test_damaged_files.py
"""

import gzip
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from msbp.tasks.parsing.task import Parsing
from msbp.tasks.sentences import SentenceClassification
from msbp.tasks.synthetic import parallel_text, treebank
from msbp.tasks.tagging import Tagging
from msbp.tasks.translation.bitext import ChineseEnglish
from msbp.tasks.translation.task import Translation
from msbp.tasks.translation.translator import load
from msbp.tasks.treebanks import TreebankError
from msbp.tasks.treebanks.conll import ConllFiles
from msbp.tasks.treebanks.penn import PennTreebank

MUTATIONS = int(os.environ.get("MSBP_MUTATIONS", "140"))
EARLIER = Path(__file__).parent / "tasks/translation/earlier_run"
WORDED = ValueError, TreebankError, FileNotFoundError, OSError  # not their subclasses, which say too little
SPLITS = "train", "dev", "test"


def conll(folder: Path) -> None:
    for seed, split in enumerate(SPLITS):
        rows = [
            "".join(f"{i}\t{w}\t_\t{u}\t{x}\t_\t{h}\t{label}\t_\t_\n" for i, w, u, x, h, label in
                    zip(range(1, 99), s.words, s.upos, s.tags, s.heads, s.labels))  # noqa: B905
            for s in treebank(12, seed)
        ]  # fmt: skip
        (folder / f"{split}.conllu").write_text("\n".join(rows) + "\n")


def penn(folder: Path) -> None:
    tree = "( (S (NP-SBJ (DT the) (NN {})) (VP (VBD poured) (NP (-NONE- *))) (. .)) )\n"
    for number in (200, 2200, 2300):
        (folder / f"wsj_{number:04}.mrg").write_text("".join(tree.format(f"w{number}x{i}") for i in range(9)))


def labelled(folder: Path) -> None:
    for name in ("neg", "pos"):
        lines = [f"{name} film number {i} é" for i in range(12)]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def vectors(folder: Path) -> None:
    conll(folder)
    words = sorted({word for sentence in treebank(30, 0) for word in sentence.words})
    text = "".join(f"{word} {i} 0.5 -1e-3\n" for i, word in enumerate(words))
    (folder / "glove.txt").write_text(text)


def parallel(folder: Path) -> None:
    for seed, name in enumerate(("train", "mt02", "mt03")):
        text = parallel_text(12, seed)
        (folder / f"{name}.zh").write_text("\n".join(text.source) + "\n")
        packed = gzip.compress(("\n".join(text.references[0]) + "\n").encode(), mtime=0)
        (folder / f"{name}.en.gz").write_bytes(packed)


def run(folder: Path) -> None:
    for name in ("config.yaml", "weights.pt", "source.words.txt", "target.words.txt"):
        shutil.copy(EARLIER / name, folder)


def checkpoint(folder: Path) -> None:
    shutil.copy(EARLIER / "checkpoint.pt", folder)


def splits(make: Callable) -> Callable[[Path], object]:
    return lambda folder: make(folder).splits(0)


def treebank_of(folder: Path) -> ConllFiles:
    return ConllFiles(*(folder / f"{split}.conllu" for split in SPLITS))


SETS: dict[str, tuple[Callable[[Path], None], Callable[[Path], object]]] = {
    "conll": (conll, splits(lambda folder: Parsing("x", treebank_of(folder), 8))),
    "penn": (
        penn,
        splits(lambda f: Parsing("x", PennTreebank(f, "y", train="02", dev="22", test="23"), 8)),
    ),
    "labelled": (
        labelled,
        splits(lambda f: SentenceClassification("x", 8, ".", ["neg", "pos"], "z", vectors=None,
                                                data=f, offline=True)),
    ),
    "vectors": (
        vectors,
        splits(lambda f: Tagging("x", treebank_of(f), 8, vectors=".", data=f)),
    ),
    "parallel": (
        parallel,
        splits(lambda f: Translation("x", ChineseEnglish(f, "y", test=["mt03"]), 8)),
    ),
    "run": (run, load),
    "checkpoint": (checkpoint, lambda folder: load(folder / "checkpoint.pt")),
}  # fmt: skip


def damaged(content: bytes, chance: random.Random) -> bytes:
    """The content after one random change."""
    at = chance.randrange(len(content))
    end = min(len(content), at + chance.choice((1, 2, 9, 100)))
    noise = chance.randbytes(end - at)
    return chance.choice(
        [
            content[:at],
            content[at:],
            content[:at] + noise + content[end:],
            content[:at] + content[end:],
            content[:at] + content[at:end] * 2 + content[end:],
            content[:at] + noise + content[at:],
            content[:at] + bytes(end - at) + content[end:],
            content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :],
            content.replace(b"\n", b"\r\n"),
            content[:at] + chance.choice([b"\n", b"\t", b" ", b"nan", b"-1", b"9" * 30, b"${", b"\xff"])
            + content[at:],
        ]
    )  # fmt: skip


@pytest.mark.parametrize("name", SETS)
def test_damaged_files_are_read_or_refused_in_one_paragraph(tmp_path, name):
    write, read = SETS[name]
    write(tmp_path)
    read(tmp_path)
    contents = {path: path.read_bytes() for path in sorted(tmp_path.iterdir())}
    refused = 0
    for seed in range(MUTATIONS // len(SETS)):
        chance = random.Random(f"{name} {seed}")
        path = chance.choice(list(contents))
        path.write_bytes(damaged(contents[path], chance))
        try:
            read(tmp_path)
        except Exception as error:
            assert type(error) in WORDED, f"{name} {seed}: {error!r}"
            text = str(error)
            assert "\n" not in text and len(text) < 900, f"{name} {seed}: {text}"
            assert str(tmp_path) in text or any(split in text for split in SPLITS), f"{name} {seed}: {text}"
            refused += 1
        path.write_bytes(contents[path])
    assert refused
