"""The paper's figures: their points with intervals, and their images by matplotlib."""

import io
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from string import Template
from typing import Any

import pandas as pd

from ..measurements import Result
from .benchmarks import frame, platform, whole_pass
from .render import LATEX, MARKDOWN, Document, comma_separated, wrapped
from .runs import SBP, Sources, gather, scores
from .settings import Config, rows_of
from .significance import deviation_interval, mean_interval
from .verdicts import LEAST, Interval, Values

DASHED = {"sbp": "--", "msbp": "-"}
BLACK = 0  # the baseline
PASS = "backward pass and update (ms per step)"  # drawn where BP alone was timed by the earlier rule
# Distinct also with few colours; the first is black, for the baseline.
COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
MARKERS = ("D", "o", "s", "^", "v", "P")
STYLE: Any = {
    "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.alpha": 0.3, "legend.frameon": False, "svg.hashsalt": "msbp", "svg.fonttype": "path",
}  # fmt: skip
POINTS = ["x", "y", "low", "high", "n"]
IMAGES = ("png", "svg")
FIGURE = Template(
    r"""% needs \usepackage{graphicx}
\begin{figure}
\centering
\includegraphics[width=\linewidth]{$name.png}
\caption{$caption}
\label{fig:$name}
\end{figure}
"""
)


@dataclass(frozen=True)
class Series:
    """A line of a figure; colour and marker are the group's, such as k, and 0 is the baseline's."""

    label: str
    points: pd.DataFrame  # columns POINTS
    colour: int = 0
    style: str = "-"
    names: Sequence[str] = ()  # of the points, written beside them


@dataclass
class Figure:
    """A pair of axes; log: "x", "y" or "xy"; levels: horizontal lines; note: a sentence below."""

    title: str = ""
    x: str = ""
    y: str = ""
    series: list[Series] = field(default_factory=list)
    levels: list[Series] = field(default_factory=list)
    log: str = ""
    note: str = ""

    @property
    def empty(self) -> bool:
        return all(series.points.empty for series in self.series)

    def numbers(self) -> pd.DataFrame:
        """Return every point; six decimals, for more would differ between machines."""
        every = [*self.series, *self.levels]
        parts = [s.points.assign(series=s.label).round(6) for s in every if not s.points.empty]
        return pd.concat(parts)[["series", *POINTS]] if parts else pd.DataFrame()

    def images(self) -> dict[str, bytes]:
        """Return the image by file suffix, the same bytes each time with one release of matplotlib."""
        if self.empty:
            raise ValueError(f"nothing to draw in figure {self.title!r}: render only figures with points")
        files = {}
        with own_style():
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure as Canvas

            canvas = Canvas(figsize=(7.2, 4.0), layout="constrained")
            FigureCanvasAgg(canvas)
            _draw(self, canvas.subplots())
            for suffix in IMAGES:
                file = io.BytesIO()
                canvas.savefig(
                    file, format=suffix, dpi=144, metadata={"Date": None} if suffix == "svg" else None
                )
                files[suffix] = file.getvalue()
        return files


@dataclass
class Plot(Document):
    """A figure with its points as numbers; angles: those that it shows."""

    figure: Figure = field(default_factory=Figure)
    angles: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def empty(self) -> bool:
        return super().empty and self.angles.empty

    @property
    def has_results(self) -> bool:
        return not self.figure.empty

    @property
    def repeat(self) -> str:
        """The sentence with the command that runs and measures all that the figure shows."""
        return f"Repeat with `python scripts/reproduce.py figure={self.name}`, which skips what is recorded."

    @cached_property
    def images(self) -> dict[str, bytes]:
        """The image by suffix, drawn once."""
        return {} if self.figure.empty else self.figure.images()

    def texts(self) -> dict[str, str]:
        title = f"# {self.caption.translate(MARKDOWN)}\n"
        image = "" if self.figure.empty else f"![{self.caption}]({self.name}.svg)\n"
        note = self.figure.note and f"{wrapped(self.figure.note.translate(MARKDOWN))}\n"
        commands = "\n".join("- `{}`".format(words.replace("|", "\\|")) for words in self.missing)
        parts = [title, image, note, f"{self.repeat}\n", f"Still to run:\n\n{commands}\n" if commands else ""]
        tex = FIGURE.substitute(name=self.name, caption=self.caption.translate(LATEX))
        if self.figure.empty:
            tex = "".join(f"% not drawn, for nothing is measured: {words}\n" for words in self.missing)
        return {"csv": comma_separated(self.numbers), "md": "\n".join(filter(None, parts)), "tex": tex}

    def files(self, draw: bool = True) -> dict[str, str | bytes]:
        drawn = () if self.figure.empty else IMAGES
        return self.texts() | (self.images if draw else dict.fromkeys(drawn, b""))


