"""Vocabularies and GloVe vectors by torchtext.

torchtext is pinned at 0.6.0, the last release in pure Python: later ones cannot load beside a current torch.
Its reader of vectors stops at a malformed line, writes a cache beside the data, and turns off the
check of TLS certificates for the whole process; so WordVectors reads the file itself.
"""

import gzip
import re
import zlib
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torchtext.vocab import Vectors, Vocab

UNKNOWN = "<unk>"
HEADER = re.compile(rb"(\d{1,9}) (\d{1,9})")  # numbers of words and of dimensions, in the format of word2vec
SPREAD = 0.25  # of random vectors for words without one (Kim 2014), close to GloVe's own deviation


class WordVectors(Vectors):
    """Vectors of a text file: a word and its numbers in each line, gzip or plain.

    A word may hold spaces: the numbers are the last `dim` fields. `skipped` counts lines that hold something
    else; `words` are the words to keep, None keeps all. ValueError for a file that is damaged or cut, or has
    no vector for any of them.
    """

    def __init__(self, path: str | Path, words: Collection[str] | None = None):
        self.path, self.words, self.skipped = Path(path), words, 0
        super().__init__(str(path))

    def cache(self, name: str, *_: object, **__: object) -> None:
        """Read the file; torchtext's constructor calls this."""
        opened = gzip.open if name.endswith(".gz") else open
        try:
            with opened(name, "rb") as file:  # bytes, as some tokens hold characters that end a line of text
                head = Counter(line.rstrip().count(b" ") for line in islice(file, 1000))
                self.dim = head.most_common(1)[0][0] if head else 0
                file.seek(0)
                rows = list(self._rows(file)) if self.dim else []
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{name} is damaged ({error}): get it anew, or unpack it") from error
        if not rows:
            which = "" if self.words is None else " for the words of this task"
            raise ValueError(
                f"{name} holds no word vectors{which}; expected a word and its numbers in each line, with "
                "single spaces between them: get another file"
            )
        self.itos = [word for word, _ in rows]
        self.stoi = {word: i for i, word in reversed(list(enumerate(self.itos)))}  # the first of doubles
        self.vectors = torch.from_numpy(np.array([row for _, row in rows], np.float32).reshape(-1, self.dim))

    def note(self) -> str:
        """Return how many words have a vector, its width, and how many lines were left out."""
        of = "" if self.words is None else f" of {len(self.words)}"
        return f"{len(self.stoi)}{of} words have a vector of width {self.dim}, {self.skipped} lines left out"

    def _rows(self, file: Iterable[bytes]) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the word and the vector of each line that holds one. ValueError names the line of a cut."""
        declared, number, line = 0, 0, b"\n"
        for number, line in enumerate(file, start=1):
            if number == 1:
                line = line.removeprefix(BOM_UTF8)
                header = HEADER.fullmatch(line.rstrip())
                declared = int(header[1]) if header and int(header[2]) == self.dim > 1 else 0
            try:
                word, *numbers = line.rstrip().decode().rsplit(" ", self.dim)
                if len(numbers) < self.dim:
                    raise ValueError("too few numbers")
                if self.words is None or word in self.words:
                    yield word, finite(numbers)
            except ValueError:  # also of text that is not UTF-8, or no number
                self.skipped += 1
        if not line.endswith(b"\n"):
            raise ValueError(
                f"{self.path}:{number}: the file ends within this line: get it anew, or end the line"
            )
        if declared >= number:
            raise ValueError(
                f"{self.path}:{number}: the file ends after {number - 1} of {declared} vectors: get it anew"
            )


def finite(numbers: Sequence[str]) -> np.ndarray:
    """Return numbers as float32; ValueError if one is no number, or not finite."""
    with np.errstate(over="ignore"):
        row = np.array(numbers, np.float32)
    if not np.isfinite(row).all():
        raise ValueError("not finite")
    return row


def vocabulary(
    sentences: Iterable[Iterable[str]], vectors: WordVectors | None = None, seed: int = 0, min_count: int = 1
) -> Vocab:
    """Return the words of some sentences, most frequent first, behind UNKNOWN = 0, and their vectors.

    Words without a vector get random ones that depend on seed alone.
    """
    generator = torch.Generator().manual_seed(seed)

    def random(row: Tensor) -> Tensor:
        return row.uniform_(-SPREAD, SPREAD, generator=generator)

    if vectors is not None:
        vectors.unk_init = random
    words = Counter(chain.from_iterable(sentences))
    return Vocab(words, min_freq=min_count, specials=[UNKNOWN], vectors=vectors)


def load_vectors(data: str | Path, name: str | None, words: Collection[str]) -> WordVectors | None:
    """Return the vectors of words in a folder of the data; None for no name."""
    return None if name is None else WordVectors(find_vectors(data, name), words)


def find_vectors(data: str | Path, name: str = "glove_6b_100d") -> Path:
    """Return the file of vectors in a folder: GloVe's before others, a full one before a reduced."""
    files = sorted(
        (file for file in Path(data, name).glob("*.txt*") if file.is_file()),
        key=lambda file: ("glove" not in file.name.lower(), "reduced" in file.name, file.name),
    )
    if not files:
        raise FileNotFoundError(
            f"no word vectors (*.txt or *.txt.gz) in {Path(data, name)}: put glove.6B.100d.txt there, point "
            "paths.data or MSBP_DATA_DIR at a folder that has it, or go without: task.vectors=null "
            "model.embedding=random"
        )
    return files[0]
