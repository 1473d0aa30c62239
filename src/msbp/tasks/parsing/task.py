"""Transition-based dependency parsing with gold tags (paper, Section 6, Table 2).

Letters: N words, T configurations, A active sentences, B batch, L labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import ClassVar

import numpy as np
import pydantic.dataclasses
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ...config import STRICT
from ...files import file_name
from .. import synthetic
from ..base import Batch, Count, Cutoff, Name, Sample, Score, Splits, Task, digest, order
from ..treebanks import UNKNOWN, Corpus, Sentence
from .encoding import PUNCTUATION, Encoded, Vocabulary, cache_key, cached
from .transitions import Features, Ints, Nodes, derivations, legal, parse

TINY_BATCH = 64  # at most: larger batches would leave a trial a handful of updates
AT_ONCE = 4096  # configurations in one forward pass of the evaluation


def attachment(
    gold: Sequence[ArrayLike], parsed: Sequence[ArrayLike], counted: ArrayLike
) -> tuple[float, float]:
    """Return UAS and LAS in percent of the counted words (N): with the right head, and also label.

    gold, parsed: heads and labels, (N) each.
    """
    heads, labels = (np.asarray(a) == np.asarray(b) for a, b in zip(gold, parsed, strict=True))
    return 100 * float(heads[counted].mean()), 100 * float((heads & labels)[counted].mean())


@dataclass(frozen=True)
class Trees:
    """Sentences to parse, and the configurations of the oracle's derivations with their transitions."""

    vocabulary: Vocabulary
    nodes: Nodes
    several_roots: int  # sentences without a derivation
    non_projective: int
    legal: Tensor  # (4, 2L+1), a row for each kind of configuration
    tokens: Tensor  # (T, 48) int32
    kinds: Tensor  # (T)
    transitions: Tensor  # (T)

    @classmethod
    def of(cls, vocabulary: Vocabulary, nodes: Nodes, allowed: np.ndarray) -> Trees:
        derived = derivations(nodes, len(vocabulary.labels))
        kinds, transitions = derived.features.kinds.astype(np.int64), derived.transitions.astype(np.int64)
        known = allowed[kinds, transitions]  # dev may have a label at the root that no root has in training
        columns = vocabulary.tokens(nodes, derived.features), kinds, transitions
        tensors = (torch.from_numpy(column[known]) for column in columns)
        left_out = derived.several_roots, derived.non_projective
        return cls(vocabulary, nodes, *left_out, torch.from_numpy(allowed), *tensors)


@pydantic.dataclasses.dataclass(config=STRICT)
class Parsing(Task[Trees]):
    """Arc-standard parsing with the 48 features of Chen and Manning; UAS and LAS exclude punctuation.

    cutoff: words seen no more than this often in training are one rare word.
    cache: folder for encoded treebanks; derivations are computed anew, which is as fast as reading them.
    """

    name: Name
    corpus: Corpus
    batch_size: Count
    cutoff: Cutoff = 1
    sample: Sample = "full"
    cache: str | Path | None = None
    metric: ClassVar[str] = "uas"
    unit: ClassVar[str] = "transitions"

    def __post_init__(self) -> None:
        if self.corpus.punctuation not in PUNCTUATION:
            raise ValueError(
                f"task.corpus.punctuation must be one of {', '.join(PUNCTUATION)}, got "
                f"{self.corpus.punctuation!r}"
            )
        self.punctuation = PUNCTUATION[self.corpus.punctuation]

    def splits(self, seed: int) -> Splits[Trees]:
        encoded, data = self._encoded()
        labels = len(encoded.vocabulary.labels)
        allowed = legal(encoded.splits["train"], labels)
        trees = {s: Trees.of(encoded.vocabulary, nodes, allowed) for s, nodes in encoded.splits.items()}
        if not len(trees["train"].transitions):
            raise ValueError("no training sentence is a projective tree with one root: nothing to learn from")
        for split in ("dev", "test"):
            if not trees[split].nodes.counted.any():
                raise ValueError(f"no word to score in {split}: all are punctuation; name other files for it")
        notes = [note for split, part in trees.items() for note in contents(split, part)]
        notes.append(f"{labels} labels, {1 + 2 * labels} transitions to choose from; gold tags")
        sizes = encoded.vocabulary.sizes
        return Splits(trees["train"], trees["dev"], trees["test"], sizes, tuple(notes), digest=data)

    def batches(self, split: Trees, seed: int, epoch: int) -> Iterator[Batch]:
        """Yield tokens (B, 48), a mask of the legal transitions (B, 2L+1), the oracle's transition (B)."""
        size = self.batch_size if self.sample == "full" else min(self.batch_size, TINY_BATCH)
        for index in order(len(split.transitions), seed, epoch).split(size):
            yield split.tokens[index], split.legal[split.kinds[index]], split.transitions[index]

    def score(self, model: nn.Module, split: Trees) -> Score:
        gold = split.nodes
        parsed = parse(
            gold, len(split.vocabulary.labels), lambda features: best_legal(model, split, features)
        )
        rule = self.punctuation.rule(matched=gold.counted.sum() < gold.lengths.sum())
        uas, las = attachment((gold.heads, gold.labels), parsed, gold.counted)
        return Score(uas, f"uas|{rule}|tags:gold", {"las": las})

    def _encoded(self) -> tuple[Encoded, str]:
        """Return the encoded treebank and the digest of its data."""
        if self.sample == "tiny":
            data = synthetic.digest("treebank", synthetic.TREEBANK)
            return self._encode(synthetic.treebanks()), data
        files = self.corpus.files()
        data = digest(path for paths in files.values() for path in paths)
        key = cache_key(data, self.corpus, self.cutoff)
        path = None if self.cache is None else Path(self.cache, f"{file_name(self.name)}-{key}.npz")
        arrays = cached(path, lambda: self._encode(self._read(files)).arrays())
        return Encoded.from_arrays(arrays), data

    def _encode(self, sentences: Mapping[str, Sequence[Sentence]]) -> Encoded:
        return Encoded.of(sentences, self.cutoff, self.punctuation)

    def _read(self, files: Mapping[str, Sequence[Path]]) -> dict[str, list[Sentence]]:
        read = {
            split: list(chain.from_iterable(map(self.corpus.read, paths))) for split, paths in files.items()
        }
        for sentence in chain.from_iterable(read.values()):
            if UNKNOWN in sentence.heads:
                raise ValueError(f"{sentence.source}: a word without a head; parsing needs complete trees")
        return read


def contents(split: str, trees: Trees) -> Iterator[str]:
    """Yield notes on the contents of a split."""
    lengths = trees.nodes.lengths
    yield f"{split}: {len(lengths)} sentences, {lengths.sum()} words, {len(trees.transitions)} transitions"
    for number, kind in ((trees.non_projective, "non-projective"), (trees.several_roots, "many-rooted")):
        if number and split == "train":
            yield f"{number} {kind} sentence{'s' if number > 1 else ''} left out of training"


def best_legal(model: nn.Module, split: Trees, features: Features) -> Ints:
    """Return the legal transition (A) with the model's highest logit in each configuration."""
    device = next(model.parameters()).device
    tokens = torch.from_numpy(split.vocabulary.tokens(split.nodes, features))
    logits = torch.cat([model(some.to(device)).cpu() for some in tokens.split(AT_ONCE)])
    illegal = ~split.legal[torch.from_numpy(features.kinds).long()]
    return logits.masked_fill(illegal, -torch.inf).argmax(1).to(torch.int32).numpy()
