"""UAS and LAS of the words that are not punctuation."""

from itertools import chain

import numpy as np
import pytest

from msbp.tasks.parsing.encoding import PUNCTUATION
from msbp.tasks.parsing.task import Attachment
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


def scores(gold, results, part: str) -> Attachment:
    """Scores with punctuation excluded by its tags or by its upos."""
    rule = PUNCTUATION[part]
    marked = np.array([mark for sentence in gold for mark in rule.marks(sentence)])
    return Attachment.of(arcs(gold), arcs(results), ~marked, rule.rule(bool(marked.any())))


def arcs(sentences) -> tuple[list[int], list[str]]:
    return tuple(list(chain(*(getattr(s, part) for s in sentences))) for part in ("heads", "labels"))


def test_uas_excludes_punctuation(gold, results):
    for part in PUNCTUATION:
        assert scores(gold, results, part).uas == pytest.approx(100 * 4 / 5)


def test_a_score_names_its_punctuation_rule_and_states_if_the_rule_matches_no_word(gold, results):
    by_tag, by_upos = (scores(gold, results, part) for part in ("tags", "upos"))
    assert (by_tag.words, by_tag.rule) == (5, "punctuation:left out by tags '' , . : ``")
    assert by_upos.rule == "punctuation:left out by upos PUNCT"
    other_tags = [gold[0].__class__(s.words, ["X"] * len(s), s.upos, s.heads, s.labels) for s in gold]
    result = scores(other_tags, results, "tags")
    assert (result.words, result.rule) == (9, "punctuation:none found by tags '' , . : ``")


def test_uas_ignores_labels_and_las_requires_head_and_label(gold, tmp_path):
    relabelled = read(tmp_path, "relabelled.conllu", GOLD.replace("nsubj", "obj"))
    result = scores(gold, relabelled, "upos")
    assert (result.uas, result.las) == (100.0, pytest.approx(80.0))


def test_punctuation_is_that_of_the_gold_sentence(gold, results):
    retagged = [results[0].__class__(s.words, ["NN"] * 9, ["NOUN"] * 9, s.heads, s.labels) for s in results]
    assert scores(gold, retagged, "upos") == scores(gold, results, "upos")


def test_a_score_of_no_word_is_refused():
    with pytest.raises(ValueError, match="no word to score"):
        Attachment.of(([1], [0]), ([1], [0]), [False], "punctuation:left out")