def accuracy(config: Config, sources: Sources) -> Plot:
    """Mean accuracy by γ, a line for each k."""
    return by_gamma(config, sources, "Average accuracy", "accuracy (%)", mean_interval)


def deviation(config: Config, sources: Sources) -> Plot:
    """Standard deviation of accuracy by γ, a line for each k."""
    return by_gamma(config, sources, "Standard deviation", "sd of accuracy (points)", deviation_interval)


def by_gamma(
    config: Config,
    sources: Sources,
    title: str,
    unit: str,
    summarized: Callable[[Values], Interval | None],
) -> Plot:
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
    return plot(config, sources, figure, used=runs)


def bp_time(config: Config, sources: Sources) -> Plot:
    """Milliseconds of a backward pass by k, for SBP, MSBP and the full gradient."""
    figure = Figure("Time of the backward pass", "k of 500 entries", "backward pass (ms per step)", log="xy")
    result = sources.benchmark(**config["benchmarks"][0])
    if result:
        for colour, name in enumerate(("sbp", "msbp"), 1):
            figure.series.append(Series(name.upper(), timed(result, name), colour, DASHED[name]))
        figure.series.append(Series("baseline (all 500)", timed(result, "dense"), BLACK, ":"))
        figure.note = f"Measured on {platform(result)}."
        if not whole_pass(result):
            figure.title, figure.y = "Time of the backward pass and update", PASS
    return plot(config, sources, figure, measured=result is not None)


def tradeoff(config: Config, sources: Sources) -> Plot:
    """Accuracy of the grid at the milliseconds that a sweep over k measured for SBP and MSBP."""
    figure = Figure(
        "Accuracy against time of the backward pass", "backward pass (ms per step)", "accuracy (%)", log="x"
    )
    grid, result = config["grid"], sources.benchmark(**config["benchmarks"][0])
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
    return plot(config, sources, figure, used=runs, measured=result is not None)


def angle(config: Config, sources: Sources) -> Plot:
    """δ in degrees by epoch, SBP dashed; a line for each row of the config, in the colour of its k."""
    figure = Figure("Gradient estimation angle", "epoch", "degrees", log="y")
    shown = [(row.label, angles) for row in rows_of(config) if len(angles := sources.angles_of(row))]
    colours: dict[int, int] = {}
    for label, angles in shown:
        first = angles.iloc[0]
        colour = colours.setdefault(first.k, len(colours) + 1)
        line = over_training(angles.total.map(math.degrees), angles.epoch)
        figure.series.append(Series(label, line, colour, DASHED.get(first.method, "-.")))
    every = pd.concat([sources.angles[:0], *(angles for _, angles in shown)])
    figure.note = comparison(every)
    return plot(config, sources, figure, angles=every)


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


def departure(config: Config, sources: Sources) -> Plot:
    """‖sent − true‖ / ‖true‖ of gradients summed over an epoch, by epoch: weights solid, biases dashed."""
    figure = Figure("Departure from the true gradient", "epoch", "share of its norm", log="y")
    parts, at_the_end = [sources.angles[:0]], []
    for colour, row in enumerate(rows_of(config), 1):
        angles = sources.angles_of(row)
        angles = angles[[record.get("departure") is not None for record in angles.record]]
        parts.append(angles)
        if angles.empty:
            continue
        lasts = []
        for kind, style in (("weight", "-"), ("bias", "--")):
            values = pd.Series([record["departure"][kind] for record in angles.record], angles.index)
            line = over_training(values, angles.epoch)
            figure.series.append(Series(f"{row.label}: {kind}", line, colour, style))
            lasts.append(f"{line.y.iloc[-1]:.2f}")
        at_the_end.append(f"{row.label} {' and '.join(lasts)} (n = {angles.seed.nunique()})")
    if at_the_end:
        figure.note = f"Of weights and biases at the end of training: {', '.join(at_the_end)}."
    return plot(config, sources, figure, angles=pd.concat(parts))


