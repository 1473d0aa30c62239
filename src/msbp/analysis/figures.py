"""The paper's figures as documents: which points they have, with what intervals."""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from .benchmark_tables import place
from .benchmarks import Result, points
from .documents import Document
from .figure import Figure, Point, Series, numbers
from .grids import BASELINE, SBP, Cells, gather
from .intervals import Interval, deviation_interval, mean_interval
from .sources import Angle, Sources
from .wanted import Config, lacks, wanted

Summarized = Callable[[list[float]], Interval | None]
DASHED = {"sbp": "--", "msbp": "-"}
BLACK = 0  # the baseline


def accuracy(config: Config, sources: Sources) -> Document:
    """Mean accuracy by γ, a line for each k."""
    return _by_gamma(config, sources, "Average accuracy", "accuracy (%)", mean_interval)


def deviation(config: Config, sources: Sources) -> Document:
    """Standard deviation of accuracy by γ, a line for each k."""
    return _by_gamma(config, sources, "Standard deviation", "sd of accuracy (points)", deviation_interval)


def bp_time(config: Config, sources: Sources) -> Document:
    """Milliseconds of a backward pass by k, for SBP, MSBP and the full gradient."""
    figure = Figure("Backward pass", "k of 500 entries", "ms per step", log="xy")
    result = swept(config, sources)
    if result:
        for colour, name in enumerate(("sbp", "msbp"), 1):
            figure.series.append(Series(name.upper(), timed(result, name), colour, DASHED[name]))
        figure.series.append(Series("baseline", timed(result, "dense"), BLACK, ":"))
        figure.note = f"Measured on {place(result)}."
    return _document(config, sources, figure, measured=result is not None)


def tradeoff(config: Config, sources: Sources) -> Document:
    """Accuracy of the grid at the milliseconds that a sweep over k measured for SBP and MSBP."""
    figure = Figure("Accuracy against time", "ms of a backward pass", "accuracy (%)", log="x")
    found, result = gather(config["grid"], sources), swept(config, sources)
    if result:
        for name, gamma in (("sbp", SBP), ("msbp", config["gamma"])):
            at = {point.x: point.y for point in timed(result, name)}
            line = [
                _point(at[k], interval, len(scores))
                for k in found.sparse
                for scores in [found.scores(k, gamma)]
                if k in at and (interval := mean_interval(scores))
            ]
            figure.series.append(Series(name.upper(), line, len(figure.series) + 1, DASHED[name]))
        if dense := timed(result, "dense"):
            figure.series += _dense(found, dense[0].y)
        shown = [k for k in found.sparse if found.scores(k, SBP) or found.scores(k, config["gamma"])]
        figure.note = f"Times measured on {place(result)}; from the left k = {', '.join(map(str, shown))}."
    return _document(config, sources, figure, found, result is not None)


def angle(config: Config, sources: Sources) -> Document:
    """δ in degrees by epoch, SBP dashed; a line for each row of the config, in the colour of its k."""
    figure = Figure("Gradient estimation angle", "epoch", "degrees")
    shown: list[Angle] = []
    colours: dict[int, int] = {}
    for row in wanted(config, sources):
        if found := sources.angles_of(row.asked.overrides):
            colour = colours.setdefault(found[0]["k"], len(colours) + 1)
            style = DASHED.get(found[0]["config"]["method"], "-.")
            figure.series.append(Series(row.asked.label, over_training(found), colour, style))
            shown += found
    made = _document(config, sources, figure)
    made.angles = shown
    runs = {(a["config"]["signature"], a["config"]["seed"]) for a in shown}
    made.used = [run for key, run in sources.runs.records.items() if key in runs]
    return made


def over_training(angles: list[Angle]) -> list[Point]:
    """The mean over seeds at each epoch."""
    moments: dict[float, list[float]] = defaultdict(list)
    for moment in angles:
        moments[moment["epoch"]].append(math.degrees(moment["angle"]["total"]))
    return [
        _point(epoch, mean_interval(values) or values[0], len(values))
        for epoch, values in sorted(moments.items())
    ]


def swept(config: Config, sources: Sources) -> Result | None:
    """The first benchmark that the config lists."""
    asked = config["benchmarks"][0]
    found = (r for r in sources.benchmarks if (r["case"], r["sweep"]) == (asked["case"], asked["sweep"]))
    return next(found, None)


def timed(result: Result, name: str) -> list[Point]:
    """A row of a sweep over r: k and the milliseconds of BP; the dense row has the k of a row beside it."""
    line = []
    for point in points(result):
        rows = {row["name"]: row for row in point["rows"]}
        beside = (rows.get("sbp") or rows.get("msbp")) if name == "dense" else rows.get(name)
        if name in rows and beside and beside["k_per_layer"]:
            row, k = rows[name], max(beside["k_per_layer"].values())
            line.append(Point(k, row["bp_ms"], row["bp_p10_ms"], row["bp_p90_ms"], row["steps"]))
    return line


def _by_gamma(config: Config, sources: Sources, title: str, unit: str, summarized: Summarized) -> Document:
    figure, found = Figure(title, "γ (0: SBP)", unit), gather(config["grid"], sources)
    for colour, k in enumerate(found.sparse, 1):
        line = [
            _point(gamma, interval, len(scores))
            for gamma in (SBP, *found.gammas)
            for scores in [found.scores(k, gamma)]
            if (interval := summarized(scores))
        ]
        figure.series.append(Series(f"k = {k}", line, colour))
    base = found.scores(*BASELINE)
    if interval := summarized(base):
        level = Series("baseline", [_point(0.0, interval, len(base))], BLACK, ":")
        figure.levels.append(level)
    counts = sorted({point.n for series in figure.series for point in series.points if point.n})
    figure.note = f"n = {' to '.join(map(str, counts[:1] + counts[1:][-1:]))} runs a point." if counts else ""
    return _document(config, sources, figure, found)


def _dense(found: Cells, bp_ms: float) -> list[Series]:
    base = found.scores(*BASELINE)
    interval = mean_interval(base)
    return [Series("baseline", [_point(bp_ms, interval, len(base))], BLACK, "")] if interval else []


def _point(x: float, y: Interval | float, n: int) -> Point:
    return Point(x, y.estimate, y.low, y.high, n) if isinstance(y, Interval) else Point(x, y, n=n)


def _document(
    config: Config, sources: Sources, figure: Figure, found: Cells | None = None, measured: bool = False
) -> Document:
    used = found.used() if found else []
    shared: dict[str, Any] = {"used": used, "measured": measured, "lacks": lacks(config, sources)}
    return Document(config["name"], config["caption"], numbers=numbers(figure), figure=figure, **shared)
