"""Figures as data with their images by matplotlib, and forest plots of claims as SVG.

A forest plot shows estimates with intervals below each other.
"""

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np
import pandas as pd

from ..files import Fields

if TYPE_CHECKING:
    from .claims import Claim

IMAGES = ("png", "svg")
# Distinct also with few colours; the first is black, for the baseline.
COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
MARKERS = ("D", "o", "s", "^", "v", "P")
STYLE: Any = {
    "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.alpha": 0.3, "legend.frameon": False, "svg.hashsalt": "msbp", "svg.fonttype": "path",
}  # fmt: skip
POINTS = ["x", "y", "low", "high", "n"]
FOREST = Path(__file__).with_name("forest.svg")
ROW = 22  # pixels of a forest plot
KEY = "Dotted: edges of the claim; orange: the paper; pale rows do not count."


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


def forest_plot(claim: "Claim") -> str:
    """Return the forest plot of a claim as an image of its own, for light and dark pages."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    rows = forest_rows(claim)
    about = {"height": ROW * len(rows) + 28, "title": claim.config["effect"], "step": ROW, "key": KEY}
    return environment.from_string(FOREST.read_text(encoding="utf-8")).render(rows=rows, **about) + "\n"


def forest_rows(claim: "Claim") -> list[Fields]:
    """Return the estimates with positions in percent of the axis, which spans all that counts, and as text.

    kind: pooled, counted or uncounted. Intervals end with the axis; estimates beyond it have no position.
    """
    unit, rows = claim.unit, [row for row in claim.rows if row["n"]]
    edges = [claim.config[edge] for edge in ("low", "high") if claim.config.get(edge) is not None]
    counted = [row for row in rows if row["verdict"] != "not counted"] or rows
    ends = [row[name] for row in counted for name in ("low", "high", "estimate", "paper")]
    ends = [end for end in [*ends, *edges] if end is not None and np.isfinite(end)]
    least, width = min(ends), (max(ends) - min(ends)) or 1.0

    def position(value: float | None) -> float | None:
        if value is None or not np.isfinite(value):
            return None
        return round(float(np.clip(4 + 92 * (value - least) / width, 0, 100)), 2)

    def inside(value: float | None) -> float | None:
        at = position(value)
        return at if at is not None and 0 < at < 100 else None

    lines = []
    for row in rows:
        low, high, dot = position(row["low"]), position(row["high"]), position(row["estimate"])
        interval = f" ({unit.text(row['low'])} to {unit.text(row['high'])})" if low is not None else ""
        kind = "pooled" if not row["setting"] else "counted" if row["verdict"] == "counted" else "uncounted"
        lines.append({
            "kind": kind, "label": row["setting"] or f"{row['family']}, pooled",
            "dot": inside(row["estimate"]), "radius": 6 if kind == "pooled" else 4,
            "low": dot if low is None else low, "high": dot if high is None else high,
            "paper": inside(row["paper"]), "edges": [position(edge) for edge in edges],
            "text": f"{unit.text(row['estimate'])}{unit.suffix}{interval}, n = {row['n']}",
        })  # fmt: skip
    return lines
