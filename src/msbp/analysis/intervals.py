"""Estimates with intervals, over runs or over points."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .statistics import LEVEL, Values, flat, stats

RESAMPLES = 5000


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 percent interval."""

    estimate: float
    low: float
    high: float


def bootstrap(statistic: Callable[..., Any], *samples: Values) -> Interval:
    """The statistic with the middle 95 percent of what it is on samples drawn anew, the same ones each time.

    statistic: of arrays whose last axis holds the runs.
    """
    arrays = [np.asarray(values, dtype=float) for values in samples]
    draw = np.random.default_rng(0)
    drawn = [values[draw.integers(values.size, size=(RESAMPLES, values.size))] for values in arrays]
    edges = np.quantile(statistic(*drawn), [LEVEL / 2, 1 - LEVEL / 2])
    edges[np.isnan(edges)] = np.inf  # numpy's mean of two infinite ones
    return Interval(float(statistic(*arrays)), *map(float, edges))


def difference(less: Values, more: Values) -> Interval | None:
    """Mean of more minus mean of less, with Welch's interval; None with a single run on a side."""
    if min(len(less), len(more)) < 2:
        return None
    gap = float(np.mean(more) - np.mean(less))
    if flat(less) and flat(more):
        return Interval(gap, gap, gap)
    found = stats().ttest_ind(more, less, equal_var=False).confidence_interval(1 - LEVEL)
    return Interval(gap, float(found.low), float(found.high))


def mean_interval(values: Values) -> Interval | None:
    """The mean with Student's interval; None for a single run."""
    if len(values) < 2:
        return None
    mean, sd = float(np.mean(values)), float(np.std(values, ddof=1))
    half = float(stats().t.isf(LEVEL / 2, len(values) - 1)) * sd / len(values) ** 0.5
    return Interval(mean, mean - half, mean + half)


def deviation_interval(values: Values) -> Interval | None:
    """The standard deviation with the interval of χ² for normal values; None for a single run."""
    if len(values) < 2:
        return None
    sd, df = float(np.std(values, ddof=1)), len(values) - 1
    low, high = (sd * (df / float(stats().chi2.isf(p, df))) ** 0.5 for p in (LEVEL / 2, 1 - LEVEL / 2))
    return Interval(sd, low, high)


def slope(x: Values, y: Values) -> Interval:
    """The slope of log y by log x, by least squares, with its interval; at least three points."""
    found = stats().linregress(np.log(x), np.log(y))
    half = float(stats().t.isf(LEVEL / 2, len(x) - 2)) * float(found.stderr)
    return Interval(float(found.slope), float(found.slope) - half, float(found.slope) + half)


def line_of(x: Values, y: Values) -> tuple[float, float, float]:
    """Intercept, slope and R² of y by x."""
    found = stats().linregress(x, y)
    return float(found.intercept), float(found.slope), float(found.rvalue) ** 2
