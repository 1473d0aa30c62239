"""Penn Treebank bracketed files (.mrg): constituency trees without their empty elements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .treebank import TreebankError, lines

TOKEN = re.compile(r"[()]|[^\s()]+")
DEEPEST = 200  # brackets in one another, several times what a sentence needs
EMPTY = "-NONE-"  # the tag of traces and other elements that are not in the text


@dataclass
class Tree:
    """A constituent with children, or a leaf: `label` is then a tag and `word` its word."""

    label: str
    children: list[Tree] = field(default_factory=list)
    word: str | None = None
    source: str = ""  # file:line of its opening bracket

    @property
    def category(self) -> str:
        """The label without function tags and indices; -LRB- and other tags of that form are whole."""
        return self.label if self.word is not None else re.split(r"(?<=.)[-=|]", self.label, maxsplit=1)[0]

    @property
    def functions(self) -> list[str]:
        """The function tags: SBJ and TPC of NP-SBJ-TPC-1."""
        return re.findall(r"-([A-Z]+)", self.label) if self.word is None else []

    def leaves(self) -> Iterator[Tree]:
        if self.word is not None:
            yield self
        for child in self.children:
            yield from child.leaves()


def read_mrg(path: Path | str) -> list[Tree]:
    """The trees of a .mrg file without empty elements, an empty top node with one child removed.

    Only brackets part trees; line breaks and blank lines mean nothing. Raises TreebankError.
    """
    trees = []
    for tree in _trees(path):
        full = _without_empty(tree)
        if full is None:
            continue
        while not full.label and len(full.children) == 1:
            full = full.children[0]
        trees.append(full)
    if not trees:
        raise TreebankError(f"{path}:1: no tree with a word in the whole file")
    return trees


def _trees(path: Path | str) -> Iterator[Tree]:
    open_nodes: list[Tree] = []
    after_bracket = False  # a label may follow
    for source, token in _tokens(path):
        if token == "(":
            if len(open_nodes) == DEEPEST:
                raise TreebankError(f"{source}: {DEEPEST} brackets are open here: some are not closed")
            open_nodes.append(Tree("", source=source))
        elif not open_nodes:
            raise TreebankError(f"{source}: {token!r} outside of all brackets")
        elif token == ")":
            node = _closed(open_nodes.pop())
            if not open_nodes:
                yield node
            elif open_nodes[-1].word is not None:
                raise TreebankError(f"{source}: a bracket after the word {open_nodes[-1].word!r} of a leaf")
            else:
                open_nodes[-1].children.append(node)
        elif after_bracket:
            open_nodes[-1].label = token
        elif open_nodes[-1].word is not None or open_nodes[-1].children or not open_nodes[-1].label:
            raise TreebankError(f"{source}: {token!r} where a bracket was wanted: a leaf is (TAG word)")
        else:
            open_nodes[-1].word = token
        after_bracket = token == "("
    if open_nodes:
        raise TreebankError(f"{open_nodes[0].source}: the tree that begins here is never closed")


def _tokens(path: Path | str) -> Iterator[tuple[str, str]]:
    for source, text in lines(path):
        for token in TOKEN.findall(text):
            yield source, token


def _closed(node: Tree) -> Tree:
    if node.word is None and not node.children:
        raise TreebankError(f"{node.source}: ({node.label}) holds nothing; a leaf is (TAG word)")
    return node


def _without_empty(tree: Tree) -> Tree | None:
    if tree.word is not None:
        return None if tree.label == EMPTY else tree
    children = [kept for child in tree.children if (kept := _without_empty(child)) is not None]
    return Tree(tree.label, children, source=tree.source) if children else None
