"""From runs to a verdict: the effect in each setting, pooled by family of networks, held against the claim.

The rules are the same for every claim and are simulated in tests/analysis/test_verdicts.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import pandas as pd
from scipy import special, stats

LEVEL = 0.05
Values = Sequence[float] | np.ndarray
LEAST = 5  # runs of a setting that counts
MOST = 200  # further runs of a setting, beyond which none are proposed
POWER = 0.8  # the probability of a decision with the runs that are proposed
# Tasks and benchmark cases by the kind of network that is trained on them; a name covers its stand-ins.
FAMILIES = {
    "MLPs": ("mnist", "parsing", "extreme"), "LSTMs": ("pos",),
    "CNNs": ("subjectivity", "polarity", "textcnn"),
    "sequence to sequence": ("en_vi", "zh_en", "multi30k", "nmt"),
}  # fmt: skip


class Word(StrEnum):
    """The verdict on a claim, as tables and pages show it."""

    REPRODUCED = "reproduced"
    IN_PART = "in part"
    NOT = "not reproduced"
    OPEN = "open"


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 percent interval."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class Effect:
    """An estimate with the variance of its error, and the degrees of freedom behind that variance.

    df is 0 where nothing is known of the variance.
    """

    estimate: float
    variance: float
    df: float

    def __neg__(self) -> "Effect":
        return Effect(-self.estimate, self.variance, self.df)

    def __sub__(self, other: "Effect") -> "Effect":
        """The difference of two independent effects."""
        both = pooled([self, -other])
        return Effect(2 * both.estimate, 4 * both.variance, both.df)

    def interval(self, level: float = LEVEL) -> Interval:
        """Student's interval."""
        half = -float(special.stdtrit(self.df, level / 2)) * self.variance**0.5
        return Interval(self.estimate, self.estimate - half, self.estimate + half)

    def p_above(self, bound: float) -> float:
        """One-sided p of H₁: the effect is above the bound."""
        if not self.variance:
            return 0.0 if self.estimate > bound else 1.0
        t = (bound - self.estimate) / self.variance**0.5
        return float(special.stdtr(self.df, t))

    def p_below(self, bound: float) -> float:
        """One-sided p of H₁: the effect is below the bound."""
        return (-self).p_above(-bound)

    def chance_above(self, bound: float, level: float) -> float:
        """Probability that `p_above` of new runs is below level, if the effect is as estimated."""
        if not np.isfinite(bound) or not self.variance:
            return float(self.estimate > bound)
        t = -float(special.stdtrit(self.df, level))
        return float(1 - special.nctdtr(self.df, (self.estimate - bound) / self.variance**0.5, t))

    def chance_below(self, bound: float, level: float) -> float:
        """Probability that `p_below` of new runs is below level, if the effect is as estimated."""
        return (-self).chance_above(-bound, level)


@dataclass(frozen=True)
class Setting:
    """The effect in one setting.

    values: the effect run by run, by seed; or effect, where runs have none of their own. n: runs, 0 where
    there are none. excluded: why it does not count, though it is shown. group: settings that share runs.
    ps: of single tests, of each of its cells. aside: what the claim's sentence says beside the estimate.
    """

    family: str
    name: str
    command: str
    group: str = ""
    values: pd.Series | None = None
    effect: Effect | None = None
    n: int = 0
    paper: float | None = None
    excluded: str = ""
    note: str = ""
    ps: Sequence[float] = ()
    aside: str = ""


