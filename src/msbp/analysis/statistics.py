"""Tests, effects and intervals over runs.

Functions take the runs' values as arrays and return None where a side has fewer than two runs, or where no
value varies. Of the paper's tests (Appendix D): less and more are the sides that H₁ orders, wide and narrow
likewise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

LEVEL = 0.05

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
    n = len(less), len(more)
    if min(n) < 2 or (constant(less) and constant(more)):
        return None
    gap = float(np.mean(more) - np.mean(less))
    return _one_sided_t(Effect(gap, pooled_variance(less, more) * (1 / n[0] + 1 / n[1]), sum(n) - 2), n)


def welch_t(less: Values, more: Values) -> Tested | None:
    """The same hypothesis without equal variances."""
    n = len(less), len(more)
    if min(n) < 2 or (constant(less) and constant(more)):
        return None
    return _one_sided_t(mean_effect(more) - mean_effect(less), n)


def _one_sided_t(gap: "Effect", n: tuple[int, int]) -> Tested:
    """Return t of H₁: the gap is above 0."""
    return Tested(gap.estimate / gap.variance**0.5, (gap.df,), gap.p_above(0), critical_t(gap.df), n)


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
    effect, n = mean_effect(gain), gain.size
    p = 2 * min(effect.p_above(0), effect.p_below(0))
    critical = float(stats.t.isf(LEVEL / 2, n - 1))
    return Tested(effect.estimate / effect.variance**0.5, (n - 1,), p, critical, (n, n))


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
    sd = pooled_variance(less, more) ** 0.5
    return float((np.mean(more) - np.mean(less)) / sd * (1 - 3 / (4 * df - 1)))


def pooled_variance(one: Values, other: Values) -> float:
    """Return the variance that two samples share, about a mean of their own each."""
    squares = np.var(one, ddof=1) * (len(one) - 1) + np.var(other, ddof=1) * (len(other) - 1)
    return float(squares / (len(one) + len(other) - 2))


def constant(values: Values) -> bool:
    """Return whether all values are equal but for rounding."""
    return np.ptp(np.asarray(values, dtype=float)) < 1e-9


def spread_ratio(wide: Values, narrow: Values) -> Interval | None:
    """The standard deviation of wide as a multiple of that of narrow, with the interval of F."""
    n = len(wide), len(narrow)
    if min(n) < 2 or constant(narrow):
        return None
    ratio = float(np.std(wide, ddof=1) / np.std(narrow, ddof=1))
    edges = stats.f.isf([LEVEL / 2, 1 - LEVEL / 2], n[0] - 1, n[1] - 1) ** 0.5
    return Interval(ratio, *(ratio / edges).tolist())


def difference(less: Values, more: Values) -> Interval | None:
    """Mean of more minus mean of less, with Welch's interval."""
    if min(len(less), len(more)) < 2:
        return None
    gap = float(np.mean(more) - np.mean(less))
    if constant(less) and constant(more):
        return Interval(gap, gap, gap)
    return (mean_effect(more) - mean_effect(less)).interval()


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


@dataclass(frozen=True)
class Effect:
    """An estimate with the variance of its error, and the degrees of freedom behind that variance.

    df is infinite where the variance is known, and 0 where nothing is known of it.
    """

    estimate: float
    variance: float
    df: float

    def __sub__(self, other: "Effect") -> "Effect":
        """The difference of two independent effects."""
        both = pooled([self, Effect(-other.estimate, other.variance, other.df)])
        return Effect(2 * both.estimate, 4 * both.variance, both.df)

    def interval(self, level: float = LEVEL) -> Interval:
        """Student's interval."""
        half = -student(level / 2, self.df) * self.variance**0.5
        return Interval(self.estimate, self.estimate - half, self.estimate + half)

    def p_above(self, bound: float) -> float:
        """One-sided p of H₁: the effect is above the bound."""
        if not self.variance:
            return 0.0 if self.estimate > bound else 1.0
        t = (bound - self.estimate) / self.variance**0.5
        return float(special.ndtr(t) if np.isinf(self.df) else special.stdtr(self.df, t))

    def p_below(self, bound: float) -> float:
        """One-sided p of H₁: the effect is below the bound."""
        return Effect(-self.estimate, self.variance, self.df).p_above(-bound)


def student(p: float, df: float) -> float:
    """The quantile of Student's distribution, normal where df is infinite."""
    return float(special.ndtri(p) if np.isinf(df) else special.stdtrit(df, p))


def mean_effect(values: Values) -> Effect:
    """The mean of a run's values; of a single one the variance is unknown."""
    n = len(values)
    variance = float(np.var(values, ddof=1)) / n if n > 1 else float("nan")
    return Effect(float(np.mean(values)), variance, n - 1)


def pooled(effects: Sequence[Effect], weights: Values | None = None) -> Effect:
    """The weighted mean of independent effects, with the df of Welch and Satterthwaite; equal by default."""
    shares = np.ones(len(effects)) if weights is None else np.asarray(weights, dtype=float)
    shares = shares / shares.sum()
    parts = np.array([effect.variance for effect in effects]) * shares**2
    df = np.array([effect.df for effect in effects], dtype=float)
    total = float(parts.sum())
    below = float((parts**2 / df).sum())
    estimate = float(shares @ [effect.estimate for effect in effects])
    return Effect(estimate, total, total**2 / below if below else float(df.sum()))


def log_sd(samples: Sequence[Values]) -> Effect:
    """The logarithm of the standard deviation that normal samples share, without bias; variance known."""
    samples = [values for values in samples if len(values)]
    df = sum(len(values) - 1 for values in samples)
    squares = sum(float(np.var(values)) * len(values) for values in samples)
    if df < 1 or not squares:
        return Effect(float("nan"), float("nan"), 0)
    bias = special.digamma(df / 2) - np.log(df / 2)
    return Effect(float(np.log(squares / df) - bias) / 2, float(special.polygamma(1, df / 2)) / 4, np.inf)


def jackknife(statistic: Callable[[np.ndarray], float], runs: np.ndarray) -> np.ndarray:
    """Pseudo-values of a statistic of an array with a row a run: their mean estimates it with less bias."""
    whole, n = statistic(runs), len(runs)
    without = [statistic(np.delete(runs, run, axis=0)) for run in range(n)]
    return n * whole - (n - 1) * np.array(without)


def log_slope(x: Values, y: Values) -> Effect:
    """The slope of log y by x, by least squares; at least three points that differ in x."""
    line = stats.linregress(x, np.log(y))
    return Effect(float(line.slope), float(line.stderr) ** 2, len(x) - 2)
