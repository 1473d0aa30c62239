"""Bracketed trees: layout means nothing, empty elements go, malformed files are refused by line."""

import pytest

from msbp.tasks.brackets import read_mrg
from msbp.tasks.treebank import TreebankError

LAYOUTS = """\
( (S
    (NP-SBJ (DT The) (NN kettle) )

    (VP (VBD boiled) )
    (. .) ))
( (S (NP-SBJ (PRP It)) (VP (VBD hissed)) (. .)) )
(S (NP-SBJ (NNP Ida)) (VP (VBD poured)) (. .))
( (NP (DT No) (NN milk)) (. .) )
(TOP (S
(VP (VB Sit) (PRT (RP down)))
(. !)))
"""


def read(folder, text: str):
    (folder / "a.mrg").write_text(text, encoding="utf-8", errors="surrogateescape")
    return read_mrg(folder / "a.mrg")


def words(tree) -> list[str]:
    return [leaf.word for leaf in tree.leaves()]


def test_blank_lines_odd_tops_and_spacing_do_not_cut_trees(tmp_path):
    trees = read(tmp_path, LAYOUTS)
    assert [len(words(tree)) for tree in trees] == [4, 3, 3, 3, 3]
    assert [tree.label for tree in trees] == ["S", "S", "S", "", "TOP"]
    assert words(trees[4]) == ["Sit", "down", "!"]


@pytest.mark.parametrize(
    "change", [str.split, lambda text: text.replace("(", "( ").replace(")", " )\r\n").split(" ")]
)
def test_line_breaks_decide_nothing(tmp_path, change):
    assert [words(tree) for tree in read(tmp_path, " ".join(change(LAYOUTS)))] == [
        words(tree) for tree in read(tmp_path, LAYOUTS)
    ]


def test_traces_and_the_phrases_that_hold_nothing_else_are_removed(tmp_path):
    (tree,) = read(
        tmp_path,
        """( (SBAR (WHNP-1 (-NONE- 0)) (S (NP-SBJ (-NONE- *T*-1) (-NONE- *)) (VP (VBD fell)))) )
           ( (NP (-NONE- *)) )""",
    )
    assert words(tree) == ["fell"] and [child.label for child in tree.children] == ["S"]
    assert [child.label for child in tree.children[0].children] == ["VP"]


def test_function_tags_are_stripped_and_brackets_stay_tokens(tmp_path):
    (tree,) = read(tmp_path, "(NP-SBJ-TPC-1 (-LRB- -LRB-) (NP=2 (NN x)) (PRT|ADVP (RP up)) (-RRB- -RRB-))")
    assert (tree.category, tree.functions) == ("NP", ["SBJ", "TPC"])
    assert [child.category for child in tree.children] == ["-LRB-", "NP", "PRT", "-RRB-"]
    assert words(tree) == ["-LRB-", "x", "up", "-RRB-"]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("(S (NN a))\n(S\n(NN b)\n", 2, "never closed"),
        ("(S (NN a)))\n", 1, "')' outside of all brackets"),
        ("(S (NN a))\nword\n", 2, "'word' outside of all brackets"),
        ("(S\n(NN a b))\n", 2, "'b' where a bracket was wanted"),
        ("(S (NN a) b)\n", 1, "'b' where a bracket was wanted"),
        ("(S (NN))\n", 1, "(NN) holds nothing"),
        ("(S (NN a (NN b)))\n", 1, "a bracket after the word 'a'"),
        ("(S\n(NN a\udce9))\n", 2, "byte 0xe9 is not UTF-8"),
        ("(S " * 5000 + "(NN a)" + ")" * 5000, 1, "brackets are open here"),
        ("\n", 1, "no tree with a word in the whole file"),
        ("( (NP (-NONE- *)) )\n", 1, "no tree with a word in the whole file"),
    ],
)
def test_malformed_trees_are_refused_with_file_and_line(tmp_path, text, line, message):
    with pytest.raises(TreebankError) as refusal:
        read(tmp_path, text)
    assert f"a.mrg:{line}: " in str(refusal.value) and message in str(refusal.value)
