"""Rows compared run by run of equal seeds, and the share of the gradient that they drop."""

import pytest
from scipy import stats

from msbp.analysis import rows
from msbp.analysis.tables import fill

BASE, SBP, MSBP = (f"task=mnist method={method}" for method in ("baseline", "sbp", "msbp"))
CONFIG = {
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
GAINS = [0.1, 0.3, 0.2, 0.6]


@pytest.fixture
def document(record_of, runs_of, settle):
    records = [record_of(BASE, seed, test=90.0 + 3 * seed) for seed in range(5)]
    layers = {"a": {"entries": 0.5, "squared_norm": 0.1}, "b": {"entries": 0.3, "squared_norm": 0}}
    records += [record_of(SBP, seed, test=90.0 + 3 * seed, dropped_fraction=layers) for seed in range(4)]
    records += [record_of(MSBP, seed, test=90.0 + 3 * seed + gain) for seed, gain in enumerate(GAINS)]
    return rows.of(fill(CONFIG, runs_of(records), settle))


def test_a_note_compares_every_two_rows_over_the_seeds_that_both_have(document):
    note = document.sheets[0].below[-1]
    p = stats.ttest_1samp(GAINS, 0).pvalue
    assert note.startswith(
        "Paired t-tests of MNIST, two-sided: SBP against MLP +0.00 (the same gain in every run, n = 4)"
    )
    assert f"MSBP against SBP +0.30 (p = {p:.3f}, n = 4)" in note
    assert document.numbers[2]["paired_p_first"] == pytest.approx(p, abs=1e-6)


def test_what_is_dropped_is_the_mean_over_layers_in_percent(document):
    _, sbp, msbp = document.numbers
    assert (sbp["dropped_entries"], sbp["dropped_norm"]) == (40, 5)
    assert sbp["dropped_by_layer"] == "a 50.0 10.0; b 30.0 0.0" and msbp["dropped_by_layer"] == ""
    assert msbp["dropped_entries"] is None and document.sheets[0].grids[0].rows[1][2] == "40.0"
