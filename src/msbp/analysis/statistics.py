"""What several seeds of one setting say together, and how two settings compare.

Tests take the runs' values as arrays and are None where a side has fewer than two runs or nothing spreads.
Of the paper's tests (Appendix D): less and more are the sides that H₁ orders, wide and narrow likewise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

LEVEL = 0.05

Values = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Summary:
    """Mean and sample standard deviation of n runs; one run has no deviation."""

    mean: float
    sd: float | None = None
    n: int = 1


@dataclass(frozen=True)
class Tested:
    """A statistic with its degrees of freedom, p, and the value from which p is below 5 percent."""

    value: float
    df: tuple[float, ...]
    p: float
    critical: float
    n: tuple[int, int]

    @property
    def rejects(self) -> bool:
        return self.p < LEVEL


def summarize(values: Values) -> Summary:
    """Mean and standard deviation (n - 1 in the denominator) of the runs' values, in their own unit."""
    runs = np.asarray(values, dtype=float)
    return Summary(float(runs.mean()), float(runs.std(ddof=1)) if runs.size > 1 else None, runs.size)


def speedup(baseline: Summary, other: Summary) -> float | None:
    """How many times less time than the baseline; below 1 is slower. None of no time at all."""
    return baseline.mean / other.mean if other.mean else None


def delta(baseline: Summary, other: Summary) -> float:
    """Points above the baseline."""
    return other.mean - baseline.mean


def pooled_t(less: Values, more: Values) -> Tested | None:
    """Student's t of H₁: mean of less < mean of more, with one variance for both, as in the paper."""
    return _one_sided_t(less, more, equal_var=True)


def welch_t(less: Values, more: Values) -> Tested | None:
    """The same hypothesis without equal variances."""
    return _one_sided_t(less, more, equal_var=False)


def brown_forsythe(wide: Values, narrow: Values) -> Tested | None:
    """H₁: wide spreads more, by deviations from the medians: robust where values are not normal.

    The one-sided t whose square is Levene's statistic with centre "median".
    """
    if min(len(wide), len(narrow)) < 2:
        return None
    away = [np.abs(np.asarray(values, dtype=float) - np.median(values)) for values in (narrow, wide)]
    return pooled_t(*away)


def f_ratio(wide: Values, narrow: Values) -> Tested | None:
    """F of H₁: variance of wide > variance of narrow, as in the paper."""
    n = len(wide), len(narrow)
    if min(n) < 2 or flat(narrow):
        return None
    value = float(np.var(wide, ddof=1) / np.var(narrow, ddof=1))
    df = n[0] - 1, n[1] - 1
    return Tested(value, df, float(stats().f.sf(value, *df)), critical_f(*df), n)


def paired_t(first: Values, second: Values) -> Tested | None:
    """t of H₁: the means differ, run by run of equal seeds; positive where second is larger."""
    gain = np.asarray(second, dtype=float) - np.asarray(first, dtype=float)
    if gain.size < 2 or flat(gain):
        return None
    n = gain.size
    found = stats().ttest_rel(second, first)
    critical = float(stats().t.isf(LEVEL / 2, n - 1))
    return Tested(float(found.statistic), (n - 1,), float(found.pvalue), critical, (n, n))


def critical_t(df: float) -> float:
    """From here on the one-sided t test rejects at 5 percent."""
    return float(stats().t.isf(LEVEL, df))


def critical_f(above: float, below: float) -> float:
    """From here on the one-sided F test rejects at 5 percent."""
    return float(stats().f.isf(LEVEL, above, below))


def holm(ps: Sequence[float]) -> list[float]:
    """p of several tests, raised so that one false rejection among all has a chance of at most 5 percent."""
    order = np.argsort(ps)
    raised = np.asarray(ps)[order] * np.arange(len(ps), 0, -1)
    adjusted = np.empty(len(ps))
    adjusted[order] = np.minimum(np.maximum.accumulate(raised), 1)
    return adjusted.tolist()


def effect_size(less: Values, more: Values) -> float | None:
    """Hedges' g: the difference of means in pooled standard deviations, without the bias of few runs."""
    df = len(less) + len(more) - 2
    if min(len(less), len(more)) < 2 or (flat(less) and flat(more)):
        return None
    squares = np.var(less, ddof=1) * (len(less) - 1) + np.var(more, ddof=1) * (len(more) - 1)
    return float((np.mean(more) - np.mean(less)) / np.sqrt(squares / df) * (1 - 3 / (4 * df - 1)))


def _one_sided_t(less: Values, more: Values, equal_var: bool) -> Tested | None:
    n = len(less), len(more)
    if min(n) < 2 or (flat(less) and flat(more)):
        return None
    found = stats().ttest_ind(more, less, equal_var=equal_var, alternative="greater")
    df = float(found.df)
    return Tested(float(found.statistic), (df,), float(found.pvalue), critical_t(df), n)


def flat(values: Values) -> bool:
    """Nothing spreads."""
    return np.ptp(np.asarray(values, dtype=float)) < 1e-9  # rounding is no spread


def stats() -> Any:
    """Imported where a test is wanted: it takes longer than rendering a table without one."""
    from scipy import stats as module

    return module
