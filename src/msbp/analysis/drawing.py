"""Figures as data, and their images by matplotlib."""

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

IMAGES = ("png", "svg")
# Distinct also with few colours; the first is black, for the baseline.
COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
MARKERS = ("D", "o", "s", "^", "v", "P")
STYLE: Any = {
    "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.alpha": 0.3, "legend.frameon": False, "svg.hashsalt": "msbp", "svg.fonttype": "path",
}  # fmt: skip


@dataclass(frozen=True)
class Series:
    """A line of a figure; colour and marker are the group's, such as k, and 0 is the baseline's."""

    label: str
    points: pd.DataFrame  # columns POINTS
    colour: int = 0
    style: str = "-"
    names: Sequence[str] = ()  # of the points, written beside them


POINTS = ["x", "y", "low", "high", "n"]


@dataclass
class Figure:
    """A pair of axes; log: "x", "y" or "xy"; levels: horizontal lines; note: a sentence below."""

    title: str
    x: str
    y: str
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


def images(figure: Figure) -> dict[str, bytes]:
    """Return the image by file suffix, the same bytes each time with one release of matplotlib."""
    if figure.empty:
        raise ValueError(f"nothing to draw in figure {figure.title!r}: render only figures with points")
    files = {}
    with own_style():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas

        canvas = Canvas(figsize=(7.2, 4.0), layout="constrained")
        FigureCanvasAgg(canvas)
        _draw(figure, canvas.subplots())
        for suffix in IMAGES:
            file = io.BytesIO()
            canvas.savefig(file, format=suffix, dpi=144, metadata={"Date": None} if suffix == "svg" else None)
            files[suffix] = file.getvalue()
    return files


def _draw(figure: Figure, axes: Any) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    for series in figure.series:
        if not series.points.empty:
            points = series.points
            bars = [(points.y - points.low).abs(), (points.high - points.y).abs()]  # none drawn for nan
            look = {"linestyle": series.style, "marker": MARKERS[series.colour], "markersize": 4}
            look |= {"color": COLOURS[series.colour], "capsize": 2, "linewidth": 1.2}
            axes.errorbar(points.x, points.y, yerr=bars, label=series.label, **look)
            for x, y, name in zip(points.x, points.y, series.names, strict=False):
                axes.annotate(name, (x, y), xytext=(4, -12), textcoords="offset points", color=look["color"])
    for level in figure.levels:
        for y in level.points.y:
            axes.axhline(y, label=level.label, color=COLOURS[level.colour], linestyle=level.style)
    for name in figure.log:
        axes.set(**{f"{name}scale": "log"})
        axis = getattr(axes, f"{name}axis")
        axis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(NullFormatter())
    axes.set(xlabel=figure.x, ylabel=figure.y, title=figure.title)
    axes.figure.legend(loc="outside right upper", fontsize=9)
