"""Constituency trees, and their conversion to dependencies as for the Penn Treebank.

The head rules are those of Yamada and Matsumoto (2003), the twelve labels those of the Penn2Malt converter
(Nivre 2006, Inductive Dependency Parsing), which fit the paper's 25 outputs.

On the 3,914 trees that have a public dependency version the heads agree for every word. That version has no
labels. VC and OBJ are left to phrases whose head child is a word, so that conjuncts are not verb chains.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from . import Sentence

# Phrase, where to start looking (l or r), then the categories in falling priority, | between equals; a phrase
# in which none is found takes its first child from there that is not punctuation.
HEAD_RULES = """
ADJP    r  NNS QP NN $ ADVP JJ VBN VBG ADJP JJR NP JJS DT FW RBR RBS SBAR RB
ADVP    l  RB RBR RBS FW ADVP TO CD JJR JJ IN NP JJS NN
CONJP   l  CC RB IN
FRAG    l
INTJ    r
LST     l  LS :
NAC     r  NN|NNS|NNP|NNPS NP NAC EX $ CD QP PRP VBG JJ JJS JJR ADJP FW
NP      r  POS|NN|NNP|NNPS|NNS NX JJR CD JJ JJS RB QP NP
NX      r  POS|NN|NNP|NNPS|NNS NX JJR CD JJ JJS RB QP NP
PP      l  IN TO VBG VBN RP FW
PRN     r
PRT     l  RP
QP      r  $ IN NNS NN JJ RB DT CD NCD QP JJR JJS
RRC     l  VP NP ADVP ADJP PP
S       r  TO IN VP S SBAR ADJP UCP NP
SBAR    r  WHNP WHPP WHADVP WHADJP IN DT S SQ SINV SBAR FRAG
SBARQ   r  SQ S SINV SBARQ FRAG
SINV    r  VBZ VBD VBP VB MD VP S SINV ADJP NP
SQ      r  VBZ VBD VBP VB MD VP SQ
UCP     l
VP      l  VBD VBN MD VBZ VB VBG VBP VP ADJP NN NNS NP
WHADJP  r  CC WRB JJ ADJP
WHADVP  l  CC WRB
WHNP    r  WDT WP WP$ WHADJP WHPP WHNP
WHPP    l  IN TO FW
X       r
"""
RULES = {
    phrase: (start, [set(group.split("|")) for group in groups])
    for phrase, start, *groups in (line.split() for line in HEAD_RULES.strip().splitlines())
}
UNLISTED: tuple[str, list[set[str]]] = ("r", [])  # a phrase that the table lacks, a top node without label
PUNCTUATION = {"``", "''", ",", ".", ":", "-LRB-", "-RRB-"}
MODIFIER_IN = {
    **dict.fromkeys(("VP", "S", "SQ", "SINV", "SBAR"), "VMOD"),
    **dict.fromkeys(("NP", "NX", "NAC", "WHNP"), "NMOD"),
    **dict.fromkeys(("ADJP", "ADVP", "QP", "WHADJP", "WHADVP"), "AMOD"),
    **dict.fromkeys(("PP", "WHPP"), "PMOD"),
}


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


def to_dependencies(tree: Tree) -> Sentence:
    """Return the dependencies of a tree that `penn.read_mrg` gave; always projective, with one root."""
    leaves = list(tree.leaves())
    position = {id(leaf): i for i, leaf in enumerate(leaves)}
    heads, labels = [0] * len(leaves), ["ROOT"] * len(leaves)

    def attach(node: Tree) -> int:
        """Attach all words under the node but its head word, and return the position of that."""
        if node.word is not None:
            return position[id(node)]
        head = head_child(node)
        words = [attach(child) for child in node.children]
        head_word = words[[child is head for child in node.children].index(True)]
        for child, word in zip(node.children, words, strict=True):
            if child is not head:
                heads[word] = head_word + 1
                labels[word] = label(node, head, child)
        return head_word

    attach(tree)
    words = [leaf.word or "" for leaf in leaves]
    return Sentence(words, [leaf.label for leaf in leaves], ["_"] * len(leaves), heads, labels, tree.source)


def head_child(phrase: Tree) -> Tree:
    start, priorities = RULES.get(phrase.category, UNLISTED)
    children = phrase.children if start == "l" else phrase.children[::-1]
    for group in priorities:
        for child in children:
            if child.category in group:
                return child
    return next((child for child in children if child.category not in PUNCTUATION), children[0])


def label(mother: Tree, head: Tree, child: Tree) -> str:
    """Return the label of the arc from the head child of `mother` to another child.

    The first rule that fits decides it.
    """
    if child.category in PUNCTUATION:
        return "P"
    if "SBJ" in child.functions:
        return "SUB"
    if "PRD" in child.functions:
        return "PRD"
    if mother.category == "VP" and head.word is not None:
        if child.category == "NP" and not child.functions:
            return "OBJ"
        if child.category == "VP":
            return "VC"
    if mother.category == "SBAR" and child.category == "S":
        return "SBAR"
    return MODIFIER_IN.get(mother.category, "DEP")
