"""The arc-standard system: derivations of the oracle, legal transitions, features."""

import numpy as np
import pytest

from msbp.tasks.parsing.encoding import PUNCTUATION, Encoded, Vocabulary
from msbp.tasks.parsing.transitions import (
    ANY,
    NO_LABEL,
    ONLY_ARCS,
    ONLY_ROOT,
    ONLY_SHIFT,
    SHIFT,
    derivations,
    legal,
    parse,
)
from msbp.tasks.synthetic import treebank
from msbp.tasks.treebanks import Sentence


def sentence(heads: list[int], labels: str | None = None) -> Sentence:
    words = [f"w{i}" for i in range(1, len(heads) + 1)]
    names = labels.split() if labels else ["root" if head == 0 else "dep" for head in heads]
    return Sentence(words, ["T"] * len(heads), ["X"] * len(heads), heads, names)


def encoded(*sentences: Sentence):
    whole = Encoded.of({"train": sentences}, cutoff=0, punctuation=PUNCTUATION["upos"])
    return whole.vocabulary, whole.splits["train"]


def random_tree(chance: np.random.Generator, words: int) -> list[int]:
    """Heads of a random tree with one root; crossing arcs are likely."""
    order = chance.permutation(words)
    heads = [0] * words
    for i, word in enumerate(order[1:], start=1):
        heads[word] = int(order[chance.integers(i)]) + 1
    return heads


def crosses(heads: list[int]) -> bool:
    arcs = [(min(h, d), max(h, d)) for d, h in enumerate(heads, start=1)]
    return any(a < c < b < d for a, b in arcs for c, d in arcs)


def test_a_sentence_of_n_words_takes_2n_transitions_in_the_order_of_the_oracle():
    vocabulary, gold = encoded(sentence([2, 0, 2], "nsubj root obj"))
    nsubj, obj, root = (vocabulary.labels.index(name) for name in ("nsubj", "obj", "root"))
    left, right = (lambda label: 1 + label), (lambda label: 1 + 3 + label)
    assert derivations(gold, 3).transitions.tolist() == [
        SHIFT, SHIFT, left(nsubj), SHIFT, right(obj), right(root),
    ]  # fmt: skip


def test_the_features_are_those_of_chen_and_manning():
    vocabulary, gold = encoded(sentence([2, 3, 0, 3, 4, 4, 3], "a b root c d e f"))
    derived = derivations(gold, len(vocabulary.labels))
    last = derived.features.nodes[-2].tolist()  # before w7 is attached to w3: stack root, w3, w7
    assert last[:6] == [8, 4, 1, 0, 0, 0]  # nodes: the empty one is 0, the root 1, w1 is 2 and so on
    assert last[6:12] == [0] * 6
    assert last[12:] == [3, 5, 0, 0, 2, 7]  # w3: left w2, right w4, no second ones, w1 of w2, w6 of w4
    names = [vocabulary.labels[i] if i != NO_LABEL else "-" for i in derived.features.labels[-2]]
    assert names == ["-"] * 6 + ["b", "c", "-", "-", "a", "e"]


def test_second_children_are_the_second_outermost():
    _, gold = encoded(sentence([3, 3, 0, 3, 3, 3]))
    (stack, left, right, left2, right2) = derivations(gold, 2).features.nodes[-1][[0, 6, 7, 8, 9]]
    assert (stack, left, left2, right, right2) == (4, 2, 3, 7, 6)


def test_the_oracle_derives_all_projective_trees_and_no_other():
    chance = np.random.default_rng(0)
    trees = [random_tree(chance, int(chance.integers(1, 9))) for _ in range(400)]
    vocabulary, gold = encoded(*map(sentence, trees))
    derived = derivations(gold, len(vocabulary.labels))
    crossing = [crosses(tree) for tree in trees]
    assert 50 < sum(crossing) < 350
    assert derived.non_projective == sum(crossing) and derived.several_roots == 0
    kept = [len(tree) for tree, bad in zip(trees, crossing, strict=True) if not bad]
    assert len(derived.transitions) == 2 * sum(kept)


def test_following_the_oracle_gives_the_gold_trees():
    vocabulary, gold = encoded(*treebank(50, seed=0))
    labels = len(vocabulary.labels)
    derived = derivations(gold, labels)
    rows = {
        tuple(row): move
        for row, move in zip(derived.features.nodes.tolist(), derived.transitions, strict=True)
    }
    heads, result = parse(
        gold, labels, lambda seen: np.array([rows[tuple(row)] for row in seen.nodes.tolist()])
    )
    words = gold.labels != NO_LABEL
    assert (heads[words] == gold.heads[words]).all() and (result[words] == gold.labels[words]).all()


def test_sentences_with_several_roots_are_left_out_and_counted():
    _, gold = encoded(sentence([0, 1]), sentence([0, 0]), sentence([3, 4, 0, 3]))
    derived = derivations(gold, 2)
    assert (derived.several_roots, derived.non_projective, len(derived.transitions)) == (1, 1, 4)


def test_sentences_without_derivation_give_empty_arrays():
    _, gold = encoded(sentence([0, 0]))
    derived = derivations(gold, 2)
    assert derived.transitions.shape == (0,) and derived.features.nodes.shape == (0, 18)


def test_legal_transitions_keep_root_labels_for_the_root_and_the_root_for_the_end():
    vocabulary, gold = encoded(sentence([2, 0, 2], "nsubj root obj"))
    table = legal(gold, 3)
    root = 1 + 3 + vocabulary.labels.index("root")
    assert np.flatnonzero(table[ONLY_SHIFT]).tolist() == [SHIFT]
    assert np.flatnonzero(table[ONLY_ROOT]).tolist() == [root]
    assert table[ANY, SHIFT] and not table[ONLY_ARCS, SHIFT]
    assert not table[[ANY, ONLY_ARCS]][:, [root, root - 3]].any()
    assert table[ONLY_ARCS].sum() == 4 and table[ANY].sum() == 5


@pytest.mark.parametrize("seed", range(3))
def test_any_choice_of_legal_transitions_ends_in_trees_with_one_root(seed):
    vocabulary, gold = encoded(*treebank(40, seed))
    labels, chance = len(vocabulary.labels), np.random.default_rng(seed)
    table = legal(gold, labels)
    heads, _ = parse(
        gold,
        labels,
        lambda seen: np.array([chance.choice(np.flatnonzero(table[kind])) for kind in seen.kinds]),
    )
    for first, length in zip(gold.first, gold.lengths, strict=True):
        relative = (heads[first + 1 : first + 1 + length] - first).tolist()
        assert relative.count(0) == 1 and all(0 <= head <= length for head in relative)
        assert not crosses(relative)


def test_rare_and_unseen_words_share_one_token():
    train = [sentence([0]), sentence([0]), Sentence(["rare"], ["U"], ["X"], [0], ["root"])]
    vocabulary = Vocabulary.of(train, cutoff=1)
    nodes = vocabulary.nodes([*train, Sentence(["new"], ["V"], ["X"], [0], ["other"])], PUNCTUATION["upos"])
    assert vocabulary.words == ["w1"] and vocabulary.tags == ["T", "U"]
    assert nodes.words[2] == nodes.words[4] != nodes.words[6] == nodes.words[8]
    assert nodes.labels[8] == NO_LABEL
