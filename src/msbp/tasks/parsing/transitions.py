"""The arc-standard system with a single root, for many sentences at once (Nivre 2004; Chen and Manning 2014).

Letters: N nodes of all sentences, S sentences, A active sentences, T configurations, L labels.
A node is a word or the root before a sentence; node 0 is an empty position.
Transitions: 0 shifts; 1..L attach the second of the stack to the first, L+1..2L the first to the second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

EMPTY, SHIFT, NO_LABEL = 0, 0, -1
ONLY_SHIFT, ONLY_ROOT, ANY, ONLY_ARCS = range(4)  # kinds of configurations: the transitions allowed
CHILDREN = 12  # of the 18 nodes that the features look at, the last 12 are children and have labels

Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Nodes:
    """Sentences laid end to end. All arrays (N) but `first`, the root nodes, and `lengths` in words (S)."""

    words: Ints
    tags: Ints
    heads: Ints  # nodes; EMPTY for a root
    labels: Ints  # 0..L-1, NO_LABEL for a root or an unseen label
    counted: NDArray[np.bool_]  # by scores: neither roots nor punctuation
    first: Ints
    lengths: Ints


class Features(NamedTuple):
    """Features of configurations: 18 nodes (A, 18), labels of the last 12 so far (A, 12), kinds (A)."""

    nodes: Ints
    labels: Ints
    kinds: Ints


class Configurations:
    """The configuration of every sentence: stack, buffer and the arcs so far."""

    def __init__(self, nodes: Nodes):
        size, sentences = len(nodes.words), len(nodes.first)
        self.next, self.end = nodes.first + 1, nodes.first + nodes.lengths + 1
        # two EMPTYs lie below each stack
        self.top = nodes.first + 2 * np.arange(1, sentences + 1, dtype=np.int32)
        self.bottom = self.top.copy()
        self.stack = np.zeros(size + 2 * sentences, np.int32)
        self.stack[self.top] = nodes.first
        self.heads, self.labels = np.zeros(size, np.int32), np.full(size, NO_LABEL, np.int32)
        self.left, self.right = np.zeros((2, size), np.int32), np.zeros((2, size), np.int32)  # outermost two

    def unfinished(self, active: Ints) -> Ints:
        """Return the sentences among some (A) with words on the buffer, or on the stack beside the root."""
        return active[(self.next[active] < self.end[active]) | (self.top[active] > self.bottom[active])]

    def kinds(self, active: Ints) -> Ints:
        """Return the kind of each sentence's configuration (A)."""
        shift, height = self.next[active] < self.end[active], self.top[active] - self.bottom[active]
        return np.where(
            shift, np.where(height > 1, ANY, ONLY_SHIFT), np.where(height > 1, ONLY_ARCS, ONLY_ROOT)
        )

    def features(self, active: Ints) -> Features:
        """Return the nodes of the features of Chen and Manning (2014).

        Stack 1-3, buffer 1-3, and for stack 1 and 2 the outer children.
        """
        stack = [self.stack[self.top[active] - depth] for depth in range(3)]
        ahead = [self.next[active] + i for i in range(3)]
        buffer = [np.where(node < self.end[active], node, EMPTY) for node in ahead]
        children = [child for node in stack[:2] for child in self._children(node)]
        nodes = np.stack(stack + buffer + children, axis=1)
        return Features(nodes, self.labels[nodes[:, -CHILDREN:]], self.kinds(active))

    def apply(self, active: Ints, transitions: Ints, labels: int) -> None:
        """Take one legal transition (A) in each sentence; L = `labels`."""
        first, second = self.stack[self.top[active]], self.stack[self.top[active] - 1]
        shift, rightward = transitions == SHIFT, transitions > labels
        leftward = ~shift & ~rightward
        self._attach(second[leftward], first[leftward], transitions[leftward] - 1, self.left)
        self._attach(first[rightward], second[rightward], transitions[rightward] - 1 - labels, self.right)
        self.top[active] += np.where(shift, 1, -1)
        shifted, shortened = active[shift], active[leftward]
        self.stack[self.top[shifted]] = self.next[shifted]
        self.stack[self.top[shortened]] = first[leftward]
        self.next[shifted] += 1

    def _children(self, node: Ints) -> list[Ints]:
        (left, left2), (right, right2) = self.left, self.right
        return [left[node], right[node], left2[node], right2[node], left[left[node]], right[right[node]]]

    def _attach(self, child: Ints, head: Ints, label: Ints, side: Ints) -> None:
        self.heads[child], self.labels[child] = head, label
        side[1, head], side[0, head] = side[0, head], child  # arcs of one side come from the inside out


