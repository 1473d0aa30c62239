"""Numbers of tables: means over runs, comparisons with the first row of a block, and their remarks."""

import pandas as pd
import pytest
from scipy import stats

from msbp.analysis import tables
from msbp.analysis.runs import Sources, diverged_frame
from msbp.analysis.table_text import document_of
from msbp.analysis.tables import fill, filled
from msbp.measurements import DivergedRun

TIMES, SCORES = ["bp_s", "bp_update_s", "total_s"], ["dev", "score"]
BASE, SBP, MSBP = (f"task=mnist method={method}" for method in ("baseline", "sbp", "msbp"))
PAIRED = {
    "name": "small", "caption": "A small table", "seeds": 4, "columns": ["score", "dropped_entries"],
    "paired": True,
    "blocks": [{
        "title": "MNIST", "task": "mnist", "score": "Acc (%)",
        "rows": [
            {"label": "MLP", "overrides": ["method=baseline"]},
            {"label": "+ SBP", "overrides": ["method=sbp"]},
            {"label": "+ MSBP", "overrides": ["method=msbp"]},
        ],
    }],
}  # fmt: skip
OTHER_DATA = "the runs of this block have different digests of their data, those of this row: "
GAINS = [0.1, 0.3, 0.2, 0.6]


def seeds(record_of, count=5, **fields):
    return [record_of(seed=seed, **fields) for seed in range(count)]


@pytest.fixture
def measure(runs_of):
    """Fill a block whose rows have these records."""

    def measure(*rows):
        names = [str(number) for number in range(len(rows))]
        about = {"block": 0, "title": "MNIST", "label": names, "seeds": 5, "signature": names}
        records = [run | {"signature": name} for name, row in zip(names, rows, strict=True) for run in row]
        return filled("small", "", ["bp_s", "score"], pd.DataFrame(about), runs_of(records))

    return measure


def measured(table, row):
    """The columns for which a row has numbers."""
    return [column for column in TIMES + SCORES if len(table.values(row, column))]


def remarks(table, row, column):
    return table.remarks.get((row, column), [])


def test_a_speedup_compares_with_the_first_row(record_of, measure):
    table = measure(seeds(record_of, bp_s=8.0, update_s=2.0), seeds(record_of, bp_s=1.0))
    assert table.rows.bp_ratio[1] == 8.0
    assert table.rows.bp_update_ratio[1] == pytest.approx(10 / 7)
    assert not any(table.remarks.values())


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"machine": "b" * 8}, "machine"), ({"threads": 2}, "thread count"), ({"commit": "f" * 16}, "commit"),
        ({"machine": "a|b"}, "machine"), ({"device": "cuda"}, "device"),
        ({"dirty": True}, "state of the code"), ({"torch": "2.6"}, "torch"),
        ({"machine": "b" * 8, "commit": "f" * 16}, "machine and commit"), ({"timing_rule": 3}, "timing rule"),
    ],
    ids=str,
)  # fmt: skip
def test_times_of_another_platform_are_left_out_with_a_remark_and_scores_stay(
    record_of, measure, other, named
):
    table = measure(seeds(record_of), seeds(record_of, **other))
    assert measured(table, 0) == TIMES + SCORES and measured(table, 1) == SCORES
    assert remarks(table, 1, "bp_s") == remarks(table, 1, "total_s")
    assert remarks(table, 1, "bp_s") == ["no times: all ran on another machine or other software"]
    assert tables.numbers(table).untimed[1] == f"5 ran with another {named} than those with times"


def test_the_platform_that_times_most_rows_with_the_baseline_is_chosen(record_of, measure):
    elsewhere = {"machine": "b" * 8}
    mixed = seeds(record_of, count=3) + [record_of(seed=seed, **elsewhere) for seed in (3, 4)]
    table = measure(seeds(record_of), mixed, seeds(record_of, **elsewhere), seeds(record_of, **elsewhere))
    assert len(table.values(1, "bp_s")) == 3 and len(table.values(1)) == 5
    assert remarks(table, 1, "bp_s") == ["times of 3 runs; the rest ran on another machine or other software"]
    assert measured(table, 2) == measured(table, 3) == SCORES


def test_runs_launched_in_parallel_give_scores_only(record_of, measure):
    table = measure(seeds(record_of), seeds(record_of, times_comparable=False))
    assert measured(table, 1) == SCORES and pd.isna(table.rows.bp_ratio[1])
    assert remarks(table, 1, "bp_s") == ["no times: all shared the machine"]


