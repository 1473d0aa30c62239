"""The tests of Appendix D and the figures over γ, from runs at every k and γ."""

import numpy as np
import pytest

from msbp.analysis import figures, significance
from msbp.analysis.report import document
from msbp.analysis.runs import Sources
from msbp.analysis.significance import f_ratio, pooled_t

GRID = {
    "name": "small", "task": "mnist", "seeds": 4, "baseline": ["method=baseline"], "sbp": ["method=sbp"],
    "msbp": ["method=msbp"], "sparse": {5: "method.r=0.01", 20: "method.r=0.04"}, "gamma": [0.1, 0.2],
    "command": "python -m src.train experiment=small",
}  # fmt: skip
PAPER = {"paper": {5: [16.2, 1.9], 20: [6.3, 2.9]}, "critical": 2.1, "grid": GRID, "caption": "By k and γ."}
AT = {
    "base": "task=mnist method=baseline", "sbp": "task=mnist method=sbp method.r=0.01",
    "msbp": "task=mnist method=msbp method.r=0.01 method.gamma=0.1",
}  # fmt: skip
T_TEST = "msbp.analysis.significance.t_test"
SCORES = {"base": [98.0, 98.1, 98.2], "sbp": [96.1, 96.9, 96.3, 97.0], "msbp": [97.7, 97.9, 97.8, 98.0]}


@pytest.fixture
def sources(record_of, runs_of, settle):
    runs = [
        record_of(AT[name], seed, test=score)
        for name, scores in SCORES.items()
        for seed, score in enumerate(scores)
    ]
    return Sources(runs_of(runs), settle)


@pytest.mark.parametrize(
    ("target", "value"),
    [("t_test", pooled_t(SCORES["sbp"], SCORES["msbp"])), ("f_test", f_ratio(SCORES["sbp"], SCORES["msbp"]))],
)
def test_a_cell_has_the_papers_test_beside_the_papers_value(target, value, sources):
    config = PAPER | {"name": target, "_target_": f"msbp.analysis.significance.{target}"}
    shown = document(config, sources)
    first, *others = shown.numbers.to_dict("records")
    assert (first["value"], first["critical"]) == pytest.approx((value.value, value.critical), rel=1e-5)
    assert first["paper"] == 16.2 and (first["n_sbp"], first["n_msbp"]) == (4, 4)
    assert first["p_holm"] == first["p"], "a single test stays as it is"
    assert all(np.isnan(cell["value"]) for cell in others)
    text = shown.texts()["md"]
    assert f" {value.value:.1f} |" in text and "no runs of both methods yet" in text
    assert "\npython -m src.train experiment=small\n" in text


def test_the_papers_values_are_held_against_the_right_critical_value(sources):
    shown = significance.f_test(PAPER | {"name": "f_test", "grid": GRID | {"seeds": 20}}, sources)
    assert list(shown.sheets[0].blocks[0].paper) == ["16.2", "1.9¹"]
    assert "F(19, 19) = 2.168, where the paper prints 2.1" in shown.sheets[0].below[-1]


def test_a_users_grid_works_without_cells_of_the_paper(sources):
    for paper in ({}, {"paper": {20: [6.3]}}):
        shown = document({"name": "own", "caption": "", "grid": GRID, "_target_": T_TEST} | paper, sources)
        assert list(shown.numbers.paper.fillna(0)) == [0, 0, 6.3 if paper else 0, 0]
        assert "– |" in shown.texts()["md"] and "the paper prints" not in shown.texts()["md"]


def test_accuracy_by_gamma_starts_at_sbp_and_has_intervals_and_the_baseline(sources):
    shown = figures.accuracy({"name": "accuracy", "caption": "", "grid": GRID}, sources)
    five, twenty = shown.figure.series
    assert list(five.points.x) == [0, 0.1] and twenty.points.empty
    point = five.points.iloc[1]
    assert point.y == pytest.approx(97.85) and point.low < 97.85 < point.high
    assert shown.figure.levels[0].points.y[0] == pytest.approx(98.1)
    assert shown.texts()["csv"].splitlines()[0] == "series,x,y,low,high,n"
    assert shown.figure.note == "n = 4 runs per point."
    assert len(shown.used) == 11 and shown.missing


def test_deviation_is_that_of_the_runs(sources):
    shown = figures.deviation({"name": "deviation", "caption": "", "grid": GRID}, sources)
    assert shown.figure.series[0].points.y[0] == pytest.approx(np.std(SCORES["sbp"], ddof=1))


def test_values_of_k_without_a_test_are_listed_separately(sources):
    shown = significance.t_test(PAPER | {"name": "t_test", "grid": GRID}, sources)
    assert shown.blank == ["k = 20"] and [block.columns[0] for block in shown.filled.blocks] == ["k = 5"]


def test_too_few_runs_give_no_nan(record_of, runs_of, settle):
    for n in (2, 3):
        runs = [record_of(AT[name], seed, test=SCORES[name][seed]) for name in SCORES for seed in range(n)]
        for target in ("t_test", "f_test"):
            config = PAPER | {"name": target, "_target_": f"msbp.analysis.significance.{target}"}
            shown = document(config, Sources(runs_of(runs), settle))
            assert not any("nan" in text for text in shown.texts().values())
