"""The sentences of claims: numbers, words, and the reasons of what is open."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from msbp.analysis.claim import BEYOND, LIKEWISE, OPPOSITE, SURELY, Claim, region_of
from msbp.analysis.claims import bullets
from msbp.analysis.verdicts import Effect, Setting, judge

ABOVE, BELOW = [0.3, 0.4, 0.5, 0.4, 0.3], [-0.03, -0.04, -0.05, -0.04, -0.03]
WIDE = [-0.5, 0.5, 0.3, -0.2, 0.1]


def claim(*settings, **more):
    config = {"title": "MSBP gains", "effect": "A gain", "unit": "points", "low": 0.0, "margin": 0.1} | more
    return Claim("gain", config, judge(settings, region_of(config)))


def setting(values, family="MLPs", name="MNIST: MSBP"):
    values = pd.Series(np.asarray(values, dtype=float))
    return Setting(family, name, "run it", name, values=values, n=len(values))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ([setting(BELOW)], OPPOSITE),
        ([setting(BELOW), setting(WIDE, "LSTMs")], OPPOSITE),
        ([setting(WIDE)], "intervals too wide"),
        ([setting(ABOVE[:3])], "too few runs or no comparable times"),
        ([], "too few runs or no comparable times"),
    ],
)
def test_the_list_of_verdicts_names_open_claims_by_their_reason(settings, reason):
    every = [claim(*settings), claim(setting(ABOVE)), claim(*settings)]
    title = every[0].config["title"]
    text = " ".join(bullets(every).split())
    assert text.endswith(f"- **Open**, {reason}: {title}; {title}.")


def test_an_open_family_whose_interval_is_against_the_claim_says_so():
    assert f"-0.04 points (-0.05 to -0.03), open: {OPPOSITE}, " in claim(setting(BELOW)).sentence
    assert OPPOSITE not in claim(setting(WIDE)).sentence + claim(setting(ABOVE)).sentence


@pytest.mark.parametrize("more", [{"low": 0.2}, {"unit": "percent"}])
def test_an_edge_that_is_not_zero_has_no_opposite_sign(more):
    found = claim(setting(np.add(BELOW, 0.2 if "low" in more else 0)), **more)
    assert f"open: {BEYOND}" in found.sentence and found.reason_open == BEYOND


def test_a_claim_that_is_short_of_the_papers_effect_shows_that_effect():
    short = replace(setting(np.multiply(BELOW, 0.1)), paper=0.4)
    assert claim(short).sentence.endswith("not reproduced: less than the paper's +0.40 points")
    both = claim(short, setting(WIDE, name="Parsing: MSBP")).sentence
    words = "not reproduced: on MNIST +0.00 points (+0.00 to +0.00), less than the paper's +0.40 points"
    assert words in both
    assert "less than" not in claim(setting(np.multiply(ABOVE, -1))).sentence


def test_pooled_settings_that_differ_are_marked():
    far = setting(np.add(ABOVE, 1), name="benchmark extreme")
    near = setting(ABOVE, name="benchmark mnist")
    assert claim(near, far).short.startswith("MLPs (benchmarks mnist, extreme) +0.88 points")
    words = "settings range from +0.38 to +1.38, which differ (Cochran's Q, p < .001)"
    assert words in claim(near, far).sentence
    assert "differ" not in claim(setting(WIDE), setting(WIDE, name="Parsing: MSBP")).sentence


def test_a_pooled_number_shows_the_range_of_its_settings():
    one, other = setting(ABOVE), setting(np.add(ABOVE, 1), name="Parsing: MSBP")
    assert "settings" not in claim(one).short
    assert "MLPs (MNIST, Parsing) +0.88 points" in claim(one, other).short
    assert ", settings range from +0.38 to +1.38" in claim(one, other).short
    assert "which differ (Cochran's Q, p < .001), reproduced" in claim(one, other).sentence


def test_many_families_are_shown_by_their_word_and_open_ones_counted():
    every = [setting(values, f"k = {k}") for k, values in enumerate([ABOVE, ABOVE, BELOW, BELOW, WIDE])]
    few = [setting(ABOVE[:2], f"k = {k}") for k in range(10, 13)]
    short = claim(*every, *few).short
    assert short == (
        f"reproduced: k = 0: +0.38 points, k = 1: +0.38 points; 3 open, 2 of them with {OPPOSITE}; "
        "3 others: too few runs"
    )


def test_one_missing_run_is_written_in_the_singular():
    assert f"at most 4 of 5 runs, about 1 more run per setting{SURELY}" in claim(setting(ABOVE[:4])).sentence


def test_the_condition_of_the_number_of_further_runs_is_stated_once():
    few = [setting(ABOVE[:4], family) for family in ("MLPs", "LSTMs", "CNNs")]
    sentence = claim(*few).sentence
    assert sentence.count(SURELY) == 1 and sentence.count(f"about 1 more run per setting{LIKEWISE}") == 2


def test_a_family_that_runs_would_not_decide_says_so_and_one_without_runs_says_nothing():
    wide = claim(setting(WIDE)).sentence
    assert wide.endswith(", open, and 200 more runs per setting would hardly decide it")
    slope = Setting("MLPs", "MNIST", "", effect=Effect(0.05, 0.01, 8), n=10)
    assert claim(slope).sentence.endswith(", open")


def test_a_family_of_one_task_is_named_after_it():
    assert claim(setting(ABOVE)).short == "MNIST +0.38 points (+0.28 to +0.48)"
    assert claim(setting(ABOVE, "k = 5")).short.startswith("k = 5 (MNIST) +0.38")
    assert claim(setting(ABOVE, name="benchmark mnist")).short.startswith("MLPs (benchmark mnist) +0.38")


def test_several_settings_say_how_many_of_their_cells_are_significant():
    one, other = (
        replace(setting(ABOVE, name=f"MNIST: k = {k}"), ps=(0.001, p)) for k, p in ((5, 0.03), (9, 0.3))
    )
    words = ", significant in 3 of 4 cells, after Holm's correction in 2"
    assert words in claim(one, other).short and words in claim(one, other).sentence
    assert "significant" not in claim(one).short and "cells" not in claim(setting(ABOVE)).sentence


def test_what_settings_say_beside_their_effects_stands_at_the_end():
    settings = [replace(setting(ABOVE), aside="SBP is linear"), replace(setting(ABOVE), aside="so is MSBP")]
    assert claim(*settings).short.endswith("; SBP is linear; so is MSBP")
    assert claim(*settings).sentence.endswith("; SBP is linear; so is MSBP")
