"""Small synthetic data sets for trials without files; each depends on its sizes and seeds alone."""

from __future__ import annotations

import hashlib
from random import Random

import numpy as np
import torch
from torch import Tensor

from .base import Examples
from .translation.bitext import ParallelText
from .treebanks import Sentence

TREEBANK = {"train": 300, "dev": 60, "test": 60}  # sentences
PARALLEL = {"train": 320, "dev": 40, "test": 40}  # pairs
IMAGES = {"train": 640, "dev": 128, "test": 128}
LABELLED = 240  # sentences
PIXELS, DIGITS = 28 * 28, 10
WORDS = {
    "DT": ("DET", "the a this some every".split()),
    "JJ": ("ADJ", "red old warm small quiet odd green loud".split()),
    "NN": ("NOUN", "kettle river door lamp boat stone garden letter bridge cup".split()),
    "VBD": ("VERB", "found moved carried painted saw lost opened drew".split()),
    "RB": ("ADV", "soon slowly again often twice".split()),
    "IN": ("ADP", "near under with behind from".split()),
    ".": ("PUNCT", [".", "!", "?"]),
}
Phrase = list[tuple[str, int, str]]  # tag, head (its position within the phrase, from 1; 0 is the top), label


def digest(kind: str, *sizes: object) -> str:
    """Return 16 hex digits over the kind of a synthetic set and what it depends on, for `Splits.digest`."""
    return hashlib.blake2b(repr(("synthetic", kind, *sizes)).encode(), digest_size=8).hexdigest()


def treebanks() -> dict[str, list[Sentence]]:
    """Return train, dev and test of a toy grammar."""
    return {split: treebank(count, seed) for seed, (split, count) in enumerate(TREEBANK.items())}


def treebank(count: int, seed: int) -> list[Sentence]:
    """Return sentences of a toy grammar; projective, with one root."""
    random = Random(seed)
    return [sentence(random) for _ in range(count)]


def parallel_texts() -> dict[str, ParallelText]:
    """Return train, dev and test of a toy language pair."""
    return {split: parallel_text(count, seed) for seed, (split, count) in enumerate(PARALLEL.items())}


def parallel_text(count: int, seed: int) -> ParallelText:
    """Return sentences of a toy grammar and their translations: every word backwards, the verb at the end."""
    sentences = [list(sentence.words) for sentence in treebank(count, seed)]
    verbs = set(WORDS["VBD"][1])
    translations = [
        [word[::-1] for word in sorted(words[:-1], key=verbs.__contains__)] + words[-1:]
        for words in sentences
    ]
    return ParallelText([" ".join(s) for s in sentences], [[" ".join(t) for t in translations]])


def labelled_sentences(count: int = LABELLED) -> tuple[list[list[str]], list[int]]:
    """Return sentences and their classes, 0 or 1, on which one word of each depends; the others are noise."""
    random = np.random.default_rng(0)
    labels = (np.arange(count) % 2).tolist()
    sentences = []
    for label in labels:
        words = [f"word{i}" for i in random.integers(60, size=random.integers(1, 15))]
        words.insert(int(random.integers(len(words) + 1)), f"sign{label}{random.integers(5)}")
        sentences.append(words)
    return sentences, labels


def image_splits() -> list[Examples]:
    """Return train, dev and test of random pictures."""
    return [images(count, seed) for seed, count in enumerate(IMAGES.values(), start=1)]


def images(count: int, seed: int) -> Examples:
    """Return noisy copies of ten random pictures in place of digits."""
    pictures = np.random.default_rng(0).random((DIGITS, PIXELS)) < 0.2
    random = np.random.default_rng(seed)
    y = random.integers(DIGITS, size=count)
    x = np.where(random.random((count, PIXELS)) < 0.5, pictures[y], random.random((count, PIXELS)) < 0.2)
    return Examples(torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y))


def tagger_vectors(words: int, width: int = 20) -> Tensor:
    """Return random word vectors of standard deviation 1, for the words of `treebanks`."""
    return torch.randn(words, width, generator=torch.Generator().manual_seed(0))


def sentence_vectors(words: int, width: int = 20) -> Tensor:
    """Return random word vectors of standard deviation 0.5, for the words of `labelled_sentences`."""
    return torch.from_numpy(
        np.random.default_rng(0).normal(scale=0.5, size=(words, width)).astype(np.float32)
    )


def sentence(random: Random) -> Sentence:
    subject, verb, rest = noun_phrase(random), [("VBD", 0, "root")], [(noun_phrase(random), "obj")]
    if random.random() < 0.5:
        rest.append(([("RB", 0, "")], "advmod"))
    if random.random() < 0.5:
        rest.append((prepositional(random), "obl"))
    rest.append(([(".", 0, "")], "punct"))
    rows = under(verb, [(subject, "nsubj")], rest)
    tags = [tag for tag, _, _ in rows]
    return Sentence(
        words=[random.choice(WORDS[tag][1]) for tag in tags],
        tags=tags,
        upos=[WORDS[tag][0] for tag in tags],
        heads=[head for _, head, _ in rows],
        labels=[label for _, _, label in rows],
    )


def noun_phrase(random: Random) -> Phrase:
    before = [([("DT", 0, "")], "det")] + [([("JJ", 0, "")], "amod")] * random.randrange(3)
    return under([("NN", 0, "")], before, [(prepositional(random), "nmod")] if random.random() < 0.2 else [])


def prepositional(random: Random) -> Phrase:
    return under(noun_phrase(random), [([("IN", 0, "")], "case")], [])


def under(head: Phrase, before: list[tuple[Phrase, str]], after: list[tuple[Phrase, str]]) -> Phrase:
    """Return a head phrase with dependent phrases, before and after it, attached to its top."""
    parts = [*before, (head, ""), *after]
    starts = [sum(len(phrase) for phrase, _ in parts[:i]) for i in range(len(parts))]
    top = starts[len(before)] + 1 + [position for _, position, _ in head].index(0)
    rows: Phrase = []
    for (phrase, label), start in zip(parts, starts, strict=True):
        for tag, position, own in phrase:
            if position:
                rows.append((tag, start + position, own))
            elif phrase is head:
                rows.append((tag, 0, own))
            else:
                rows.append((tag, top, label))
    return rows
