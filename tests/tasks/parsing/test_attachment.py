"""UAS and LAS of the words that are not punctuation."""

from itertools import chain

import numpy as np
import pytest

from msbp.tasks.parsing.encoding import PUNCTUATION
from msbp.tasks.parsing.task import attachment
from msbp.tasks.treebanks.conll import read_conll

GOLD = """\
1	``	_	PUNCT	``	_	3	punct	_	_
2	Ships	_	NOUN	NNS	_	3	nsubj	_	_
3	sank	_	VERB	VBD	_	0	root	_	_
4	,	_	PUNCT	,	_	3	punct	_	_
5	''	_	PUNCT	''	_	3	punct	_	_
6	$	_	SYM	$	_	7	dep	_	_
7	9	_	NUM	CD	_	3	obj	_	_
8	%	_	SYM	NN	_	7	dep	_	_
9	.	_	PUNCT	.	_	3	punct	_	_

"""
HEADS = [2, 3, 0, 2, 3, 3, 3, 7, 7]


def read(folder, name: str, text: str):
    (folder / name).write_text(text, encoding="utf-8")
    return read_conll(folder / name)


def with_heads(text: str, heads: list[int]) -> str:
    rows = [line.split("\t") for line in text.splitlines() if line]
    return "".join("\t".join([*row[:6], str(h), *row[7:]]) + "\n" for row, h in zip(rows, heads, strict=True))


@pytest.fixture
def gold(tmp_path):
    return read(tmp_path, "gold.conllu", GOLD)


@pytest.fixture
def results(tmp_path):
    return read(tmp_path, "results.conllu", with_heads(GOLD, HEADS))


def marked(gold, part: str) -> np.ndarray:
    """Punctuation among the words, by its tags or by its upos."""
    return np.array([mark for sentence in gold for mark in PUNCTUATION[part].marks(sentence)])


def scores(gold, results, part: str) -> tuple[float, float]:
    return attachment(arcs(gold), arcs(results), ~marked(gold, part))


def arcs(sentences) -> tuple[list[int], list[str]]:
    return tuple(list(chain(*(getattr(s, part) for s in sentences))) for part in ("heads", "labels"))


def test_uas_excludes_punctuation(gold, results):
    for part in PUNCTUATION:
        assert scores(gold, results, part)[0] == pytest.approx(100 * 4 / 5)


def test_a_rule_excludes_the_words_that_it_marks_and_states_if_it_matches_none(gold):
    assert (~marked(gold, "tags")).sum() == (~marked(gold, "upos")).sum() == 5
    by_tags, by_upos = PUNCTUATION["tags"], PUNCTUATION["upos"]
    assert by_tags.rule(matched=True) == "punctuation:left out by tags '' , . : ``"
    assert by_upos.rule(matched=True) == "punctuation:left out by upos PUNCT"
    assert by_tags.rule(matched=False) == "punctuation:none found by tags '' , . : ``"
    other_tags = [gold[0].__class__(s.words, ["X"] * len(s), s.upos, s.heads, s.labels) for s in gold]
    assert not marked(other_tags, "tags").any()


def test_uas_ignores_labels_and_las_requires_head_and_label(gold, tmp_path):
    relabelled = read(tmp_path, "relabelled.conllu", GOLD.replace("nsubj", "obj"))
    assert scores(gold, relabelled, "upos") == (100.0, pytest.approx(80.0))