def test_every_reason_for_which_there_are_no_times_is_named(record_of, measure):
    runs = [record_of(seed=seed, times_comparable=False, commit="f" * 16) for seed in range(3)]
    runs += [record_of(seed=3, times_comparable=False, resumed=True), record_of(seed=4, commit="f" * 16)]
    why = [["it had 78% of its processor, 90% are needed"], ["it had 61% of its processor, 90% are needed"]]
    why += [["it went on with another torch", "it ran while another run used the same outputs folder"]]
    runs += [record_of(seed=5 + i, times_comparable=False, disturbed=each) for i, each in enumerate(why)]
    table = measure(seeds(record_of), runs)
    assert tables.numbers(table).untimed[1] == (
        "2 got too little of a processor's time, 3 ran in parallel, 1 ran in parallel or resumed "
        "elsewhere, 1 ran with another commit than those with times, 1 went on with another torch and ran "
        "while another run used the same outputs folder"
    )
    assert remarks(table, 1, "total_s") == [
        "no times: all shared the machine or ran on another machine or other software"
    ]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("it had 78% of its processor, 90% are needed", "shared the machine"),
        ("its outputs folder has no file locks, so that other runs are not seen", "shared the machine"),
        ("it went on with another commit", "went on under other conditions"),
        ("it went on with other threads", "went on under other conditions"),
    ],
)
def test_rows_without_times_for_like_reasons_share_a_note(record_of, measure, reason, words):
    runs = [record_of(), record_of(seed=1), record_of(seed=2, times_comparable=False, disturbed=[reason])]
    table = measure(runs, runs[:1] + runs[2:])
    assert remarks(table, 0, "bp_s") == [f"times of 2 runs; the rest {words}"]
    assert remarks(table, 1, "bp_s") == [f"times of 1 run; the rest {words}"]
    (alone,) = remarks(measure(runs, runs[2:]), 1, "bp_s")
    assert alone == f"no times: it {words}"


def test_by_the_earlier_rule_bp_has_no_number_and_the_other_times_have(record_of, measure):
    table = measure(seeds(record_of, timing_rule=1), seeds(record_of, timing_rule=1))
    assert measured(table, 0) == measured(table, 1) == ["bp_update_s", "total_s", *SCORES]
    assert remarks(table, 1, "bp_s") == [tables.EARLIER_RULE] and not remarks(table, 1, "total_s")
    assert table.rows.total_ratio[1] == 1 and pd.isna(table.rows.bp_ratio[1])


def test_times_of_different_rules_are_never_mixed(record_of, measure):
    new = [record_of(seed=seed, total_s=10.0) for seed in (0, 1)]
    old = [record_of(seed=seed, total_s=90.0, timing_rule=1) for seed in (2, 3, 4)]
    table = measure(seeds(record_of), new + old)
    assert table.rows.total_s[1] == 10.0
    assert remarks(table, 1, "total_s") == [
        "times of 2 runs; the rest ran on another machine or other software"
    ]


def test_a_first_row_without_times_has_scores_to_compare_with(record_of, measure):
    table = measure(seeds(record_of, times_comparable=False), seeds(record_of))
    assert remarks(table, 1, "bp_s") == [tables.NO_TIMES] and not remarks(table, 1, "score")


def test_without_a_baseline_there_are_numbers_but_no_comparison(record_of, measure):
    table = measure([], seeds(record_of))
    assert measured(table, 1) == TIMES + SCORES
    compared = ["bp_ratio", "bp_update_ratio", "total_ratio", "score_delta", "dev_delta"]
    assert table.rows.loc[1, compared].isna().all()
    assert remarks(table, 1, "bp_s") == remarks(table, 1, "score") == [tables.NO_BASELINE]


def test_runs_of_uncommitted_code_are_named(record_of, measure):
    table = measure([*seeds(record_of, count=2), record_of(seed=2, dirty=True)])
    assert remarks(table, 0, "n") == [tables.DIRTY]


def test_scores_by_different_metric_rules_are_named(record_of, measure):
    table = measure(seeds(record_of), seeds(record_of, metric_signature="other"))
    assert remarks(table, 0, "score") == remarks(table, 1, "score") == [tables.METRICS]


