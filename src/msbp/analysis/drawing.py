"""Figures as images, the same bytes each time with one release of matplotlib."""

import io
import math
from typing import Any

from .figure import Figure, Point, Series

IMAGES = ("png", "svg")
# Told apart also by who sees few colours; the first is black, for the baseline.
COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
MARKERS = ("D", "o", "s", "^", "v", "P")
STYLE: Any = {
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.alpha": 0.3, "legend.frameon": False, "svg.hashsalt": "msbp", "svg.fonttype": "path",
}  # fmt: skip


def drawn(figure: Figure) -> dict[str, bytes]:
    """The image by file suffix; ValueError for an empty figure."""
    if figure.empty:
        raise ValueError(f"nothing to draw in figure {figure.title!r}: render only figures with points")
    import matplotlib  # here: it takes longer to import than a table to render
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    images = {}
    with matplotlib.rc_context(STYLE):
        canvas = Canvas(figsize=(7.2, 4.0), layout="constrained")
        FigureCanvasAgg(canvas)
        _draw(figure, canvas.subplots())
        for suffix in IMAGES:
            file = io.BytesIO()
            canvas.savefig(file, format=suffix, dpi=144, metadata={"Date": None} if suffix == "svg" else None)
            images[suffix] = file.getvalue()
    return images


def _draw(figure: Figure, axes: Any) -> None:
    for series in figure.series:
        if series.points:
            _line(series, axes)
    for level in figure.levels:
        for point in level.points:
            axes.axhline(point.y, label=level.label, color=COLOURS[level.colour], linestyle=level.style)
    for name in figure.log:
        axes.set(**{f"{name}scale": "log"})
        getattr(axes, f"{name}axis").set_major_formatter(lambda value, _: f"{value:g}")
    axes.set(xlabel=figure.x, ylabel=figure.y)
    axes.figure.legend(loc="outside right upper", fontsize=8)


def _line(series: Series, axes: Any) -> None:
    x, y = [point.x for point in series.points], [point.y for point in series.points]
    bars = [[_reach(point, point.low) for point in series.points]]
    bars += [[_reach(point, point.high) for point in series.points]]
    look = {"color": COLOURS[series.colour], "linestyle": series.style, "marker": MARKERS[series.colour]}
    axes.errorbar(x, y, yerr=bars, label=series.label, markersize=4, capsize=2, linewidth=1.2, **look)


def _reach(point: Point, end: float | None) -> float:
    """Length of the interval on one side; none is drawn where it is not a number."""
    return math.nan if end is None else abs(end - point.y)
