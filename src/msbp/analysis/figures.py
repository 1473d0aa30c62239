"""The paper's figures as documents: their points, with intervals."""

import math
from collections.abc import Callable, Iterable

import pandas as pd

from .benchmarks import platform, points, whole_pass
from .drawing import POINTS, Figure, Series
from .grid import SBP, gather, scores
from .measurements import Result
from .plan import coverage, missing_commands
from .render import Document
from .runs import Sources
from .settings import Config
from .statistics import Interval, Values, deviation_interval, mean_interval
from .verdicts import LEAST

DASHED = {"sbp": "--", "msbp": "-"}
BLACK = 0  # the baseline
PASS = "backward pass and update (ms per step)"  # drawn where BP alone was timed by the earlier rule


def accuracy(config: Config, sources: Sources) -> Document:
    """Mean accuracy by γ, a line for each k."""
    return by_gamma(config, sources, "Average accuracy", "accuracy (%)", mean_interval)


def deviation(config: Config, sources: Sources) -> Document:
    """Standard deviation of accuracy by γ, a line for each k."""
    return by_gamma(config, sources, "Standard deviation", "sd of accuracy (points)", deviation_interval)


def by_gamma(
    config: Config,
    sources: Sources,
    title: str,
    unit: str,
    summarized: Callable[[Values], Interval | None],
) -> Document:
    """Return a figure with a line for each k of the grid, and the baseline as a level."""
    grid = config["grid"]
    figure, runs = Figure(title, "γ (0: SBP)", unit), gather(grid, sources)
    for colour, k in enumerate(grid["sparse"], 1):
        samples = [(gamma, scores(runs, k, gamma)) for gamma in (SBP, *grid["gamma"])]
        line = points_of((gamma, summarized(values), len(values)) for gamma, values in samples)
        figure.series.append(Series(f"k = {k}", line, colour))
    base = scores(runs)
    figure.levels.append(
        Series("baseline (no k or γ)", points_of([(0.0, summarized(base), len(base))]), BLACK, ":")
    )
    counts = pd.concat([series.points.n for series in figure.series])
    if len(counts):
        least, most = int(counts.min()), int(counts.max())
        figure.note = f"n = {least if least == most else f'{least} to {most}'} runs per point."
    return document(config, sources, figure, used=runs)


def bp_time(config: Config, sources: Sources) -> Document:
    """Milliseconds of a backward pass by k, for SBP, MSBP and the full gradient."""
    figure = Figure("Time of the backward pass", "k of 500 entries", "backward pass (ms per step)", log="xy")
    result = swept(config, sources)
    if result:
        for colour, name in enumerate(("sbp", "msbp"), 1):
            figure.series.append(Series(name.upper(), timed(result, name), colour, DASHED[name]))
        figure.series.append(Series("baseline (all 500)", timed(result, "dense"), BLACK, ":"))
        figure.note = f"Measured on {platform(result)}."
        if not whole_pass(result):
            figure.title, figure.y = "Time of the backward pass and update", PASS
    return document(config, sources, figure, measured=result is not None)


def tradeoff(config: Config, sources: Sources) -> Document:
    """Accuracy of the grid at the milliseconds that a sweep over k measured for SBP and MSBP."""
    figure = Figure(
        "Accuracy against time of the backward pass", "backward pass (ms per step)", "accuracy (%)", log="x"
    )
    grid, result = config["grid"], swept(config, sources)
    runs = gather(grid, sources)
    if result:
        for name, gamma in (("sbp", SBP), ("msbp", config["gamma"])):
            at = timed(result, name).set_index("x").y
            samples = {k: scores(runs, k, gamma) for k in grid["sparse"] if k in at}
            line = points_of((at[k], mean_interval(values), len(values)) for k, values in samples.items())
            names = [str(k) for k, values in samples.items() if mean_interval(values)]
            figure.series.append(Series(name.upper(), line, len(figure.series) + 1, DASHED[name], names))
        dense, base = timed(result, "dense"), scores(runs)
        if len(dense):
            level = points_of([(dense.y.iloc[0], mean_interval(base), len(base))])
            figure.series.append(Series("baseline", level, BLACK, ""))
        figure.note = f"Times measured on {platform(result)}."
        if not whole_pass(result):
            figure.title, figure.x = f"{figure.title} and update", PASS
    return document(config, sources, figure, used=runs, measured=result is not None)


def angle(config: Config, sources: Sources) -> Document:
    """δ in degrees by epoch, SBP dashed; a line for each row of the config, in the colour of its k."""
    figure = Figure("Gradient estimation angle", "epoch", "degrees", log="y")
    parts = [sources.angles[:0]]
    colours: dict[int, int] = {}
    for row in (covered.row for covered in coverage(config, sources)):
        angles = sources.angles_of(row.overrides)
        if len(angles):
            first = angles.iloc[0]
            colour = colours.setdefault(first.k, len(colours) + 1)
            style = DASHED.get(first.method, "-.")
            line = over_training(angles.total.map(math.degrees), angles.epoch)
            figure.series.append(Series(row.label, line, colour, style))
            parts.append(angles)
    shown = pd.concat(parts)
    figure.note = comparison(shown)
    return document(config, sources, figure, angles=shown)