@pytest.mark.parametrize(
    ("digests", "remark"),
    [
        ((None, None), []),
        (("a" * 64, "a" * 64), []),
        (("a" * 64, "b" * 64), [OTHER_DATA + "bbbbbbbbbbbbbb (2 runs)"]),
        ((None, "b" * 64), [tables.SOME_DATA]),
    ],
    ids=str,
)
def test_scores_of_different_data_are_marked(record_of, measure, digests, remark):
    table = measure(*(seeds(record_of, 2, data_digest=digest) for digest in digests))
    assert remarks(table, 1, "score") == remark


def test_a_mean_over_different_data_is_marked(record_of, measure):
    table = measure([record_of(seed=seed, data_digest=digit * 64) for seed, digit in enumerate("aab")])
    assert remarks(table, 0, "score") == [OTHER_DATA + "aaaaaaaaaaaaaa (2 runs), bbbbbbbbbbbbbb (1 run)"]


def test_differences_are_over_the_seeds_that_both_rows_have(record_of, measure):
    base = [record_of(seed=seed, test=90.0 + seed) for seed in range(5)]
    other = [record_of(seed=seed, test=91.0 + seed) for seed in (3, 4, 7)]
    table = measure(base, other)
    assert table.rows.score_delta[1] == pytest.approx(1) and len(table.common(0, 1)) == 2
    assert remarks(table, 1, "score") == ["difference over the 2 seeds of both rows"]
    assert remarks(measure(base, other[:1]), 1, "score") == ["difference over the one seed of both rows"]
    table = measure(base, [record_of(seed=9)])
    assert pd.isna(table.rows.score_delta[1]) and remarks(table, 1, "score") == [tables.NO_COMMON]


@pytest.fixture
def document(record_of, runs_of, settle):
    records = [record_of(BASE, seed, test=80.0 + 3 * seed) for seed in range(5)]
    layers = {"a": {"entries": 0.5, "squared_norm": 0.1}, "b": {"entries": 0.3, "squared_norm": 0}}
    records += [record_of(SBP, seed, test=80.0 + 3 * seed, dropped_fraction=layers) for seed in range(4)]
    records += [record_of(MSBP, seed, test=80.0 + 3 * seed + gain) for seed, gain in enumerate(GAINS)]
    return document_of(fill(PAIRED, Sources(runs_of(records), settle)))


def test_a_note_compares_every_two_rows_over_the_seeds_that_both_have(document):
    note = document.sheets[0].below[-1]
    p = stats.ttest_1samp(GAINS, 0).pvalue
    assert note.startswith(
        "Paired t-tests of MNIST, two-sided: SBP against MLP +0.00 (equal scores in every run, n = 4)"
    )
    assert f"MSBP against SBP +0.30 (p = {p:.3f}, n = 4)" in note
    assert document.numbers.paired_p_first[2] == pytest.approx(p, abs=1e-6)


def test_the_unpropagated_share_is_the_mean_over_layers_in_percent(document):
    numbers = document.numbers
    assert (numbers.dropped_entries[1], numbers.dropped_norm[1]) == (40, 5)
    assert numbers.dropped_by_layer[1] == "a 50.0 10.0; b 30.0 0.0" and numbers.dropped_by_layer[2] == ""
    assert pd.isna(numbers.dropped_entries[2]) and document.sheets[0].blocks[0].iloc[1, 2] == "40.0"


def test_a_row_has_the_number_of_its_diverged_runs_with_epoch_step_and_reason(record_of, runs_of, settle):
    words = "task=mnist method=msbp"
    about = {"signature": words, "epoch": 2, "step": 7, "reason": "the loss is nan"}
    diverged = diverged_frame(DivergedRun(**about, seed=seed) for seed in (1, 2))
    runs = runs_of([record_of(words, seed) for seed in (0, 2)])
    table = fill(PAIRED, Sources(runs, settle, diverged=diverged))
    (remark,) = remarks(table, 2, "n")
    assert remark == "1 of 3 diverged (seed 1 in epoch 2, step 7: the loss is nan)"
    assert remark in document_of(table).texts()["md"]
    alone = fill(PAIRED, Sources(runs_of([]), settle, diverged=diverged))
    assert remarks(alone, 2, "n")[0].startswith("2 of 2 diverged") and remarks(alone, 1, "n") == [
        "not run yet"
    ]
