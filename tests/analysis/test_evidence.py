import pytest

from msbp.analysis import evidence
from msbp.analysis.evidence import measure

TIMES, SCORES = {"bp_s", "bp_update_s", "total_s"}, {"dev", "score"}


def seeds(record_of, count=5, **fields):
    return [record_of(seed=seed, **fields) for seed in range(count)]


def test_a_speedup_compares_with_the_first_row(record_of):
    base, sparse = measure([seeds(record_of, bp_s=8.0, update_s=2.0), seeds(record_of, bp_s=1.0)])
    assert sparse.against(base, "bp_s") == 8.0
    assert sparse.against(base, "bp_update_s") == pytest.approx(10 / 7)
    assert not sparse.remarks


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"machine": "b" * 8}, "machine"), ({"threads": 2}, "thread count"), ({"commit": "f" * 16}, "commit"),
        ({"device": "cuda"}, "device"), ({"dirty": True}, "state of the code"), ({"torch": "2.6"}, "torch"),
        ({"machine": "b" * 8, "commit": "f" * 16}, "machine and commit"),
    ],
    ids=str,
)  # fmt: skip
def test_times_from_elsewhere_are_left_out_with_a_remark_and_scores_stay(record_of, other, named):
    base, sparse = measure([seeds(record_of), seeds(record_of, **other)])
    assert base.summary.keys() == TIMES | SCORES
    assert sparse.summary.keys() == SCORES
    assert sparse.remarks["bp_s"] == sparse.remarks["total_s"]
    assert sparse.remarks["bp_s"] == [f"no times: all ran with another {named} than those with times"]


def test_the_place_that_times_most_rows_with_the_baseline_is_chosen(record_of):
    elsewhere = {"machine": "b" * 8}
    rows = [
        seeds(record_of),
        seeds(record_of, count=3) + [record_of(seed=seed, **elsewhere) for seed in (3, 4)],
        seeds(record_of, **elsewhere),
        seeds(record_of, **elsewhere),
    ]
    _, mixed, *others = measure(rows)
    assert mixed.summary["bp_s"].n == 3
    assert mixed.summary["score"].n == 5
    assert mixed.remarks["bp_s"] == ["times of 3 of 5 runs: 2 ran with another machine than those with times"]
    assert all("bp_s" not in other.summary for other in others)


def test_runs_launched_in_parallel_give_scores_only(record_of):
    base, sparse = measure([seeds(record_of), seeds(record_of, times_comparable=False)])
    assert sparse.summary.keys() == SCORES
    assert sparse.against(base, "bp_s") is None
    assert sparse.remarks["bp_s"] == ["no times: all ran in parallel"]


def test_every_reason_for_which_there_are_no_times_is_named(record_of):
    parallel = [record_of(seed=seed, times_comparable=False, commit="f" * 16) for seed in range(3)]
    resumed = [record_of(seed=3, times_comparable=False, resumed=True)]
    told = [["it had 78% of its processor, 90% are needed"], ["it had 61% of its processor, 90% are needed"]]
    told += [["it went on with another torch", "it met another run on its outputs folder"]]
    told = [record_of(seed=5 + i, times_comparable=False, disturbed=why) for i, why in enumerate(told)]
    elsewhere = record_of(seed=4, commit="f" * 16)
    _, sparse = measure([seeds(record_of), [*parallel, *resumed, elsewhere, *told]])
    assert sparse.remarks["total_s"] == [
        "no times: 2 had too little of its processor, 3 ran in parallel, 1 ran in parallel or resumed "
        "elsewhere, 1 ran with another commit than those with times, 1 went on with another torch and met "
        "another run on its outputs folder"
    ]


def test_a_first_row_without_times_has_scores_to_compare_with(record_of):
    _, sparse = measure([seeds(record_of, times_comparable=False), seeds(record_of)])
    assert sparse.remarks["bp_s"] == [evidence.NO_TIMES] and not sparse.remarks["score"]


def test_without_a_baseline_there_are_numbers_but_no_comparison(record_of):
    base, sparse = measure([[], seeds(record_of)])
    assert sparse.summary.keys() == TIMES | SCORES
    assert all(sparse.against(base, column) is None for column in TIMES | SCORES)
    assert sparse.remarks["bp_s"] == sparse.remarks["score"] == [evidence.NO_BASELINE]


def test_runs_of_uncommitted_code_are_told(record_of):
    (base,) = measure([[*seeds(record_of, count=2), record_of(seed=2, dirty=True)]])
    assert base.remarks["n"] == [evidence.DIRTY]


def test_scores_by_different_metric_rules_are_told(record_of):
    base, sparse = measure([seeds(record_of), seeds(record_of, metric_signature="other")])
    assert base.remarks["score"] == sparse.remarks["score"] == [evidence.RULES]
