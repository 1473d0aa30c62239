"""Tables and figures of benchmarks and angles, and how they are drawn."""

import math
import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import matplotlib
import pandas as pd
import pytest

from msbp.analysis import claim_rules, figures, theory
from msbp.analysis.benchmarks import markdown
from msbp.analysis.claim_rules import Measured
from msbp.analysis.figures import POINTS, Figure, Series
from msbp.analysis.report import document
from msbp.analysis.runs import Sources
from msbp.analysis.settings import configs
from msbp.config import CONF

BY_K = {"benchmarks": [{"case": "mnist", "sweep": "k"}]}


def row(name, k, bp_ms, mib=20.0):
    times = {
        "bp_ms": bp_ms,
        "bp_p10_ms": bp_ms * 0.9,
        "bp_p90_ms": bp_ms * 1.1,
        "bp_materialised_ms": bp_ms,
        "total_ms": bp_ms,
    }
    return {
        "name": name,
        "k_per_layer": {"a": k, "b": k},
        "bp_gflops": 50.0,
        "peak_mib": mib,
        "steps": 9,
    } | times


@pytest.fixture
def swept():
    """A sweep of MNIST over r, k = 5 and 50 of 500."""
    points = [
        {"value": r, "rows": [row("dense", 500, 0.8, 40.0), row("sbp", k, k / 100), row("msbp", k, k / 50)]}
        for r, k in ((0.01, 5), (0.1, 50))
    ]
    about = {
        "case": "mnist",
        "sweep": "k",
        "key": "paper.r",
        "threads": 1,
        "allocator": "keep",
        "points": points,
    }
    return about | {
        "cpu": "A 1",
        "torch": "2.6",
        "blas": "mkl",
        "commit": "12345678",
        "dirty": False,
        "timing_rule": 2,
    }


@pytest.fixture
def sources(settle, runs_of):
    return lambda **more: Sources(runs_of([]), settle, **more)


def test_theory_counts_rows_of_w_and_the_selection_among_the_entries_of_h():
    dense = theory.operations([500, 500], [500, 500], 784, 10, memory=False)
    assert dense == 784 * 500 + 2 * 500 * 500 + 2 * 500 * 10
    sparse = theory.operations([500, 500], [8, 8], 784, 10, memory=False)
    assert sparse == 784 * 8 + 2 * 500 * 8 + 2 * 500 * 3 + 2 * 500 * 10
    assert theory.operations([500, 500], [8, 8], 784, 10, memory=True) == sparse + 1000


def test_measurements_stand_beside_theory_as_shares_of_the_dense_row(swept, sources):
    config = {"name": "c", "caption": "C", "inputs": 784, "outputs": 10, **BY_K}
    sbp, msbp, *_ = theory.complexity(config, sources(benchmarks=[swept])).numbers.to_dict("records")
    assert (sbp["k"], sbp["bp_ms_share"], sbp["mib_share"]) == (5, 0.0625, 0.5)
    assert sbp["mflop"] == 50 * 0.05 and msbp["theory"] > sbp["theory"]


def test_small_margins_of_a_bound_keep_their_digits_and_rounding_is_zero():
    margins = {"least_margin": {"x": 1e-7, "h": 0.2069, "w": -4e-16}, "applies": {"x": 9, "h": 9, "w": 9}}
    checks = {"lemma_2": [{"rho": 2.0, "trials": 5, "least_margin": 1.0529e-6, "holds": True}]}
    checks |= {"lemma_3": [{"r": 0.5, "holds": True} | margins]}
    checks |= {"lemma_4": [{"theta": 1.0, "r": [0.9], "largest_angle": 0.5, "applies": 3, "holds": True}]}
    text = theory.terminal(checks | {"theorem_1": []})
    rows = [line.split()[-4:-2] for line in text.splitlines()[2:]]
    assert rows == [
        ["0", "1.053e-06"],
        ["0°", "5.73e-06°"],
        ["0°", "11.85°"],
        ["0°", "0°"],
        ["57.30°", "28.65°"],
    ]


def test_a_missing_measurement_has_its_command(sources):
    config = {"name": "c", "caption": "C", "inputs": 784, "outputs": 10, **BY_K}
    shown = theory.complexity(config, sources())
    assert shown.empty and "\npython -m src.bench case=mnist sweep=k\n" in shown.texts()["md"]


