"""Transition-based dependency parsing with gold tags (paper section 5, Table 1).

Letters: T situations, A sentences in work, B batch, L labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from ..limits import check_choice, check_counts
from . import cache
from .attachment import PUNCTUATION, Attachment
from .base import SAMPLES, Batch, Score, Splits, order
from .corpora import Corpus
from .encoding import Encoded, Vocabulary
from .invented import invented
from .transitions import Ints, Nodes, Situations, derivations, legal, parse
from .treebank import UNKNOWN, Sentence

TINY = {"train": 300, "dev": 60, "test": 60}  # sentences
TINY_BATCH = 64  # at most: larger batches would leave a trial a handful of updates
AT_ONCE = 4096  # situations in one forward pass of the evaluation


@dataclass(frozen=True)
class Trees:
    """Sentences to parse, and the situations on the way to those that the transition system can derive."""

    vocabulary: Vocabulary
    nodes: Nodes
    several_roots: int  # sentences that were not derived
    non_projective: int
    legal: Tensor  # (4, 2L+1), a row for each kind of situation
    tokens: Tensor  # (T, 48) int32
    kinds: Tensor  # (T)
    transitions: Tensor  # (T)

    @classmethod
    def of(cls, vocabulary: Vocabulary, nodes: Nodes, allowed: np.ndarray) -> Trees:
        derived = derivations(nodes, len(vocabulary.labels))
        kinds, transitions = derived.situations.kinds.astype(np.int64), derived.transitions.astype(np.int64)
        known = allowed[kinds, transitions]  # dev may have a label at the root that no root has in training
        columns = vocabulary.tokens(nodes, derived.situations), kinds, transitions
        tensors = (torch.from_numpy(column[known]) for column in columns)
        left_out = derived.several_roots, derived.non_projective
        return cls(vocabulary, nodes, *left_out, torch.from_numpy(allowed), *tensors)


@dataclass
class Parsing:
    """Arc-standard parsing with the 48 features of Chen and Manning; UAS and LAS leave out punctuation.

    cutoff: words seen no more than this often in training are one rare word.
    cache: folder for encoded treebanks; the situations are derived anew, which is as fast as reading them.
    """

    name: str
    corpus: Corpus
    batch_size: int
    cutoff: int = 1
    sample: str = "full"
    cache: str | Path | None = None
    metric: ClassVar[str] = "uas"
    unit: ClassVar[str] = "transitions"

    def __post_init__(self) -> None:
        check_counts("task", batch_size=self.batch_size)
        check_counts("task", least=0, cutoff=self.cutoff)
        check_choice("task.sample", self.sample, SAMPLES)
        check_choice("task.corpus.punctuation", self.corpus.punctuation, PUNCTUATION)
        self.punctuation = PUNCTUATION[self.corpus.punctuation]

    def splits(self, seed: int) -> Splits:
        encoded = self._encoded()
        labels = len(encoded.vocabulary.labels)
        allowed = legal(encoded.splits["train"], labels)
        trees = {s: Trees.of(encoded.vocabulary, nodes, allowed) for s, nodes in encoded.splits.items()}
        if not len(trees["train"].transitions):
            raise ValueError("no training sentence is a projective tree with one root: nothing to learn from")
        for split in ("dev", "test"):
            if not trees[split].nodes.counted.any():
                raise ValueError(f"no word to score in {split}: all are punctuation; name other files for it")
        notes = [note for split, part in trees.items() for note in counts(split, part)]
        notes.append(f"{labels} labels, {1 + 2 * labels} transitions to choose from; gold tags")
        return Splits(**trees, sizes=encoded.vocabulary.sizes, notes=tuple(notes))

    def batches(self, split: Trees, seed: int, epoch: int) -> Iterator[Batch]:
        """Tokens (B, 48), which transitions are legal (B, 2L+1), the right one (B)."""
        size = self.batch_size if self.sample == "full" else min(self.batch_size, TINY_BATCH)
        for index in order(len(split.transitions), seed, epoch).split(size):
            yield split.tokens[index], split.legal[split.kinds[index]], split.transitions[index]

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return model.loss(*batch)  # type: ignore[operator]

    def score(self, model: nn.Module, split: Trees) -> Score:
        gold = split.nodes
        found = parse(gold, len(split.vocabulary.labels), lambda seen: best_legal(model, split, seen))
        rule = self.punctuation.rule(found=gold.counted.sum() < gold.lengths.sum())
        result = Attachment.of((gold.heads, gold.labels), found, gold.counted, rule)
        return Score(result.uas, f"uas|{rule}|tags:gold", {"las": result.las})

    def _encoded(self) -> Encoded:
        if self.sample == "tiny":
            sentences = {split: invented(count, seed=i) for i, (split, count) in enumerate(TINY.items())}
            return self._encode(sentences)
        files = self.corpus.files()
        every = [path for paths in files.values() for path in paths]
        key = cache.key(every, self.corpus, self.cutoff)
        place = None if self.cache is None else Path(self.cache, f"{self.name}-{key}.npz")
        return Encoded.from_arrays(cache.kept(place, lambda: self._encode(self._read(files)).arrays()))

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


def counts(split: str, trees: Trees) -> Iterator[str]:
    """What there is in a split, in words."""
    lengths = trees.nodes.lengths
    yield f"{split}: {len(lengths)} sentences, {lengths.sum()} words, {len(trees.transitions)} transitions"
    for number, kind in ((trees.non_projective, "non-projective"), (trees.several_roots, "many-rooted")):
        if number and split == "train":
            yield f"{number} {kind} sentence{'s' if number > 1 else ''} left out of training"


def best_legal(model: nn.Module, split: Trees, seen: Situations) -> Ints:
    """The legal transition (A) that the model likes best in each situation."""
    device = next(model.parameters()).device
    tokens = torch.from_numpy(split.vocabulary.tokens(split.nodes, seen))
    logits = torch.cat([model(some.to(device)).cpu() for some in tokens.split(AT_ONCE)])
    illegal = ~split.legal[torch.from_numpy(seen.kinds).long()]
    return logits.masked_fill(illegal, -torch.inf).argmax(1).to(torch.int32).numpy()
