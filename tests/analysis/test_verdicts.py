"""The rules of verdicts, by hand and by simulation: with the paper's effects, and without any."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from msbp.analysis.claim import region_of
from msbp.analysis.claim_rules import log_spread_ratio, share_of_gain, share_regained
from msbp.analysis.settings import configs
from msbp.analysis.significance import welch_t
from msbp.analysis.verdicts import (
    LEAST,
    Effect,
    Region,
    Setting,
    Word,
    heterogeneity,
    jackknife,
    judge,
    log_slope,
    mean_effect,
    pooled,
    runs_needed,
)
from msbp.config import CONF

CLAIMS = configs(Path(CONF), "claim")
HIGHER = Region(low=0.0, margin=0.1)
TIMES = 400  # simulations


def at_most(share, times):
    """The share that simulations of a true share exceed one time in forty: two standard errors above it."""
    return share + 2 * (share * (1 - share) / times) ** 0.5


FALSE = at_most(0.05, TIMES)


def setting(values, family="MLPs", paper=None, **more):
    values = pd.Series(np.asarray(values, dtype=float))
    return Setting(family, "a setting", "run it", values=values, n=len(values), paper=paper, **more)


def word(*settings, region=HIGHER):
    return judge(settings, region).word


@pytest.mark.parametrize(
    ("values", "paper", "expected"),
    [
        ([0.3, 0.4, 0.5, 0.4, 0.3], 0.4, Word.REPRODUCED),
        ([-0.3, -0.4, -0.5, -0.4, -0.3], None, Word.NOT),
        ([-0.03, -0.04, -0.05, -0.04, -0.03], None, Word.OPEN),
        ([-0.03, -0.04, -0.05, -0.04, -0.03], 0.4, Word.NOT),
        ([-0.03, -0.04, -0.05, -0.04, -0.03], 0.04, Word.OPEN),
        ([-0.5, 0.5, 0.3, -0.2, 0.1], 0.4, Word.OPEN),
        ([0.3, 0.4, 0.5, 0.4], 0.4, Word.OPEN),
        ([0.4], 0.4, Word.OPEN),
    ],
    ids=[
        "above",
        "below",
        "below by little",
        "without the paper's",
        "near the paper's",
        "wide",
        "four",
        "one",
    ],
)
def test_the_verdict_follows_from_interval_margin_and_the_papers_effect(values, paper, expected):
    assert word(setting(values, paper=paper)) == expected


def test_an_excluded_effect_is_shown_and_does_not_affect_the_verdict():
    assert word(setting([0.3, 0.4, 0.5, 0.4, 0.3], excluded="nothing was dropped")) == Word.OPEN


def test_a_single_setting_of_many_refutes_nothing():
    good = [setting([0.3, 0.4, 0.5, 0.4, 0.3]) for _ in range(9)]
    assert word(*good, setting([-0.3, -0.4, -0.5, -0.4, -0.3])) == Word.REPRODUCED


def test_a_claim_is_reproduced_in_part_where_some_families_reproduce_it():
    good, bad = setting([0.3, 0.4, 0.5, 0.4, 0.3]), setting([-0.3, -0.4, -0.5, -0.4, -0.3], "LSTMs")
    assert word(good, bad) == Word.IN_PART and word(bad) == Word.NOT
    assert word(good, setting([0.1], "LSTMs")) == Word.REPRODUCED, "a family without evidence says nothing"
    assert word() == Word.OPEN


def test_settings_that_share_runs_are_no_more_evidence_than_one():
    values = [0.5, -0.3, 0.4, 0.1, 0.2]
    same = [setting(values, group="shared") for _ in range(4)]
    (once,), (often,) = judge(same[:1], HIGHER).families, judge(same, HIGHER).families
    assert once.effect.interval() == often.effect.interval()
    (apart,) = judge([setting(values, group=str(i)) for i in range(4)], HIGHER).families
    assert apart.effect.variance == pytest.approx(once.effect.variance / 4)


def test_settings_that_share_runs_need_as_many_more_as_one():
    values = [0.5, -0.1, 0.2, 0.4, -0.3]
    verdicts = [judge([setting(values, group="shared")] * count, HIGHER) for count in (1, 4)]
    once, often = (verdict.more(verdict.families[0]) for verdict in verdicts)
    assert once == often > 1


@pytest.mark.parametrize("side", [1, -1])
def test_an_open_family_has_the_number_of_runs_that_decide_four_times_in_five(side):
    values = [0.8, -0.2, 0.4, 0.6, -0.3]
    region = Region(low=0.0) if side > 0 else Region(high=0.0)
    verdict = judge([setting(np.multiply(side, values))], region)
    (family,) = verdict.families
    more = verdict.more(family)
    assert family.word == Word.OPEN and more
    random, spread = np.random.default_rng(0), np.std(values, ddof=1)
    later = (random.normal(family.effect.estimate, spread, LEAST + more) for _ in range(10 * TIMES))
    decided = share_of([word(setting(runs), region=region) for runs in later], Word.REPRODUCED, Word.NOT)
    assert 0.78 <= decided <= 0.84


def test_runs_that_would_show_a_shortfall_of_the_papers_effect_are_enough_to_decide():
    near, far = (judge([setting([-0.2, 0.5, 0.3, -0.4], paper=paper)], HIGHER) for paper in (0.11, 3.0))
    assert near.more(near.families[0]) is None and far.more(far.families[0]) == 1


def test_settings_whose_n_does_not_count_runs_have_no_number_of_further_runs():
    slope = Setting("MLPs", "a slope", "", effect=Effect(0.08, 0.001, 8), n=10)
    verdict = judge([slope], Region(-0.05, 0.05))
    (family,) = verdict.families
    assert family.word == Word.OPEN and not family.by_runs and verdict.more(family) is None


def test_runs_are_enough_to_decide_where_the_estimate_is_far_and_never_where_it_is_none():
    few = judge([setting([0.4, 0.3, 0.5])], HIGHER)
    assert few.families[0].effect is None and few.more(few.families[0]) == 2
    never = judge([setting([1.0, -1.0, 1.0, -1.0, 0.0, 0.001])], HIGHER)
    assert never.more(never.families[0]) is None


def test_a_family_without_an_estimate_counts_in_holms_correction_of_the_runs_that_it_needs():
    few, others = setting([0.5, -0.1, 0.2, 0.4], "CNNs"), [setting(np.zeros(5) + 1, f"{i}") for i in range(2)]
    alone, third = judge([few], HIGHER), judge([few, *others], HIGHER)
    assert alone.more(alone.families[0]) == runs_needed(alone.families[0], HIGHER, 1, LEAST)
    assert third.families[0].effect is None
    assert third.more(third.families[0]) == runs_needed(third.families[0], HIGHER, 3, LEAST)
    assert third.more(third.families[0]) > runs_needed(third.families[0], HIGHER, 2, LEAST)


def test_the_papers_effect_is_compared_with_the_settings_for_which_it_prints_one():
    printed, other = setting([0.0, 0.01, -0.01, 0.02, 0.01], paper=0.4), setting([-0.6, 0.9, 0.5, -0.2, 0.8])
    (family,) = judge([printed, other], HIGHER).families
    assert family.word == Word.NOT and family.printed.estimate == pytest.approx(0.006)
    assert HIGHER.p_short(family.printed, 0.4) < 0.05 < HIGHER.p_short(family.effect, 0.4)
    (family,) = judge([replace(printed, paper=None), replace(other, paper=0.5)], HIGHER).families
    assert family.word == Word.OPEN, "a setting without a number in the paper falls short of none"


def test_every_cell_must_be_significant_where_a_claim_is_about_every_cell():
    def judged(*ps, **more):
        each = [setting(np.linspace(0.3, 0.5, 5), ps=cells, **more) for cells in ps]
        return judge(each, HIGHER, every_cell=True)

    assert judged((0.001, 0.04), (0.03, 0.04)).word == Word.REPRODUCED, "without a correction"
    assert judged((0.001, 0.04), (0.03, 0.06)).word == Word.OPEN
    few = setting([0.4, 0.5], ps=(0.01, 0.01))
    missing = judge([setting(np.linspace(0.3, 0.5, 5), ps=(0.01, 0.01)), few], HIGHER, every_cell=True)
    assert missing.word == Word.OPEN, "a setting that does not count is not every setting"
    assert judged((0.5,)).more(judged((0.5,)).families[0]) is None


def test_at_the_edge_of_one_cell_a_claim_about_every_cell_is_hardly_ever_reproduced():
    random, words = np.random.default_rng(0), []
    for _ in range(TIMES):
        less, more = random.normal(0, 0.2, 10), random.normal([0.0, 0.5, 0.6], 0.2, (10, 3))
        ps = [welch_t(less, more[:, cell]).p for cell in range(3)]
        each = setting(more.mean(axis=1) - less, ps=ps)
        words.append(judge([each], HIGHER, every_cell=True).word)
    assert share_of(words, Word.REPRODUCED) <= FALSE


def test_holms_correction_accounts_for_the_number_of_families():
    values = [0.15, 0.5, 0.35, 0.05, 0.4]
    assert word(setting(values)) == Word.REPRODUCED
    zeros = [setting([-0.5, 0.5, 0.3, -0.2, 0.1], f"family {i}") for i in range(3)]
    assert judge([setting(values), *zeros], HIGHER).families[0].word == Word.OPEN


def test_a_pooled_effect_has_welchs_degrees_of_freedom():
    a, b = [0.1, 0.4, 0.2, 0.6], [1.0, 1.8, 1.1]
    both = mean_effect(b) - mean_effect(a)
    welch = stats.ttest_ind(b, a, equal_var=False)
    assert both.df == pytest.approx(welch.df)
    assert both.interval().low == pytest.approx(welch.confidence_interval().low)


def test_settings_without_a_group_are_not_averaged_run_by_run():
    values = [0.5, -0.3, 0.4, 0.1, 0.2]
    opposite = np.negative(values)
    (apart,) = judge([setting(values), setting(opposite)], HIGHER).families
    (shared,) = judge([setting(values, group="a"), setting(opposite, group="a")], HIGHER).families
    assert apart.effect.variance > 0 and shared.effect.variance == 0


def test_cochrans_q_tells_settings_that_differ_from_settings_that_do_not():
    random = np.random.default_rng(0)
    alike = [setting(random.normal(0.3, 0.1, 10)) for _ in range(4)]
    differ = [setting(random.normal(mean, 0.1, 10)) for mean in (0.1, 0.3, 0.5)]
    assert heterogeneity(alike) > 0.05 and heterogeneity(differ) < 0.001
    assert heterogeneity(alike[:1]) == heterogeneity([]) == 1


# Simulation. Effects in the claims' units, with the deviations between runs that were measured here.


GAINS = {5: 0.8, 10: 0.6, 20: 0.4}  # the paper's, by k


def share_of(words, *target):
    return sum(each in target for each in words) / len(words)


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("settings", [1, 3])
def test_pooled_intervals_cover_the_truth(n, settings):
    random = np.random.default_rng(n)
    inside = 0
    for _ in range(1000):
        sd = random.uniform(0.5, 2, settings)
        effect = pooled([mean_effect(random.normal(1, each, n)) for each in sd])
        interval = effect.interval()
        inside += interval.low <= 1 <= interval.high
    assert 0.93 <= inside / 1000 <= 0.985


@pytest.mark.parametrize("families", [1, 2, 4])
@pytest.mark.parametrize("n", [LEAST, 10])
def test_without_an_effect_hardly_any_claim_is_decided(families, n):
    random = np.random.default_rng(families * n)
    words = [
        word(*(setting(random.normal(0, 0.2, n), f"family {i}") for i in range(families)))
        for _ in range(TIMES)
    ]
    assert share_of(words, Word.REPRODUCED, Word.IN_PART, Word.NOT) <= FALSE


@pytest.mark.parametrize("n", [LEAST, 10])
def test_without_an_effect_a_claim_of_the_paper_is_never_reproduced_and_mostly_refuted(n):
    random = np.random.default_rng(n)
    words = [word(setting(random.normal(0, 0.2, n), paper=0.39)) for _ in range(TIMES)]
    assert share_of(words, Word.REPRODUCED) <= FALSE and share_of(words, Word.NOT) >= 0.8


@pytest.mark.parametrize(
    ("effects", "deviations"),
    [
        ({"MLPs": [0.39]}, 0.2),  # Table 2, MNIST
        ({"MLPs": [0.39, 0.44], "LSTMs": [0.16]}, 0.15),
        ({"MLPs": [0.37, 0.65], "LSTMs": [0.23]}, 0.2),
        ({"MLPs": [0.8, 0.6, 0.4]}, 0.2),  # over γ
    ],
)
def test_with_the_papers_effects_ten_runs_reproduce_a_claim_about_scores(effects, deviations):
    random = np.random.default_rng(0)
    words = []
    for _ in range(TIMES):
        every = [
            setting(random.normal(effect, deviations, 10), family, paper=effect)
            for family, results in effects.items()
            for effect in results
        ]
        words.append(word(*every))
    assert share_of(words, Word.REPRODUCED) >= 0.8 and share_of(words, Word.NOT) <= FALSE


def deviations(random, ratio, n, others=9):
    """Settings as `claim_rules.deviations` has them, for three k that are judged for themselves."""
    for k in GAINS:
        runs = np.column_stack([random.normal(0, ratio, n), random.normal(0, 1, (n, others))])
        yield setting(jackknife(log_spread_ratio, runs), f"k = {k}", paper=float(np.log(1.94)))


def test_stability_is_decided_as_often_as_it_should_be():
    config = CLAIMS["stability"]
    random, region, n = np.random.default_rng(0), region_of(config), config["least"]
    none = [judge([*deviations(random, 1.0, n)], region, n).word for _ in range(TIMES)]
    assert share_of(none, Word.REPRODUCED, Word.IN_PART) <= FALSE
    papers = [judge([*deviations(random, 1.94, n)], region, n).word for _ in range(TIMES)]
    assert share_of(papers, Word.REPRODUCED) >= 0.75 and share_of(papers, Word.NOT) <= FALSE


def test_sbps_deviation_is_decided_at_the_stated_rate_with_the_runs_that_its_rule_requires():
    config = CLAIMS["sbp_varies"]
    random, n = np.random.default_rng(0), config["least"]
    results = {}
    for ratio in (1.0, 1.7):
        results[ratio] = []
        for _ in range(TIMES):
            base = random.normal(0, 1, n)
            every = [np.column_stack([random.normal(0, ratio, n), base]) for _ in range(3)]
            ratios = [jackknife(log_spread_ratio, runs) for runs in every]
            settings = [setting(each, group="grid", paper=float(np.log(1.7))) for each in ratios]
            results[ratio].append(judge(settings, region_of(config), n).word)
    assert share_of(results[1.0], Word.REPRODUCED) <= FALSE
    assert share_of(results[1.7], Word.REPRODUCED) >= 0.8 and share_of(results[1.7], Word.NOT) <= FALSE


@pytest.mark.parametrize(("share", "least", "most"), [(0.5, 0.0, FALSE), (0.8, 0.8, 1.0), (1.03, 0.8, 1.0)])
def test_the_share_that_is_regained_is_decided_as_often_as_it_should_be(share, least, most):
    random, region = np.random.default_rng(0), region_of(CLAIMS["extreme"])
    words = []
    for _ in range(TIMES):
        base, sbp = random.normal(98.1, 0.1, LEAST), random.normal(96.2, 0.3, LEAST)
        msbp = random.normal(96.2 + 1.9 * share, 0.15, LEAST)
        runs = np.column_stack([base, sbp, msbp])
        words.append(judge([setting(jackknife(share_regained, runs))], region).word)
    assert least <= share_of(words, Word.REPRODUCED) <= most


def sensitivity(spreads):
    """Verdicts on runs of three k with the paper's gains, whose means have these deviations over γ."""
    config = CLAIMS["insensitive"]
    random, region, n = np.random.default_rng(0), region_of(config), config["least"]
    gammas = np.linspace(0.1, 0.9, 9)
    trend = (gammas - gammas.mean()) / gammas.std(ddof=1)
    for _ in range(TIMES // 2):
        every = []
        for (k, gain), spread in zip(GAINS.items(), spreads, strict=True):
            sbp, msbp = random.normal(0, 0.2, n), random.normal(gain + trend * spread, 0.15, (n, 9))
            every.append(setting(jackknife(share_of_gain, np.column_stack([sbp, msbp])), f"k = {k}"))
        yield judge(every, region, n)


def test_sensitivity_at_the_limit_is_hardly_ever_decided():
    limit = CLAIMS["insensitive"]["high"]
    words = [verdict.word for verdict in sensitivity([limit * gain for gain in GAINS.values()])]
    assert share_of(words, Word.REPRODUCED, Word.IN_PART, Word.NOT) <= FALSE


def test_sensitivity_as_in_the_paper_is_reproduced_at_the_larger_gains():
    """The paper's range of .1 to .3 between nine γ is a deviation of about .06, its gain .4 to .8."""
    words = [[family.word for family in verdict.families] for verdict in sensitivity([0.06] * 3)]
    first, second, third = zip(*words, strict=True)
    assert share_of(first, Word.REPRODUCED) >= 0.95 and share_of(second, Word.REPRODUCED) >= 0.5
    assert share_of(third, Word.OPEN) >= 0.8, ".06 of .4 is too near to the limit"


@pytest.mark.parametrize(("overhead", "expected"), [(0.02, Word.REPRODUCED), (0.14, Word.NOT)])
def test_overhead_is_decided_as_often_as_it_should_be(overhead, expected):
    random, region = np.random.default_rng(0), region_of(CLAIMS["overhead"])
    ratios = (setting(np.log1p(overhead) + random.normal(0, 0.02, 10)) for _ in range(TIMES))
    assert share_of([judge([each], region).word for each in ratios], expected) >= 0.8


def test_an_overhead_at_the_margin_is_hardly_ever_decided():
    random, region = np.random.default_rng(0), region_of(CLAIMS["overhead"])
    times = (
        10 * TIMES
    )  # at the edge the true share is 5 percent, so that few simulations would often exceed it
    ratios = (setting(np.log1p(0.05) + random.normal(0, 0.02, 10)) for _ in range(times))
    words = [judge([each], region).word for each in ratios]
    assert share_of(words, Word.REPRODUCED, Word.NOT) <= at_most(0.05, times)


def test_the_jackknife_of_a_mean_is_the_runs_themselves():
    assert jackknife(lambda runs: runs.mean(), np.array([97.1, 97.6, 96.8])) == pytest.approx(
        [97.1, 97.6, 96.8]
    )


def test_a_power_law_has_its_exponent_as_slope():
    result = log_slope(np.log([1, 2, 4, 8]), [3, 12, 48, 192])
    assert (result.estimate, result.variance) == pytest.approx((2, 0))