def test_bp_time_is_by_k_with_percentiles_and_the_dense_row_beside(swept, sources):
    shown = figures.bp_time({"name": "bp", "caption": "BP", **BY_K}, sources(benchmarks=[swept]))
    sbp, msbp, dense = shown.figure.series
    assert dict(sbp.points[["x", "y"]].values) == {5: 0.05, 50: 0.5}
    assert (msbp.points.low[0], msbp.points.high[0]) == pytest.approx((0.09, 0.11))
    assert dict(dense.points[["x", "y"]].values) == {5: 0.8, 50: 0.8}
    assert shown.measured and not shown.missing


@pytest.mark.parametrize("name", ["bp_time", "tradeoff"])
def test_a_caption_names_the_phases_whose_time_is_drawn(swept, sources, name):
    config = configs(Path(CONF), "figure")[name]
    figure = document(config, sources(benchmarks=[swept])).figure
    (axis,) = [text for text in (figure.x, figure.y) if "(ms per step)" in text]
    assert axis == "backward pass (ms per step)"
    assert "backward pass" in config["caption"].lower() and "update" not in config["caption"]


def test_angles_are_means_over_seeds_in_degrees(sources, record_of, runs_of, angles_of):
    signature = "task=mnist method=msbp"
    angles = [
        {"config": {"signature": signature, "seed": seed, "method": "msbp"}, "k": 5, "step": 0, "epoch": 0.0}
        | {"angle": {"total": math.pi / 3 + seed * math.pi / 6, "hidden": 1.5}}
        for seed in (0, 1)
    ]
    rows = [{"label": "MSBP, k=5", "overrides": ["method=msbp"]}]
    config = {"name": "angle", "caption": "δ", "shows": "angles", "seeds": 2, "columns": []}
    config |= {"blocks": [{"title": "MNIST", "task": "mnist", "rows": rows}]}
    shown = figures.angle(
        config, Sources(runs_of([record_of(signature)]), sources().settle, angles=angles_of(angles))
    )
    (point,) = shown.figure.series[0].points.itertuples()
    assert (point.x, point.y, point.n) == (0, pytest.approx(75), 2)
    assert list(shown.angles.record) == angles and len(shown.used) == 1


def test_an_empty_figure_is_replaced_by_the_commands_to_run(sources):
    shown = figures.bp_time({"name": "bp", "caption": "BP", **BY_K}, sources())
    assert shown.files().keys() == {"csv", "md", "tex"}
    assert "- `python -m src.bench case=mnist sweep=k`" in shown.files()["md"]
    with pytest.raises(ValueError, match="nothing to draw"):
        shown.figure.images()


@pytest.fixture
def figure():
    points = pd.DataFrame([(1, 2.0, math.nan, math.nan, 1), (2, -3.0, -3.5, -2.5, 9)], columns=POINTS)
    series = [Series("SBP", points), Series("empty", points[:0])]
    return Figure("T", "k", "ms", series, [Series("baseline", points[:1], 3, ":")], log="x")


def test_a_figure_is_drawn_as_png_and_svg_the_same_each_time(figure):
    first = figure.images()
    assert first["png"].startswith(b"\x89PNG") and b"<svg" in first["svg"]
    assert first == figure.images()


def test_any_number_of_lines_is_drawn(figure):
    figure.series = [Series(f"k = {k}", figure.series[0].points, k) for k in range(20)]
    figure.levels = [Series("baseline", figure.series[0].points[:1], 20, ":")]
    assert figure.images()["png"]


ODD = {  # what a user's matplotlibrc may set
    "backend": "svg", "text.usetex": True, "font.size": 30,
    "font.family": "no such font", "axes.facecolor": "black", "savefig.facecolor": "red", "figure.dpi": 10,
    "savefig.transparent": True, "axes.unicode_minus": False, "lines.linewidth": 9, "svg.fonttype": "none",
}  # fmt: skip


def test_user_settings_of_matplotlib_do_not_change_an_image(figure):
    plain = figure.images()
    with matplotlib.rc_context(ODD):
        assert figure.images() == plain


BACKEND = """
from msbp.analysis.figures import own_style
with own_style():
    import matplotlib
    print(matplotlib.rcParams["axes.grid"])
"""