@dataclass(frozen=True)
class Region:
    """The effects that agree with a claim, and the margin below which a difference does not matter."""

    low: float = -np.inf
    high: float = np.inf
    margin: float = 0.0

    def p_inside(self, effect: Effect) -> float:
        """Two-sided p of H₁: the effect lies in the region."""
        return min(1.0, 2 * max(effect.p_above(self.low), effect.p_below(self.high)))

    def p_outside(self, effect: Effect) -> float:
        """Two-sided p of H₁: the effect is beyond the region by more than the margin."""
        ps = effect.p_below(self.low - self.margin), effect.p_above(self.high + self.margin)
        return min(1.0, 2 * min(ps))

    def p_short(self, effect: Effect | None, paper: float | None) -> float:
        """Two-sided p of H₁: the effect falls short of the paper's; 1 unless by more than the margin."""
        ours, theirs = self._raised(effect, paper)
        return min(1.0, 2 * ours.p_below(theirs)) if ours.estimate < theirs - self.margin else 1.0

    def chance(self, effect: Effect, printed: Effect | None, paper: float | None, level: float) -> float:
        """Probability that new runs decide at a two-sided level, if the effects are as estimated.

        That of the likeliest way, so slightly less than that of all ways together.
        """
        one = level / 2
        inside = effect.chance_above(self.low, one) + effect.chance_below(self.high, one) - 1
        below = effect.chance_below(self.low - self.margin, one)
        above = effect.chance_above(self.high + self.margin, one)
        ours, theirs = self._raised(printed, paper)
        beyond_margin = ours.chance_below(theirs - self.margin, 0.5)  # where the estimate itself is
        return max(inside, below, above, min(ours.chance_below(theirs, one), beyond_margin))

    def _raised(self, effect: Effect | None, paper: float | None) -> tuple[Effect, float]:
        """Return an effect and the paper's, both with the claim's side up.

        Without the paper's, and in a region with two edges, an effect that never falls short.
        """
        if effect is None or paper is None or np.isfinite(self.low) == np.isfinite(self.high):
            return Effect(0.0, 0.0, 0.0), -np.inf
        return (-effect, -paper) if np.isfinite(self.high) else (effect, paper)


@dataclass
class Family:
    """The settings of one kind of network, with the pooled effect of those that count and its word.

    printed: the pooled effect of those alone for which the paper prints one, whose mean is paper.
    """

    name: str
    settings: list[Setting]
    counted: list[Setting]
    effect: Effect | None = None
    printed: Effect | None = None
    paper: float | None = None
    word: Word = Word.OPEN

    @property
    def by_runs(self) -> bool:
        """True if further runs would narrow the interval: the effects have values run by run."""
        known = [setting for setting in self.settings if not setting.excluded and setting.n]
        return bool(known) and all(setting.values is not None for setting in known)

    def against(self, region: Region) -> bool:
        """Return whether the interval lies outside the effects that agree."""
        if not self.effect:
            return False
        interval = self.effect.interval()
        return interval.high < region.low or interval.low > region.high


@dataclass
class Verdict:
    """The word on a claim, and on each of its families."""

    families: list[Family]
    region: Region
    least: int = LEAST
    every_cell: bool = False

    @property
    def word(self) -> Word:
        """Return reproduced where all families are that can be decided, in part where some are."""
        words = [family.word for family in self.families if family.effect]
        if Word.REPRODUCED in words:
            return Word.REPRODUCED if set(words) == {Word.REPRODUCED} else Word.IN_PART
        return Word.NOT if Word.NOT in words else Word.OPEN

    def more(self, family: Family) -> int | None:
        """Return how many more runs a setting would decide a family with a probability of POWER.

        That is if effects and variances are as estimated, at the strictest level of Holm, that of the first
        of all families that then have an estimate, this one included; None where even MOST would not, and
        where that cannot be computed: an effect has no values run by run, or every cell is to be significant.
        """
        if not family.by_runs or self.every_cell:
            return None
        others = sum(each.effect is not None for each in self.families if each is not family)
        return runs_needed(family, self.region, others + 1, self.least)


def family_of(task: str) -> str:
    """Return the family of a task."""
    return next((name for name, tasks in FAMILIES.items() if task.startswith(tasks)), task)


def counts(setting: Setting, least: int = LEAST) -> bool:
    """Return whether a setting counts: it has enough runs and is not excluded."""
    return setting.n >= least and not setting.excluded


def effect_of(setting: Setting) -> Effect | None:
    """Return the effect of one setting, also of one that does not count."""
    if setting.effect is not None or setting.values is None or not len(setting.values):
        return setting.effect
    return mean_effect(setting.values)


def judge(
    settings: Sequence[Setting], region: Region, least: int = LEAST, every_cell: bool = False
) -> Verdict:
    """Return the verdict of a claim on its settings, with Holm's correction over its families.

    least: runs of a setting that counts. every_cell: a family is reproduced where each of its settings
    counts and each of their cells is significant (an intersection-union test, which needs no correction for
    the number of cells).
    """
    families = []
    for name in dict.fromkeys(setting.family for setting in settings):
        own = [setting for setting in settings if setting.family == name]
        families.append(Family(name, own, [setting for setting in own if counts(setting, least)]))
    inside, outside = [], []
    decided = [family for family in families if family.counted]
    for family in decided:
        family.effect = pool(family.counted)
        family.printed, family.paper = printed_effect(family.counted)
        whole = len(family.counted) == len(family.settings)
        every = max((p for setting in family.counted for p in setting.ps), default=1.0) if whole else 1.0
        inside.append(every if every_cell else region.p_inside(family.effect))
        outside.append(min(region.p_outside(family.effect), region.p_short(family.printed, family.paper)))
    for family, p_inside, p_outside in zip(decided, holm(inside), holm(outside), strict=True):
        if min(p_inside, p_outside) < LEVEL:
            family.word = Word.REPRODUCED if p_inside < LEVEL else Word.NOT
    return Verdict(families, region, least, every_cell)


