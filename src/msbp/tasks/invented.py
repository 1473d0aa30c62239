"""A small made-up treebank: sentences of a toy grammar, for trials that need no data."""

from __future__ import annotations

import random

from .treebank import Sentence

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


def invented(count: int, seed: int) -> list[Sentence]:
    """`count` sentences that depend on the seed alone; projective, with one root."""
    chance = random.Random(seed)
    return [sentence(chance) for _ in range(count)]


def sentence(chance: random.Random) -> Sentence:
    subject, verb, rest = noun_phrase(chance), [("VBD", 0, "root")], [(noun_phrase(chance), "obj")]
    if chance.random() < 0.5:
        rest.append(([("RB", 0, "")], "advmod"))
    if chance.random() < 0.5:
        rest.append((prepositional(chance), "obl"))
    rest.append(([(".", 0, "")], "punct"))
    rows = under(verb, [(subject, "nsubj")], rest)
    tags = [tag for tag, _, _ in rows]
    return Sentence(
        words=[chance.choice(WORDS[tag][1]) for tag in tags],
        tags=tags,
        upos=[WORDS[tag][0] for tag in tags],
        heads=[head for _, head, _ in rows],
        labels=[label for _, _, label in rows],
    )


def noun_phrase(chance: random.Random) -> Phrase:
    before = [([("DT", 0, "")], "det")] + [([("JJ", 0, "")], "amod")] * chance.randrange(3)
    return under([("NN", 0, "")], before, [(prepositional(chance), "nmod")] if chance.random() < 0.2 else [])


def prepositional(chance: random.Random) -> Phrase:
    return under(noun_phrase(chance), [([("IN", 0, "")], "case")], [])


def under(head: Phrase, before: list[tuple[Phrase, str]], after: list[tuple[Phrase, str]]) -> Phrase:
    """A head phrase and those around it as one: their tops go under the head's top with their labels."""
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
