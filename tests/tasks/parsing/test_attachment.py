"""UAS and LAS, with and without punctuation."""

import pytest

from msbp.tasks.parsing.attachment import PUNCTUATION, Attachment, attachment
from msbp.tasks.treebank import read_conll

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
    return read(tmp_path, "found.conllu", with_heads(GOLD, HEADS))


def test_uas_counts_punctuation_only_without_a_rule(gold, results):
    assert attachment(gold, results).uas == pytest.approx(100 * 5 / 9)
    for rule in PUNCTUATION.values():
        assert attachment(gold, results, rule).uas == pytest.approx(100 * 4 / 5)


def test_the_result_names_its_rule_and_says_when_the_rule_finds_nothing(gold, results):
    by_tag, by_upos = (attachment(gold, results, PUNCTUATION[part]) for part in ("tags", "upos"))
    assert (by_tag.words, by_tag.rule) == (5, "punctuation:left out by tags '' , . : ``")
    assert by_upos.rule == "punctuation:left out by upos PUNCT"
    assert attachment(gold, results).rule == "punctuation:counted"
    other_tags = [gold[0].__class__(s.words, ["X"] * len(s), s.upos, s.heads, s.labels) for s in gold]
    result = attachment(other_tags, results, PUNCTUATION["tags"])
    assert (result.words, result.rule) == (9, "punctuation:none found by tags '' , . : ``")


def test_labels_play_no_part_in_uas_and_las_needs_both(gold, tmp_path):
    relabelled = read(tmp_path, "relabelled.conllu", GOLD.replace("nsubj", "obj"))
    result = attachment(gold, relabelled, PUNCTUATION["upos"])
    assert (result.uas, result.las) == (100.0, pytest.approx(80.0))


def test_punctuation_is_that_of_the_gold_sentence(gold, results):
    retagged = [results[0].__class__(s.words, ["NN"] * 9, ["NOUN"] * 9, s.heads, s.labels) for s in results]
    assert attachment(gold, retagged, PUNCTUATION["upos"]) == attachment(gold, results, PUNCTUATION["upos"])


def test_other_words_and_other_numbers_of_sentences_are_refused(gold, tmp_path):
    other = read(tmp_path, "other.conllu", GOLD.replace("Ships", "Boats"))
    with pytest.raises(ValueError, match=r"other\.conllu:1: not the words of the gold sentence"):
        attachment(gold, other)
    with pytest.raises(ValueError, match="2 sentences to score against 1"):
        attachment(gold, other * 2)


def test_nothing_to_score_is_refused():
    with pytest.raises(ValueError, match="no word to score"):
        Attachment.of(([1], [0]), ([1], [0]), [False], "punctuation:left out")