def pool(settings: Sequence[Setting]) -> Effect:
    """Return the mean effect of settings; those of a group share runs and are averaged run by run first."""
    effects, weights = [], []
    groups: dict[object, list[Setting]] = {}
    for number, setting in enumerate(settings):
        key = number if setting.values is None else setting.group or number
        groups.setdefault(key, []).append(setting)
    for group in groups.values():
        shared = [setting.values for setting in group if len(group) > 1]
        runs = pd.concat(shared, axis=1).dropna() if shared else pd.DataFrame()
        if len(runs) >= LEAST:
            effects.append(mean_effect(runs.mean(axis=1)))
            weights.append(len(group))
        else:
            effects += filter(None, map(effect_of, group))
            weights += [1] * len(group)
    return pooled(effects, weights)


def heterogeneity(settings: Sequence[Setting]) -> float:
    """Return the p of Cochran's Q, of H₁: the settings have different effects; 1 where it has none."""
    effects = [effect for effect in map(effect_of, settings) if effect and effect.variance > 0]
    if len(effects) < 2:
        return 1.0
    estimates, weights = np.array([(effect.estimate, 1 / effect.variance) for effect in effects]).T
    q = float(weights @ (estimates - np.average(estimates, weights=weights)) ** 2)
    return float(special.chdtrc(len(effects) - 1, q))


def in_paper(settings: Sequence[Setting]) -> list[Setting]:
    """Return the settings for which the paper prints an effect."""
    return [s for s in settings if s.paper is not None and np.isfinite(s.paper)]


def printed_effect(settings: Sequence[Setting]) -> tuple[Effect, float] | tuple[None, None]:
    """Return the pooled effect of settings for which the paper prints one, and the mean of the paper's."""
    printed = in_paper(settings)
    if not printed:
        return None, None
    return pool(printed), float(np.mean([s.paper for s in printed if s.paper is not None]))


def runs_needed(family: Family, region: Region, families: int, least: int) -> int | None:
    """Return how many more runs a setting would decide a family, one of so many, with POWER."""
    known = [setting for setting in family.settings if not setting.excluded and setting.n]
    if not known:
        return None
    lacking = max(least - max(setting.n for setting in known), 0)
    varied = [s for s in known if (effect := effect_of(s)) and effect.df and effect.variance > 0]
    if not varied:
        return None
    n = min(setting.n for setting in varied)
    now, (printed, paper) = pool(varied), printed_effect(varied)

    def grown(effect: Effect, more: int) -> Effect:
        variance, df = effect.variance * n / (n + more), effect.df * (n + more - 1) / (n - 1)
        return replace(effect, variance=variance, df=df)

    for more in range(max(lacking, 1), MOST + 1):
        later = grown(printed, more) if printed else None
        if region.chance(grown(now, more), later, paper, LEVEL / families) >= POWER:
            return more
    return None


def holm(ps: Sequence[float]) -> list[float]:
    """Adjusted p of several tests: the chance of one false rejection among all stays at most 5 percent."""
    order = np.argsort(ps)
    raised = np.asarray(ps)[order] * np.arange(len(ps), 0, -1)
    adjusted = np.empty(len(ps))
    adjusted[order] = np.minimum(np.maximum.accumulate(raised), 1)
    return adjusted.tolist()


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


def jackknife(statistic: Callable[[np.ndarray], float], runs: np.ndarray) -> np.ndarray:
    """Pseudo-values of a statistic of an array with a row a run: their mean estimates it with less bias."""
    whole, n = statistic(runs), len(runs)
    without = [statistic(np.delete(runs, run, axis=0)) for run in range(n)]
    return n * whole - (n - 1) * np.array(without)


def log_slope(x: Values, y: Values) -> Effect:
    """The slope of log y by x, by least squares; at least three points that differ in x."""
    line = stats.linregress(x, np.log(y))
    return Effect(float(line.slope), float(line.stderr) ** 2, len(x) - 2)
