"""Sentence classification: MR sentence polarity and SUBJ subjectivity (Pang and Lee), for TextCNN.

Letters: B sentences of a batch, N their words laid end to end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ..limits import check_choice, check_counts
from . import download
from .base import SAMPLES, Batch, Score, Splits, accuracy, order
from .folds import FOLDS, PROTOCOLS
from .lines import LabelledSentences, read_corpus
from .text import WordVectors, find_vectors, vocabulary

SCORED_AT_ONCE = 256


@dataclass(frozen=True)
class Sentences:
    """A split: the words of each sentence as numbers, and the labels."""

    words: list[Tensor]
    labels: Tensor

    def __len__(self) -> int:
        return len(self.words)

    def batch(self, chosen: Tensor) -> Batch:
        """Words (N), offsets (B + 1) where sentences begin, labels (B)."""
        words = [self.words[i] for i in chosen.tolist()]
        ends = np.cumsum([0, *map(len, words)])
        return torch.cat(words), torch.from_numpy(ends), self.labels[chosen]


@dataclass
class SentenceClassification:
    """Two classes from two files; train, dev and test by protocol.

    protocol: cross_validation (Kim 2014; the seed is the fold) | fixed_split (seeds repeat one split).
    vectors: the folder of word vectors, None for none.
    """

    name: str
    batch_size: int
    folder: str
    files: Sequence[str]
    hub: str
    protocol: str = "cross_validation"
    vectors: str | None = "glove_6b_100d"
    sample: str = "full"
    data: str | Path = "data"
    offline: bool = False
    metric: str = field(default="accuracy", init=False)
    unit: str = field(default="sentences", init=False)

    def __post_init__(self) -> None:
        check_counts("task", batch_size=self.batch_size)
        check_choice("task.sample", self.sample, SAMPLES)
        check_choice("task.protocol", self.protocol, PROTOCOLS)
        if len({name for name in self.files if isinstance(name, str)}) < max(2, len(self.files)):
            raise ValueError(f"task.files must name two files or more, one a class, got {self.files!r}")

    def splits(self, seed: int) -> Splits:
        corpus = made_up() if self.sample == "tiny" else self.read()
        parts = PROTOCOLS[self.protocol](corpus.labels, seed)
        vectors, known = self.read_vectors(corpus)
        known |= {word for i in parts[0] for word in corpus.sentences[i]}
        words = vocabulary(([w for w in s if w in known] for s in corpus.sentences), vectors, seed)
        labels = torch.tensor(corpus.labels)
        numbers = [torch.tensor([words[word] for word in sentence]) for sentence in corpus.sentences]
        train, dev, test = (Sentences([numbers[i] for i in part], labels[part]) for part in parts)
        rows = made_up_vectors(len(words)) if self.sample == "tiny" else words.vectors
        sizes = {"vocabulary": len(words), "outputs": len(self.files), "vectors": rows}
        found = () if vectors is None else (vectors.note(),)
        return Splits(train, dev, test, sizes, (*corpus.notes, *found, f"protocol {self.protocol}"))

    def read(self) -> LabelledSentences:
        """The sentences of the files; ValueError if one has too few for the folds."""
        paths = self.find()
        corpus = read_corpus(paths)
        for label, path in enumerate(paths):
            if (count := corpus.labels.count(label)) < FOLDS:
                raise ValueError(f"{path} holds {count} sentences, wanted {FOLDS} or more: get the file anew")
        return corpus

    def read_vectors(self, corpus: LabelledSentences) -> tuple[WordVectors | None, set[str]]:
        """The vectors of the corpus's words, and which words have one: training need not show those."""
        if self.vectors is None or self.sample == "tiny":
            return None, set()
        words = {word for sentence in corpus.sentences for word in sentence}
        vectors = WordVectors(find_vectors(self.data, self.vectors), words)
        return vectors, set(vectors.itos)

    def find(self) -> list[Path]:
        """The two files; fetches them where they are missing and a download is allowed."""
        paths = [Path(self.data, self.folder, name) for name in self.files]
        missing = [path for path in paths if not path.is_file()]
        if missing and not self.offline:
            download.labelled_lines(self.hub, paths)
        elif missing:
            raise FileNotFoundError(
                f"no {missing[0]}; put {' and '.join(self.files)} there, point paths.data or MSBP_DATA_DIR "
                f"at a folder that has {self.folder}, or set paths.offline=false"
            )
        return paths

    def batches(self, split: Sentences, seed: int, epoch: int) -> Iterator[Batch]:
        """As `Sentences.batch` gives them."""
        return map(split.batch, order(len(split), seed, epoch).split(self.batch_size))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return model.loss(*batch)  # type: ignore[operator]

    def score(self, model: nn.Module, split: Sentences) -> Score:
        batches = map(split.batch, torch.arange(len(split)).split(SCORED_AT_ONCE))
        return Score(accuracy(model, batches), f"{self.metric}, {self.protocol}")


def made_up(sentences: int = 240) -> LabelledSentences:
    """Sentences of nonsense, of which one word tells the class: always the same, and quick to learn."""
    random = np.random.default_rng(0)
    labels = (np.arange(sentences) % 2).tolist()
    made = []
    for label in labels:
        words = [f"word{i}" for i in random.integers(60, size=random.integers(1, 15))]
        words.insert(int(random.integers(len(words) + 1)), f"sign{label}{random.integers(5)}")
        made.append(words)
    return LabelledSentences(made, labels, (f"{sentences} made-up sentences",))


def made_up_vectors(words: int, width: int = 20) -> Tensor:
    """A vector for each word of the made-up sentences."""
    return torch.from_numpy(
        np.random.default_rng(0).normal(scale=0.5, size=(words, width)).astype(np.float32)
    )
