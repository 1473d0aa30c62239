"""A figure before it is drawn: named lines of points with intervals, and where they come from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Point:
    """y at x with the interval of n runs; low and high are None where there is none."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    n: int | None = None


@dataclass(frozen=True)
class Series:
    """One line: colour and marker tell groups such as k apart, 0 the baseline; SBP is dashed."""

    label: str
    points: list[Point]
    colour: int = 0
    style: str = "-"


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
        return not any(series.points for series in self.series)


def numbers(figure: Figure) -> list[Mapping[str, Any]]:
    """Every point, for CSV."""
    return [
        {"series": series.label, "x": point.x, "y": rounded(point.y), "low": rounded(point.low)}
        | {"high": rounded(point.high), "n": point.n}
        for series in [*figure.series, *figure.levels]
        for point in series.points
    ]


def rounded(value: float | None) -> float | None:
    """Six decimals: more would differ between machines."""
    return None if value is None else round(value, 6)
