"""Tests, effects and intervals over runs.

Functions take the runs' values as arrays and return None where a side has fewer than two runs, or where no
value varies. Of the paper's tests (Appendix D): less and more are the sides that H₁ orders, wide and narrow
likewise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

LEVEL = 0.05
RESAMPLES = 5000

Values = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 percent interval."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class Tested:
    """A statistic with its degrees of freedom, p, and the critical value at 5 percent."""

    value: float
    df: tuple[float, ...]
    p: float
    critical: float
    n: tuple[int, int]

    @property
    def rejects(self) -> bool:
        return self.p < LEVEL


def pooled_t(less: Values, more: Values) -> Tested | None:
    """Student's t of H₁: mean of less < mean of more, with one variance for both, as in the paper."""
    return _one_sided_t(less, more, equal_var=True)


def welch_t(less: Values, more: Values) -> Tested | None:
    """The same hypothesis without equal variances."""
    return _one_sided_t(less, more, equal_var=False)


def _one_sided_t(less: Values, more: Values, equal_var: bool) -> Tested | None:
    n = len(less), len(more)
    if min(n) < 2 or (constant(less) and constant(more)):
        return None
    result = stats.ttest_ind(more, less, equal_var=equal_var, alternative="greater")
    df = float(result.df)
    return Tested(float(result.statistic), (df,), float(result.pvalue), critical_t(df), n)


def brown_forsythe(wide: Values, narrow: Values) -> Tested | None:
    """H₁: wide varies more, by deviations from the medians: robust where values are not normal.

    The one-sided t whose square is Levene's statistic with centre "median".
    """
    if min(len(wide), len(narrow)) < 2:
        return None
    deviations = [np.abs(np.asarray(values, dtype=float) - np.median(values)) for values in (narrow, wide)]
    return pooled_t(*deviations)


def f_ratio(wide: Values, narrow: Values) -> Tested | None:
    """F of H₁: variance of wide > variance of narrow, as in the paper."""
    n = len(wide), len(narrow)
    if min(n) < 2 or constant(narrow):
        return None
    value = float(np.var(wide, ddof=1) / np.var(narrow, ddof=1))
    df = n[0] - 1, n[1] - 1
    return Tested(value, df, float(stats.f.sf(value, *df)), critical_f(*df), n)


def paired_t(first: Values, second: Values) -> Tested | None:
    """t of H₁: the means differ, run by run of equal seeds; positive where second is larger."""
    gain = np.asarray(second, dtype=float) - np.asarray(first, dtype=float)
    if gain.size < 2 or constant(gain):
        return None
    n = gain.size
    result = stats.ttest_rel(second, first)
    critical = float(stats.t.isf(LEVEL / 2, n - 1))
    return Tested(float(result.statistic), (n - 1,), float(result.pvalue), critical, (n, n))


def critical_t(df: float) -> float:
    """From here on the one-sided t test rejects at 5 percent."""
    return float(stats.t.isf(LEVEL, df))


def critical_f(above: float, below: float) -> float:
    """From here on the one-sided F test rejects at 5 percent."""
    return float(stats.f.isf(LEVEL, above, below))


def holm(ps: Sequence[float]) -> list[float]:
    """Adjusted p of several tests: the chance of one false rejection among all stays at most 5 percent."""
    order = np.argsort(ps)
    raised = np.asarray(ps)[order] * np.arange(len(ps), 0, -1)
    adjusted = np.empty(len(ps))
    adjusted[order] = np.minimum(np.maximum.accumulate(raised), 1)
    return adjusted.tolist()


def effect_size(less: Values, more: Values) -> float | None:
    """Hedges' g: the difference of means in pooled standard deviations, without the bias of few runs."""
    df = len(less) + len(more) - 2
    if min(len(less), len(more)) < 2 or (constant(less) and constant(more)):
        return None
    squares = np.var(less, ddof=1) * (len(less) - 1) + np.var(more, ddof=1) * (len(more) - 1)
    return float((np.mean(more) - np.mean(less)) / np.sqrt(squares / df) * (1 - 3 / (4 * df - 1)))


def constant(values: Values) -> bool:
    """Whether all values are equal but for rounding."""
    return np.ptp(np.asarray(values, dtype=float)) < 1e-9


def bootstrap(statistic: Callable[..., Any], *samples: Values) -> Interval:
    """The statistic with the middle 95 percent of its values on samples drawn anew, the same each time.

    statistic: of arrays whose last axis holds the runs.
    """
    arrays = [np.asarray(values, dtype=float) for values in samples]
    draw = np.random.default_rng(0)
    drawn = [values[draw.integers(values.size, size=(RESAMPLES, values.size))] for values in arrays]
    edges = np.quantile(statistic(*drawn), [LEVEL / 2, 1 - LEVEL / 2])
    edges[np.isnan(edges)] = np.inf  # numpy's mean of two infinite ones
    return Interval(float(statistic(*arrays)), *map(float, edges))


def spread_ratio(wide: Values, narrow: Values) -> Interval | None:
    """The standard deviation of wide as a multiple of that of narrow."""
    if min(len(wide), len(narrow)) < 2 or np.ptp(narrow) == 0:
        return None

    def ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        above, below = a.std(axis=-1, ddof=1), b.std(axis=-1, ddof=1)
        return np.where(above == below, 1.0, above / below)  # a resample may repeat one run, in both

    with np.errstate(divide="ignore", invalid="ignore"):
        return bootstrap(ratio, wide, narrow)


def difference(less: Values, more: Values) -> Interval | None:
    """Mean of more minus mean of less, with Welch's interval."""
    if min(len(less), len(more)) < 2:
        return None
    gap = float(np.mean(more) - np.mean(less))
    if constant(less) and constant(more):
        return Interval(gap, gap, gap)
    interval = stats.ttest_ind(more, less, equal_var=False).confidence_interval(1 - LEVEL)
    return Interval(gap, float(interval.low), float(interval.high))


def mean_interval(values: Values) -> Interval | None:
    """The mean with Student's interval."""
    if len(values) < 2:
        return None
    mean, sd = float(np.mean(values)), float(np.std(values, ddof=1))
    half = float(stats.t.isf(LEVEL / 2, len(values) - 1)) * sd / len(values) ** 0.5
    return Interval(mean, mean - half, mean + half)


def deviation_interval(values: Values) -> Interval | None:
    """The standard deviation with the interval of χ² for normal values."""
    if len(values) < 2:
        return None
    sd, df = float(np.std(values, ddof=1)), len(values) - 1
    low, high = (sd * (df / float(stats.chi2.isf(p, df))) ** 0.5 for p in (LEVEL / 2, 1 - LEVEL / 2))
    return Interval(sd, low, high)


def slope(x: Values, y: Values) -> Interval:
    """The slope of log y by log x, by least squares, with its interval; at least three points."""
    line = stats.linregress(np.log(x), np.log(y))
    half = float(stats.t.isf(LEVEL / 2, len(x) - 2)) * float(line.stderr)
    return Interval(float(line.slope), float(line.slope) - half, float(line.slope) + half)


def line_of(x: Values, y: Values) -> tuple[float, float, float]:
    """Intercept, slope and R² of y by x."""
    line = stats.linregress(x, y)
    return float(line.intercept), float(line.slope), float(line.rvalue) ** 2
