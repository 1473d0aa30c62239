import pytest

from msbp.analysis.statistics import Summary, delta, speedup, summarize


def test_deviation_is_that_of_a_sample():
    assert summarize([97.0, 98.0, 99.0]) == Summary(98.0, 1.0, 3)


def test_one_run_has_no_deviation():
    assert summarize([98.2]) == Summary(98.2, None, 1)


def test_speedup_is_above_one_only_where_less_time_is_needed():
    assert speedup(Summary(6447), Summary(682)) == pytest.approx(9.4531, abs=1e-4)
    assert speedup(Summary(1.0), Summary(2.0)) == 0.5


def test_delta_is_in_points_above_the_baseline():
    assert delta(Summary(28.45), Summary(28.94)) == pytest.approx(0.49)