def over_training(values: pd.Series, epochs: pd.Series) -> pd.DataFrame:
    """Return the points of the mean over seeds at each epoch; that of one run has no interval."""
    return points_of(
        (epoch, mean_interval(each) or Interval(each.iloc[0], math.nan, math.nan), len(each))
        for epoch, each in values.groupby(epochs)
    )


def timed(result: Result, name: str) -> pd.DataFrame:
    """Return k and milliseconds of BP of a row of a sweep over r; the dense row has the k of a row beside it.

    By the earlier timing rule they are milliseconds of BP and update, without percentiles.
    """
    rows = frame(result)
    beside = rows[rows.name.isin(["sbp", "msbp"])].groupby("point").k.first()
    rows = rows[rows.name == name].set_index("point")
    line = pd.DataFrame(
        {
            "x": beside if name == "dense" else rows.k,
            "y": rows.bp_ms if whole_pass(result) else rows.bp_update_ms,
            "low": rows.bp_p10_ms, "high": rows.bp_p90_ms, "n": rows.steps,
        }
    )  # fmt: skip
    return line.dropna(subset=["x", "y"]).astype({"x": int, "n": int}).reset_index(drop=True)


def points_of(intervals: Iterable[tuple[float, Interval | None, int]]) -> pd.DataFrame:
    """Return points from x, the interval of y and the number of runs; those without one are left out."""
    rows = [(x, each.estimate, each.low, each.high, n) for x, each, n in intervals if each]
    return pd.DataFrame(rows, columns=POINTS)


def plot(
    config: Config, sources: Sources, figure: Figure, angles: pd.DataFrame | None = None, **about: Any
) -> Plot:
    """Return the document of a figure; of one of angles, with the runs in which they were measured."""
    if angles is not None:
        runs = sources.runs.merge(angles[["signature", "seed"]].drop_duplicates())
        about |= {"angles": angles, "used": runs}
    return Plot(
        config["name"], config["caption"], numbers=figure.numbers(), figure=figure,
        missing=sources.missing(config), **about,
    )  # fmt: skip


def cycled(looks: Sequence[str], number: int) -> str:
    """Return the baseline's look for 0, and for others each of the rest in turn."""
    return looks[number and 1 + (number - 1) % (len(looks) - 1)]


def _draw(figure: Figure, axes: Any) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    for series in figure.series:
        if not series.points.empty:
            points = series.points
            bars = [(points.y - points.low).abs(), (points.high - points.y).abs()]  # none drawn for nan
            look = {"linestyle": series.style, "marker": cycled(MARKERS, series.colour), "markersize": 4}
            look |= {"color": cycled(COLOURS, series.colour), "capsize": 2, "linewidth": 1.2}
            axes.errorbar(points.x, points.y, yerr=bars, label=series.label, **look)
            for x, y, name in zip(points.x, points.y, series.names, strict=False):
                axes.annotate(name, (x, y), xytext=(4, -12), textcoords="offset points", color=look["color"])
    for level in figure.levels:
        for y in level.points.y:
            axes.axhline(y, label=level.label, color=cycled(COLOURS, level.colour), linestyle=level.style)
    for name in figure.log:
        axes.set(**{f"{name}scale": "log"})
        axis = getattr(axes, f"{name}axis")
        axis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(NullFormatter())
    axes.set(xlabel=figure.x, ylabel=figure.y, title=figure.title)
    axes.figure.legend(loc="outside right upper", fontsize=9)


@contextmanager
def own_style() -> Iterator[None]:
    """Import matplotlib and draw in STYLE, whatever the user's matplotlibrc and MPLBACKEND say."""
    backend = os.environ.pop("MPLBACKEND", None)  # that of a notebook may be a module which is not installed
    try:
        from matplotlib import rcParams, style  # here: it takes longer to import than a table to render
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    if backend is not None:
        with suppress(ValueError):
            rcParams["backend"] = backend
    with style.context(["default", STYLE]):
        yield
