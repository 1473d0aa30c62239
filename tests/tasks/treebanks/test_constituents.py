"""Penn Treebank trees to dependencies: heads, labels, and agreement with the public dependency version."""

import os
from pathlib import Path

import pytest

from msbp.config import ROOT
from msbp.tasks.treebanks.constituents import to_dependencies
from msbp.tasks.treebanks.penn import read_mrg

LABELS = set("AMOD DEP NMOD OBJ P PMOD PRD ROOT SBAR SUB VC VMOD".split())  # with 25 transitions


def converted(folder, text: str):
    (folder / "a.mrg").write_text(text, encoding="utf-8")
    return [to_dependencies(tree) for tree in read_mrg(folder / "a.mrg")]


def arcs(sentence) -> dict[str, tuple[str, str]]:
    """{word: (its head's word, label)}"""
    words = ["-", *sentence.words]
    return {w: (words[h], r) for w, h, r in zip(sentence.words, sentence.heads, sentence.labels, strict=True)}


def test_a_clause_is_headed_by_its_finite_verb_and_its_parts_labelled_by_function(tmp_path):
    (sentence,) = converted(
        tmp_path,
        """( (S (NP-SBJ (DT The) (JJ old) (NN kettle)) (VP (MD will) (VP (VB boil) (NP (NN water))
             (PP-LOC (IN on) (NP (NNS fires))) (NP-TMP (NNP Monday)) (ADVP (RB very) (RB soon)))) (. .)))""",
    )
    assert arcs(sentence) == {
        "The": ("kettle", "NMOD"),
        "old": ("kettle", "NMOD"),
        "kettle": ("will", "SUB"),
        "will": ("-", "ROOT"),
        "boil": ("will", "VC"),
        "water": ("boil", "OBJ"),
        "on": ("boil", "VMOD"),
        "fires": ("on", "PMOD"),
        "Monday": ("boil", "VMOD"),
        "very": ("boil", "VMOD"),
        "soon": ("very", "AMOD"),
        ".": ("will", "P"),
    }


def test_to_depends_on_its_verb_and_conjuncts_are_no_verb_chain(tmp_path):
    (sentence,) = converted(
        tmp_path,
        """( (S (NP-SBJ (PRP It)) (VP (VBZ is) (ADJP-PRD (JJ free) (S (NP-SBJ (-NONE- *)) (VP (TO to)
             (VP (VP (VB hiss)) (CC or) (VP (VB sing)))))))))""",
    )
    assert arcs(sentence) == {
        "It": ("is", "SUB"),
        "is": ("-", "ROOT"),
        "free": ("is", "PRD"),
        "to": ("hiss", "VMOD"),
        "hiss": ("free", "AMOD"),
        "or": ("hiss", "VMOD"),
        "sing": ("hiss", "VMOD"),
    }


def test_subordinate_clauses_and_brackets_have_their_labels(tmp_path):
    (sentence,) = converted(
        tmp_path,
        """( (NP (NP (NNS kettles)) (PRN (-LRB- -LRB-) (SBAR (IN if) (S (NP-SBJ (DT any)) (VP (VBP boil))))
             (-RRB- -RRB-))))""",
    )
    assert arcs(sentence) == {
        "kettles": ("-", "ROOT"),
        "-LRB-": ("if", "P"),
        "if": ("kettles", "NMOD"),
        "any": ("boil", "SUB"),
        "boil": ("if", "SBAR"),
        "-RRB-": ("if", "P"),
    }


@pytest.mark.parametrize("top", ["( {} )", "{}", "(TOP {})", "(ROOT (S1 {}))"])
def test_the_label_of_the_top_node_does_not_matter(tmp_path, top):
    (sentence,) = converted(tmp_path, top.format("(S (NP-SBJ (NNP Ida)) (VP (VBD poured)) (. .))"))
    assert (sentence.heads, sentence.labels) == ([2, 0, 2], ["SUB", "ROOT", "P"])


def test_a_top_node_that_branches_is_headed_by_a_word_that_is_no_punctuation(tmp_path):
    (phrase, marks) = converted(tmp_path, "( (NP (DT No) (NN milk)) (. .) )\n( (: --) (. .))")
    assert (phrase.heads, phrase.labels) == ([2, 0, 2], ["NMOD", "ROOT", "P"])
    assert sorted(marks.heads) == [0, 2] and marks.words == ["--", "."]


def test_trees_of_all_kinds_have_the_twelve_labels_of_penn2malt(tmp_path):
    trees = """( (S (NP-SBJ (DT The) (NN kettle)) (VP (MD will) (VP (VB boil) (NP (NN water)) (PP (IN on) (NP
        (NNS fires))) (ADVP (RB very) (RB soon)) (SBAR (IN if) (S (NP-SBJ (PRP it)) (VP (VBZ is) (ADJP-PRD
        (JJ hot))))))) (. .)))
        ( (FRAG (NP (NN milk)) (ADVP (RB soon))))"""
    assert {label for sentence in converted(tmp_path, trees) for label in sentence.labels} == LABELS


@pytest.mark.data
def test_heads_agree_with_the_dependency_version_of_the_sample():
    corpora = Path(os.environ.get("MSBP_DATA_DIR") or ROOT / "data", "ptb_sample/corpora")
    trees = [tree for path in sorted(corpora.glob("treebank/combined/*.mrg")) for tree in read_mrg(path)]
    ours = [to_dependencies(tree) for tree in trees]
    files = [path.read_text() for path in sorted(corpora.glob("dependency_treebank/*.dp"))]
    theirs = [sentence.splitlines() for text in files for sentence in text.strip().split("\n\n")]
    rows = [[f"{w}\t{t}\t{h}" for w, t, h in zip(s.words, s.tags, s.heads, strict=True)] for s in ours]
    assert sum(map(len, rows)) == 94084 and rows == theirs
    assert {name for s in ours for name in s.labels} == LABELS
