"""Folds of a labelled set: for cross-validation, and for a fixed split.

Letters: N examples.
"""

from collections.abc import Sequence

import numpy as np

Parts = tuple[np.ndarray, np.ndarray, np.ndarray]
FOLDS = 10


def deal(labels: Sequence[int], folds: int, seed: int) -> np.ndarray:
    """A fold (N) for each example: each class is shuffled and dealt out in turn, one class after the other.

    So the sizes of two folds differ by one at most, in each class and in all.
    """
    random, classes = np.random.default_rng(seed), np.asarray(labels)
    order = np.concatenate([random.permutation(np.flatnonzero(classes == c)) for c in np.unique(classes)])
    fold = np.empty(len(order), np.int64)
    fold[order] = np.arange(len(order)) % folds
    return fold


def cross_validation(labels: Sequence[int], seed: int) -> Parts:
    """Train, dev (a tenth of the rest) and test of fold seed modulo 10; seeds from 10 on shuffle anew."""
    shuffle, test = divmod(seed, FOLDS)
    fold = deal(labels, FOLDS, shuffle)
    rest = np.flatnonzero(fold != test)
    dev = deal(np.asarray(labels)[rest].tolist(), FOLDS, seed) == 0
    return rest[~dev], rest[dev], np.flatnonzero(fold == test)


def fixed_split(labels: Sequence[int], seed: int) -> Parts:
    """80, 10 and 10 %, the same for every seed."""
    fold = deal(labels, FOLDS, 0)
    return np.flatnonzero(fold > 1), np.flatnonzero(fold == 1), np.flatnonzero(fold == 0)


PROTOCOLS = {"cross_validation": cross_validation, "fixed_split": fixed_split}