def parse(nodes: Nodes, labels: int, choose: Callable[[Features], Ints]) -> tuple[Ints, Ints]:
    """Return heads and labels (N) of the trees that `choose` builds by legal transitions."""
    state, active = Configurations(nodes), np.arange(len(nodes.first), dtype=np.int32)
    while len(active := state.unfinished(active)):
        state.apply(active, choose(state.features(active)), labels)
    return state.heads, state.labels


def legal(gold: Nodes, labels: int) -> NDArray[np.bool_]:
    """Return a mask of the legal transitions in each kind of configuration (4, 2L+1).

    Labels that only roots have in the gold trees are legal for roots alone, the others for all other words.
    """
    of_root = np.isin(gold.heads, gold.first)
    at_root, elsewhere = (
        np.isin(np.arange(labels), gold.labels[words])
        for words in (of_root, ~of_root & (gold.labels != NO_LABEL))
    )
    table = np.zeros((4, 1 + 2 * labels), bool)
    table[[ONLY_SHIFT, ANY], SHIFT] = True
    table[ONLY_ROOT, 1 + labels :] = at_root
    table[[ANY, ONLY_ARCS], 1:] = np.tile(elsewhere, 2)
    return table


class Derivations(NamedTuple):
    """T configurations of the static oracle, its transition in each, and counts of underivable sentences."""

    features: Features
    transitions: Ints
    several_roots: int
    non_projective: int


def derivations(gold: Nodes, labels: int) -> Derivations:
    """Return the static oracle's derivations of the sentences that have one.

    They have a single root, no crossing arcs and known labels.
    A left arc is taken as soon as it is possible, a right arc once the child has all of its own children.
    """
    state = Configurations(gold)
    pending = np.bincount(gold.heads, minlength=len(gold.heads))
    roots = np.add.reduceat(np.isin(gold.heads, gold.first), gold.first, dtype=np.int32)
    # counts the root, and words with unseen labels
    unlabelled = np.add.reduceat(gold.labels == NO_LABEL, gold.first, dtype=np.int32)
    active = np.flatnonzero((roots == 1) & (unlabelled == 1)).astype(np.int32)
    stuck = np.zeros(len(gold.first), bool)
    none = active[:0]
    steps = [(none, *state.features(none), none)]  # for the shapes where nothing can be derived
    while len(active := state.unfinished(active)):
        features = state.features(active)
        first, second = features.nodes[:, 0], features.nodes[:, 1]
        left = gold.heads[second] == first
        right = (gold.heads[first] == second) & (pending[first] == 0) & (features.kinds != ONLY_SHIFT)
        child = np.where(left, second, first)
        arc = 1 + gold.labels[child] + np.where(left, 0, labels)
        oracle = np.where(left | right, arc, SHIFT).astype(np.int32)
        lost = (oracle == SHIFT) & np.isin(features.kinds, (ONLY_ROOT, ONLY_ARCS))
        stuck[active[lost]] = True
        pending[gold.heads[child[left | right]]] -= 1
        steps.append((active, *features, oracle))
        active, oracle = active[~lost], oracle[~lost]
        state.apply(active, oracle, labels)
    sentence, *columns = (np.concatenate(column) for column in zip(*steps, strict=True))
    *parts, transitions = (column[~stuck[sentence]] for column in columns)
    return Derivations(Features(*parts), transitions, int((roots != 1).sum()), int(stuck.sum()))
