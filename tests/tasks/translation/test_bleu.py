"""BLEU of cleaned words against the files' references, with the rule that gave it."""

from typing import get_args

import pytest

from msbp.tasks.translation.encoding import SPECIAL, TOKENS, count_words
from msbp.tasks.translation.task import Bleu, Tokenizer

REFERENCE = [
    "the grey heron stood in the cold river all day .",
    "we sold seven old lamps to a sailor from Brest .",
    "please close the gate behind you .",
]
RAW = [
    "the grey <unk> stood in the cold river all day . </s>",
    "we sold seven <unk> <unk> to a sailor from <unk> . </s> </s> <pad>",
    "please close the gate behind you . </s> the the the",
]


def test_bleu_is_of_the_words_before_the_first_end_mark():
    known = count_words([" ".join(REFERENCE).split()])
    numbers = [[dict(zip(SPECIAL, range(4), strict=True)).get(w, known.numbers.get(w)) for w in line.split()]
               for line in RAW]  # fmt: skip
    hypotheses = [known.decode(sentence) for sentence in numbers]
    score = Bleu("tokenised")(hypotheses, [REFERENCE], TOKENS["spaces"])
    assert score.value == pytest.approx(66.17, abs=0.005)
    assert score.signature.startswith("bleu tokenised|nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:")
    assert list(score.texts) == [line.partition(" </s>")[0] for line in RAW]


def test_the_key_says_which_view_is_the_score_and_the_record_has_both():
    hypotheses = [line.upper().split() for line in REFERENCE]
    scores = {
        view: Bleu(view, ignore_case=True)(hypotheses, [REFERENCE], TOKENS["spaces"])
        for view in ("tokenised", "detokenised")
    }
    assert scores["tokenised"].value == pytest.approx(100) and scores["detokenised"].value < 20
    assert scores["tokenised"].others == scores["detokenised"].others
    assert "case:lc" in scores["tokenised"].signature.partition(";")[0]
    assert "tok:13a" in scores["detokenised"].signature.partition(";")[0]
    assert scores["detokenised"].texts[2] == "PLEASE CLOSE THE GATE BEHIND YOU."


def test_any_of_several_references_may_match():
    references = [REFERENCE, [line.replace("cold", "icy") for line in REFERENCE]]
    hypotheses = [references[1][0].split(), *(line.split() for line in REFERENCE[1:])]
    score = Bleu()(hypotheses, references, TOKENS["spaces"])
    assert score.value == pytest.approx(100) and "nrefs:2" in score.signature


@pytest.mark.parametrize("tokenizer", get_args(Tokenizer))
def test_every_accepted_tokenizer_scores(tokenizer):
    hypotheses = [line.split() for line in REFERENCE]
    assert Bleu(tokenizer=tokenizer)(hypotheses, [REFERENCE], TOKENS["spaces"]).value == pytest.approx(100)