def comparison(angles: pd.DataFrame) -> str:
    """Return at which k MSBP's angle is above SBP's, and for the hidden layers alone at which k it is not.

    Means are over the angles after the first step, before which the memory is empty and the methods agree.
    """
    later = angles[angles.step > 0].astype({"total": float, "hidden": float})
    means = later.groupby(["k", "method"])[["total", "hidden"]].mean().map(math.degrees).unstack()
    if not {("total", "sbp"), ("total", "msbp")} <= set(means.columns):
        return ""
    gaps = (means["total", "msbp"] - means["total", "sbp"]).dropna()
    above = [f"{gap:+.1f} degrees at k = {k}" for k, gap in gaps.items() if gap > 0]
    if not above:
        return ""
    seeds = later.groupby(["k", "method"]).seed.nunique().groupby("k").min()
    few = ", ".join(map(str, seeds.index[seeds < LEAST]))
    few = f" With fewer than {LEAST} runs a line decides nothing (k = {few})." if few else ""
    hidden = means["hidden"]
    nearer = ", ".join(str(k) for k in hidden.index[hidden.msbp < hidden.sbp])
    nearer = f", and MSBP's is the smaller one at k = {nearer}" if nearer else ""
    least, most = hidden.min().min(), hidden.max().max()
    return (
        f"Mean over the epochs, without the first step: MSBP's angle is larger than SBP's by "
        f"{', '.join(above)}; the paper reports that MSBP's is the smaller one at the same k.{few} Over the "
        f"gradients of the hidden layers alone the means are {least:.0f} to {most:.0f} degrees{nearer}."
    )


def departure(config: Config, sources: Sources) -> Document:
    """‖sent − true‖ / ‖true‖ of gradients summed over an epoch, by epoch: weights solid, biases dashed."""
    figure = Figure("Departure from the true gradient", "epoch", "share of its norm")
    parts = [sources.angles[:0]]
    for colour, covered in enumerate(coverage(config, sources), 1):
        angles = sources.angles_of(covered.row.overrides)
        angles = angles[[record.get("departure") is not None for record in angles.record]]
        for kind, style in (("weight", "-"), ("bias", "--")) if len(angles) else ():
            values = pd.Series([record["departure"][kind] for record in angles.record], angles.index)
            line = over_training(values, angles.epoch)
            figure.series.append(Series(f"{covered.row.label}: {kind}", line, colour, style))
        parts.append(angles)
    shown = pd.concat(parts)
    return document(config, sources, figure, angles=shown)


def over_training(values: pd.Series, epochs: pd.Series) -> pd.DataFrame:
    """Return the points of the mean over seeds at each epoch."""
    return points_of(
        (epoch, mean_interval(each) or single(each.iloc[0]), len(each))
        for epoch, each in values.groupby(epochs)
    )


def swept(config: Config, sources: Sources) -> Result | None:
    """Return the first benchmark that the config lists."""
    listed = config["benchmarks"][0]
    key = listed["case"], listed["sweep"]
    return next((result for result in sources.benchmarks if (result["case"], result["sweep"]) == key), None)


def timed(result: Result, name: str) -> pd.DataFrame:
    """Return k and milliseconds of BP of a row of a sweep over r; the dense row has the k of a row beside it.

    By the earlier timing rule they are milliseconds of BP and update, without percentiles.
    """
    line = []
    for point in points(result):
        rows = {row["name"]: row for row in point["rows"]}
        beside = (rows.get("sbp") or rows.get("msbp")) if name == "dense" else rows.get(name)
        if name in rows and beside and beside["k_per_layer"]:
            row, k = rows[name], max(beside["k_per_layer"].values())
            bp = (row["bp_ms"], row["bp_p10_ms"], row["bp_p90_ms"])
            times = bp if whole_pass(result) else (row["bp_update_ms"], math.nan, math.nan)
            line.append((k, *times, row["steps"]))
    return pd.DataFrame(line, columns=POINTS)


def points_of(intervals: Iterable[tuple[float, Interval | None, int]]) -> pd.DataFrame:
    """Return points from x, the interval of y and the number of runs; those without one are left out."""
    rows = [(x, each.estimate, each.low, each.high, n) for x, each, n in intervals if each]
    return pd.DataFrame(rows, columns=POINTS)


def single(value: float) -> Interval:
    """Return the value of one run, without an interval."""
    return Interval(value, math.nan, math.nan)


def document(
    config: Config,
    sources: Sources,
    figure: Figure,
    used: pd.DataFrame | None = None,
    angles: pd.DataFrame | None = None,
    measured: bool = False,
) -> Document:
    """Return the document of a figure; of one of angles, with the runs in which they were measured."""
    none = pd.DataFrame()
    if angles is not None:
        used = sources.runs.merge(angles[["signature", "seed"]].drop_duplicates())
    return Document(
        config["name"], config["caption"], numbers=figure.numbers(), figure=figure, measured=measured,
        missing=missing_commands(config, sources), used=none if used is None else used,
        angles=none if angles is None else angles,
    )  # fmt: skip