@pytest.mark.parametrize("backend", ["module://matplotlib_inline.backend_inline", "no such backend", "TkAgg"])
def test_a_backend_that_is_not_installed_is_no_error(backend):
    environment = os.environ | {"MPLBACKEND": backend}
    done = subprocess.run([sys.executable, "-c", BACKEND], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


ROWS = "torch", "dense", "sbp", "msbp"
PARTS = [part for count in range(len(ROWS)) for part in combinations(ROWS, count)]


@pytest.mark.parametrize("part", PARTS, ids=" ".join)
def test_a_partial_sweep_shows_its_measured_points_and_empty_cells(swept, sources, part):
    config = {"name": "c", "caption": "C", "inputs": 784, "outputs": 10, **BY_K}
    for point in swept["points"]:
        every = [row("torch", 500, 0.9) | {"k_per_layer": {}}, *point["rows"]]
        point["rows"] = [each for each in every if each["name"] in part]
    measured = sources(benchmarks=[swept])
    table, figure = theory.complexity(config, measured), figures.bp_time(config, measured)
    assert list(table.numbers.get("row", [])) == 2 * [name for name in ("sbp", "msbp") if name in part]
    assert (table.numbers.get("bp_ms_share", pd.Series()).isna() == ("dense" not in part)).all()
    named = {
        series.label.lower().replace("baseline (all 500)", "dense")
        for series in figure.figure.series
        if len(series.points)
    }
    assert named == (set(part) - {"torch"} if {*part} & {"sbp", "msbp"} else set())
    assert table.texts().keys() == {"md", "tex", "csv"} and figure.files(draw=False)
    result = list(claim_rules.slope_by_k({**config, "largest": 100}, Measured(measured, {})))
    assert len(result) == 2
    assert all(f"BP of {name}" in markdown([swept]) for name in part)


def test_a_sweep_without_points_or_with_uneven_ones_is_shown(swept, sources):
    config = {"name": "c", "caption": "C", "inputs": 784, "outputs": 10, **BY_K}
    swept["points"][0]["rows"] = swept["points"][0]["rows"][2:]
    assert list(theory.complexity(config, sources(benchmarks=[swept])).numbers.row) == [
        "msbp", "sbp", "msbp",
    ]  # fmt: skip
    assert "BP of dense" in markdown([swept])
    swept["points"] = []
    assert "not measured yet" in theory.complexity(config, sources(benchmarks=[swept])).texts()["md"]
    assert markdown([swept])


def test_departures_are_drawn_of_weights_and_biases(sources, record_of, runs_of, angles_of):
    signature = "task=mnist method=msbp"
    angles = [
        record_of_angle(signature, seed, epoch, {"weight": 0.5 + seed, "bias": 0.1})
        for seed in range(2)
        for epoch in (0.0, 4.0)
    ]
    row = {"label": "MSBP", "overrides": ["method=msbp"]}
    block = {"title": "MNIST", "task": "mnist", "overrides": [], "rows": [row]}
    config = {"name": "departure", "caption": "Δ", "shows": "angles", "seeds": 2, "columns": []}
    shown = figures.departure(
        config | {"blocks": [block]},
        Sources(runs_of([record_of(signature)]), sources().settle, angles=angles_of(angles)),
    )
    weight, bias = shown.figure.series
    assert (weight.label, bias.label) == ("MSBP: weight", "MSBP: bias")
    assert weight.points.y.tolist() == [1.0, 1.0] and bias.points.y.tolist() == [0.1, 0.1]


def test_a_figure_of_angles_names_the_k_at_which_msbp_has_larger_ones(angles_of):
    def at(method, k, degrees, step=1):
        about = {"signature": f"{method} {k}", "seed": 0, "method": method}
        angle = {"total": math.radians(degrees), "hidden": math.radians(50)}
        return {"config": about, "k": k, "step": step, "epoch": float(step), "angle": angle}

    above = figures.comparison(
        angles_of([at("sbp", 5, 2), at("msbp", 5, 4), at("sbp", 9, 3), at("msbp", 9, 1)])
    )
    assert (
        "larger than SBP's by +2.0 degrees at k = 5; " in above
        and "k = 9" not in above
        and "With fewer than 5 runs a line decides nothing (k = 5, 9)." in above
    )
    for none in (
        [at("sbp", 5, 2)],
        [at("sbp", 5, 2), at("msbp", 5, 1)],
        [at("sbp", 5, 1, 0), at("msbp", 5, 2, 0)],
    ):
        assert figures.comparison(angles_of(none)) == ""


def record_of_angle(signature, seed, epoch, departure):
    about = {"signature": signature, "seed": seed, "method": "msbp"}
    angle = {"total": 1.0, "hidden": 1.0}
    return {
        "config": about,
        "k": 20,
        "step": int(epoch),
        "epoch": epoch,
        "angle": angle,
        "departure": departure,
    }
