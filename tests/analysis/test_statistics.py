import numpy as np
import pytest
from scipy import stats

from msbp.analysis.statistics import (
    brown_forsythe,
    critical_f,
    critical_t,
    deviation_interval,
    difference,
    effect_size,
    f_ratio,
    holm,
    jackknife,
    log_sd,
    log_slope,
    mean_interval,
    paired_t,
    pooled_t,
    spread_ratio,
    welch_t,
)

SBP = [97.1, 97.6, 96.8, 97.9, 97.2, 96.9]
MSBP = [98.0, 98.1, 97.9, 98.2, 98.0, 97.8]


@pytest.mark.parametrize(("test", "equal_var"), [(pooled_t, True), (welch_t, False)])
def test_the_t_test_is_scipys_one_sided_test(test, equal_var):
    result = test(SBP, MSBP)
    expected = stats.ttest_ind(MSBP, SBP, equal_var=equal_var, alternative="greater")
    assert (result.value, result.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert result.df == (pytest.approx(expected.df),) and result.rejects
    assert not test(MSBP, SBP).rejects


def test_f_is_the_ratio_of_variances_by_hand():
    result = f_ratio(SBP, MSBP)
    assert result.value == pytest.approx(np.var(SBP, ddof=1) / np.var(MSBP, ddof=1))
    assert result.p == pytest.approx(1 - stats.f.cdf(result.value, 5, 5))
    assert result.df == (5, 5) and result.n == (6, 6)


def test_brown_forsythe_squares_to_levenes_statistic_about_the_median():
    assert brown_forsythe(SBP, MSBP).value ** 2 == pytest.approx(stats.levene(SBP, MSBP, center="median")[0])
    assert brown_forsythe(MSBP, SBP).value < 0


def test_a_paired_test_looks_at_equal_seeds():
    result = paired_t(SBP, MSBP)
    expected = stats.ttest_rel(MSBP, SBP)
    assert (result.value, result.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert result.critical == pytest.approx(stats.t.ppf(0.975, 5))


def test_critical_values_follow_n_and_the_papers_f_is_too_small():
    assert critical_t(38) == pytest.approx(1.686, abs=5e-4)
    assert critical_f(19, 19) == pytest.approx(2.168, abs=5e-4)
    assert pooled_t(SBP, MSBP).critical == pytest.approx(critical_t(10)) == pytest.approx(1.812, abs=5e-4)


def test_holms_adjusted_p_values_are_multiplied_by_the_remaining_tests_and_never_decrease():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1, 1] and holm([]) == []


@pytest.mark.parametrize("test", [pooled_t, welch_t, f_ratio, brown_forsythe, paired_t, effect_size])
def test_no_test_without_runs_or_spread(test):
    for less, more in (([], []), ([98.0], [98.1]), ([98.0, 98.0], [98.0, 98.0])):
        assert test(less, more) is None


def test_an_effect_size_is_in_pooled_deviations_corrected_for_few_runs():
    pooled = ((np.var(SBP, ddof=1) + np.var(MSBP, ddof=1)) / 2) ** 0.5
    assert effect_size(SBP, MSBP) == pytest.approx((np.mean(MSBP) - np.mean(SBP)) / pooled * (1 - 3 / 39))


def test_confidence_intervals_equal_scipys():
    low, high = stats.t.interval(0.95, 5, np.mean(SBP), stats.sem(SBP))
    assert (mean_interval(SBP).low, mean_interval(SBP).high) == pytest.approx((low, high))
    gap = difference(SBP, MSBP)
    assert gap.estimate == pytest.approx(np.mean(MSBP) - np.mean(SBP)) and gap.low < gap.estimate < gap.high
    sd = deviation_interval(SBP)
    assert sd.high == pytest.approx((5 * np.var(SBP, ddof=1) / stats.chi2.ppf(0.025, 5)) ** 0.5)
    assert mean_interval([98.0]) is deviation_interval([98.0]) is difference([98.0], SBP) is None


def test_the_ratio_of_deviations_has_the_interval_of_f():
    result = spread_ratio(SBP, MSBP)
    f = f_ratio(SBP, MSBP)
    assert result.estimate == pytest.approx(f.value**0.5)
    assert (result.low, result.high) == pytest.approx(
        ((f.value / stats.f.ppf(0.975, 5, 5)) ** 0.5, (f.value / stats.f.ppf(0.025, 5, 5)) ** 0.5)
    )
    assert spread_ratio(SBP, [98.0, 98.0]) is spread_ratio([98.0], MSBP) is None


def test_the_estimate_of_a_log_deviation_is_unbiased_and_its_variance_is_right():
    random = np.random.default_rng(0)
    result = [log_sd([random.normal(0, 3, 6)]) for _ in range(2000)]
    estimates = [each.estimate for each in result]
    assert np.mean(estimates) == pytest.approx(np.log(3), abs=0.03)
    assert np.var(estimates) == pytest.approx(result[0].variance, rel=0.1)


def test_the_jackknife_of_a_mean_is_the_runs_themselves():
    assert jackknife(lambda runs: runs.mean(), np.array(SBP)) == pytest.approx(SBP)


def test_a_power_law_has_its_exponent_as_slope():
    result = log_slope(np.log([1, 2, 4, 8]), [3, 12, 48, 192])
    assert (result.estimate, result.variance) == pytest.approx((2, 0))


@pytest.mark.parametrize(("test", "equal_var"), [(pooled_t, True), (welch_t, False)])
def test_a_side_without_spread_has_a_t_and_no_warning(test, equal_var):
    equal = [97.0] * 6
    result = test(equal, MSBP)
    sides = (np.mean(MSBP), np.std(MSBP, ddof=1), 6), (97.0, 0.0, 6)
    expected = stats.ttest_ind_from_stats(*sides[0], *sides[1], equal_var, alternative="greater")
    assert (result.value, result.p) == pytest.approx((expected.statistic, expected.pvalue))
    gap, half = difference(equal, MSBP), mean_interval(MSBP)
    assert gap.high - gap.low == pytest.approx(half.high - half.low)


def test_gains_that_hardly_differ_have_a_paired_t_and_no_warning():
    gains = np.array([0.1, 0.1, 0.1, 0.1 + 1e-8])
    result = paired_t(np.zeros(4), gains)
    assert result.value == pytest.approx(gains.mean() / gains.std(ddof=1) * 2) and result.p < 1e-6


def test_samples_without_runs_say_nothing_of_a_deviation():
    assert log_sd([[], SBP]) == log_sd([SBP]) and np.isnan(log_sd([[], []]).estimate)
