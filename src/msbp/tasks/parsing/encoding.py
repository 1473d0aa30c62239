"""Sentences as numbers: a vocabulary, the nodes of the transition system, the tokens that a parser looks up.

Encoded treebanks are kept between runs, keyed by what they were computed from. Letters: N nodes of all
sentences, A configurations (see transitions.py).
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np

from ...files import written_whole
from ..treebanks import Sentence
from .transitions import EMPTY, NO_LABEL, Features, Ints, Nodes

ABSENT, ROOT, RARE = range(3)  # come before all words, and before all tags
SPECIAL = 3
PARTS = ("words", "tags", "labels")
Arrays = Mapping[str, np.ndarray]
NAME = "written_as"  # the array that holds the name that a file was written under
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Punctuation:
    """The rule that words with one of `values` in a field of the gold sentence are punctuation."""

    field: str
    values: frozenset[str]

    def marks(self, sentence: Sentence) -> list[bool]:
        """Return for each word of a sentence whether it is punctuation."""
        return [value in self.values for value in getattr(sentence, self.field)]

    def rule(self, matched: bool) -> str:
        """Return the rule's part of a metric signature.

        A rule that matched nothing may not fit the tags of the corpus.
        """
        outcome = "left out" if matched else "none found"
        return f"punctuation:{outcome} by {self.field} {' '.join(sorted(self.values))}"


PUNCTUATION = {
    "tags": Punctuation("tags", frozenset({"``", "''", ",", ".", ":"})),  # $ and % are words
    "upos": Punctuation("upos", frozenset({"PUNCT"})),
}


@dataclass(frozen=True)
class Vocabulary:
    """Words, tags and labels of a training set; tokens are numbered through: words, tags, labels."""

    words: Sequence[str]
    tags: Sequence[str]
    labels: Sequence[str]

    @classmethod
    def of(cls, sentences: Sequence[Sentence], cutoff: int) -> Vocabulary:
        """Return the vocabulary of sentences; words seen no more than `cutoff` times are one rare word."""
        counts = Counter(each(sentences, "words"))
        words = sorted(word for word, count in counts.items() if count > cutoff)
        return cls(words, sorted(set(each(sentences, "tags"))), sorted(set(each(sentences, "labels"))))

    @property
    def sizes(self) -> dict[str, int]:
        """Word tokens, tag tokens, and labels; a label token more stands for none."""
        return {
            "words": SPECIAL + len(self.words),
            "tags": SPECIAL + len(self.tags),
            "labels": len(self.labels),
        }

    def nodes(self, sentences: Sequence[Sentence], punctuation: Punctuation) -> Nodes:
        """Return the sentences concatenated after the empty node; scores do not count punctuation."""
        lengths = np.array([len(sentence) for sentence in sentences], np.int32)
        first = (np.cumsum(lengths + 1) - lengths).astype(np.int32)
        is_word = np.ones(1 + len(sentences) + int(lengths.sum()), bool)
        is_word[EMPTY] = is_word[first] = False

        def laid(values: Iterable[int], at_root: int, at_empty: int) -> Ints:
            out = np.full(len(is_word), at_root, np.int32)
            out[EMPTY] = at_empty
            out[is_word] = np.fromiter(values, np.int32, int(lengths.sum()))
            return out

        def numbers(part: str, unseen: int) -> Iterable[int]:
            return (self._numbers[part].get(value, unseen) for value in each(sentences, part))

        heads = laid(each(sentences, "heads"), EMPTY, EMPTY)
        heads[is_word] += np.repeat(first, lengths)
        return Nodes(
            words=laid(numbers("words", RARE), ROOT, ABSENT),
            tags=laid(numbers("tags", RARE), ROOT, ABSENT),
            heads=heads,
            labels=laid(numbers("labels", NO_LABEL), NO_LABEL, NO_LABEL),
            counted=~laid(chain.from_iterable(map(punctuation.marks, sentences)), 1, 1).astype(bool),
            first=first,
            lengths=lengths,
        )

    def tokens(self, nodes: Nodes, features: Features) -> Ints:
        """Return the 48 features (A, 48): 18 words, 18 tags, 12 labels."""
        words, tags = self.sizes["words"], self.sizes["tags"]
        parts = (
            nodes.words[features.nodes],
            words + nodes.tags[features.nodes],
            words + tags + 1 + features.labels,
        )
        return np.concatenate(parts, axis=1)

    @cached_property
    def _numbers(self) -> dict[str, dict[str, int]]:
        parts = (("words", self.words, SPECIAL), ("tags", self.tags, SPECIAL), ("labels", self.labels, 0))
        return {name: {value: i for i, value in enumerate(values, start)} for name, values, start in parts}


@dataclass(frozen=True)
class Encoded:
    """A treebank as numbers: the vocabulary of its training set, and the nodes of each split."""

    vocabulary: Vocabulary
    splits: Mapping[str, Nodes]

    @classmethod
    def of(cls, parts: Mapping[str, Sequence[Sentence]], cutoff: int, punctuation: Punctuation) -> Encoded:
        vocabulary = Vocabulary.of(parts["train"], cutoff)
        return cls(vocabulary, {split: vocabulary.nodes(part, punctuation) for split, part in parts.items()})

    def arrays(self) -> Arrays:
        """Return plain arrays, of which `from_arrays` restores an equal object."""
        arrays = {part: np.array(getattr(self.vocabulary, part), str) for part in PARTS}
        for split, nodes in self.splits.items():
            arrays |= {f"{split}.{part}": array for part, array in vars(nodes).items()}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Encoded:
        """Return the object whose `arrays` these are."""
        splits: dict[str, dict[str, np.ndarray]] = {}
        for name in (name for name in arrays if name not in PARTS):
            split, part = name.split(".")
            splits.setdefault(split, {})[part] = arrays[name]
        vocabulary = Vocabulary(*(arrays[part].tolist() for part in PARTS))
        return cls(vocabulary, {split: Nodes(**parts) for split, parts in splits.items()})


def each(sentences: Iterable[Sentence], part: str) -> Iterator:
    """Return one field of all words, such as their tags, sentence after sentence."""
    return chain.from_iterable(getattr(sentence, part) for sentence in sentences)


def cache_key(digest: str, *settings: object) -> str:
    """Return 16 hex digits over a digest of the data, the settings, and the code of all tasks."""
    key = hashlib.blake2b(digest.encode(), digest_size=8)
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        key.update(hashlib.blake2b(path.read_bytes()).digest())
    key.update(repr(settings).encode())
    return key.hexdigest()


def cached(path: Path | None, compute: Callable[[], Arrays]) -> Arrays:
    """Return the arrays in the .npz file `path`, or compute and, where possible, write them."""
    if path is None:
        return compute()
    try:
        # np.load alone leaves a damaged file open
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            stored = {name: arrays[name] for name in arrays.files}  # reading checks each array's checksum
            if (name := str(stored.pop(NAME))) != path.name:
                raise ValueError(f"was written as {name}")
            return stored
    except FileNotFoundError:
        pass
    except Exception as error:  # numpy and zipfile raise many kinds for bytes that they did not write
        log.warning("%s is damaged (%r) and is computed again", path, error)
    computed = compute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as out:
            np.savez(out, **{NAME: np.array(path.name)}, **computed)  # type: ignore[arg-type]
    except OSError as error:
        log.warning("%s is not kept for the next run: %s", path, error)
    return computed
