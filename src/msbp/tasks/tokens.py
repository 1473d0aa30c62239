"""From a line of text to words, and back to text that reads as usual."""

import html
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

JOINER = "\N{HALFWIDTH BLACK SQUARE}"  # marks the side on which a word touches the next
EDGES = re.compile(r"(\W*)(.*?)(\W*)", re.DOTALL)
RULES = (  # of text whose punctuation stands apart
    (re.compile(r' " ([^"]*?) " '), r' "\1" '),
    (re.compile(r' ([.,;:!?%)\]}…]+)(?=[ "])'), r"\1"),
    (re.compile(r"(?<= )([(\[{]) "), r"\1"),
    (re.compile(r" ('(?:s|re|ve|ll|d|m|t))(?= )", re.IGNORECASE), r"\1"),
)


class Tokens(NamedTuple):
    """How a corpus is cut into words, and how words become a line of text again."""

    split: Callable[[str], list[str]]
    join: Callable[[Sequence[str]], str]


def split_at_edges(line: str) -> list[str]:
    """Words apart by spaces, and punctuation at their edges: "he (Tim)." is he, (￭, Tim, ￭), ￭."""
    return [word for chunk in line.replace(JOINER, "").split() for word in _cut(chunk)]


def _cut(chunk: str) -> list[str]:
    before, word, after = EDGES.fullmatch(chunk).groups()  # type: ignore[union-attr]
    if not word:
        return [chunk]  # punctuation alone
    return [*(mark + JOINER for mark in before), word, *(JOINER + mark for mark in after)]


def join_at_edges(words: Sequence[str]) -> str:
    """The line that split_at_edges took apart."""
    return re.sub(f"{JOINER} | {JOINER}", "", " ".join(words)).replace(JOINER, "")


def join_as_usual(words: Sequence[str]) -> str:
    """Plain text of words that came tokenised: entities such as &apos; are undone, punctuation touches."""
    text = f" {html.unescape(' '.join(words))} "
    for pattern, replacement in RULES:
        text = pattern.sub(replacement, text)
    return " ".join(text.split())


TOKENS = {"spaces": Tokens(str.split, join_as_usual), "edges": Tokens(split_at_edges, join_at_edges)}
