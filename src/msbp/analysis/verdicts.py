"""From settings to a verdict: one pooled estimate for each family of networks, held against the claim.

The rules are the same for every claim and are simulated in tests/analysis/test_verdicts.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import pandas as pd

from .statistics import LEVEL, Effect, Interval, holm, mean_effect, pooled

LEAST = 5  # runs of a setting that counts
MOST = 200  # runs a setting, beyond which none are proposed
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
class Setting:
    """The effect in one setting.

    values: the effect run by run, by seed; or effect, where runs have none of their own. n: runs, 0 where
    there are none. excluded: why it does not count, though it is shown. group: settings that share runs.
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


@dataclass(frozen=True)
class Region:
    """The effects that agree with a claim, and the margin below which a difference does not matter."""

    low: float = -np.inf
    high: float = np.inf
    margin: float = 0.0

    def p_inside(self, effect: Effect) -> float:
        """Two-sided p of H₁: the effect lies in the region."""
        return min(1.0, 2 * max(self.p_edge(effect, self.low, 1), self.p_edge(effect, self.high, -1)))

    def p_outside(self, effect: Effect, paper: float | None) -> float:
        """Two-sided p of H₁: the effect is beyond the region by more than the margin, or not the paper's.

        The paper's effect is excluded only by a shortfall of more than the margin, towards the edge that the
        claim names.
        """
        ps = []
        if np.isfinite(self.low):
            ps.append(effect.p_below(self.low - self.margin))
        if np.isfinite(self.high):
            ps.append(effect.p_above(self.high + self.margin))
        if paper is not None and np.isfinite(self.low) != np.isfinite(self.high):
            sign = 1 if np.isfinite(self.low) else -1
            if sign * (paper - effect.estimate) > self.margin:
                ps.append(effect.p_below(paper) if sign > 0 else effect.p_above(paper))
        return min(1.0, 2 * min(ps))

    @staticmethod
    def p_edge(effect: Effect, edge: float, sign: int) -> float:
        if not np.isfinite(edge):
            return 0.0
        return effect.p_above(edge) if sign > 0 else effect.p_below(edge)


@dataclass
class Family:
    """The settings of one kind of network, with the pooled effect of those that count and its word."""

    name: str
    settings: list[Setting]
    effect: Effect | None = None
    paper: float | None = None
    p: float = 1.0
    word: Word = Word.OPEN

    @property
    def interval(self) -> Interval | None:
        return self.effect.interval() if self.effect else None

    def against(self, region: Region) -> bool:
        """Return whether the family is open though its interval lies outside the effects that agree."""
        interval = self.interval
        outside = interval and (interval.high < region.low or interval.low > region.high)
        return bool(outside) and self.word == Word.OPEN

    def counted(self, least: int = LEAST) -> list[Setting]:
        """Return the settings that count."""
        return [setting for setting in self.settings if counts(setting, least)]


@dataclass
class Verdict:
    """The word on a claim, and on each of its families."""

    families: list[Family]
    region: Region
    least: int = LEAST

    @property
    def word(self) -> Word:
        """Return reproduced where all families are that can be decided, in part where some are."""
        words = [family.word for family in self.families if family.effect]
        if Word.REPRODUCED in words:
            return Word.REPRODUCED if set(words) == {Word.REPRODUCED} else Word.IN_PART
        return Word.NOT if Word.NOT in words else Word.OPEN

    def more(self, family: Family) -> int | None:
        """Return how many more runs a setting would decide an open family, if the estimate stays.

        At these variances, and at the strictest level of Holm, that of the first of all families; None where
        even MOST would not.
        """
        decided = sum(each.effect is not None for each in self.families)
        return runs_needed(family, self.region, max(decided, 1), self.least)


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


def judge(settings: Sequence[Setting], region: Region, least: int = LEAST) -> Verdict:
    """Return the verdict of a claim on its settings, with Holm's correction over its families.

    least: runs of a setting that counts.
    """
    families = [
        Family(name, [s for s in settings if s.family == name])
        for name in dict.fromkeys(setting.family for setting in settings)
    ]
    decided = [family for family in families if family.counted(least)]
    for family in decided:
        counted = family.counted(least)
        family.effect, family.paper = pool(counted), paper_effect(counted)
    for family, word, p in zip(decided, *words_of(decided, region), strict=True):
        family.word, family.p = word, p
    return Verdict(families, region, least)


def words_of(families: Sequence[Family], region: Region) -> tuple[list[Word], list[float]]:
    """Return the word on each family, and its p by Holm of being on the claim's side."""
    effects = [family.effect for family in families if family.effect]
    inside = holm([region.p_inside(effect) for effect in effects])
    outside = holm([region.p_outside(f.effect, f.paper) for f in families if f.effect])
    words = [
        Word.REPRODUCED if a < LEVEL else Word.NOT if b < LEVEL else Word.OPEN
        for a, b in zip(inside, outside, strict=True)
    ]
    return words, inside


def pool(settings: Sequence[Setting]) -> Effect:
    """Return the mean effect of settings; those of a group share runs and are averaged run by run first."""
    effects, weights = [], []
    groups: dict[object, list[Setting]] = {}
    for number, setting in enumerate(settings):
        key = setting.group if setting.values is not None else number
        groups.setdefault(key, []).append(setting)
    for group in groups.values():
        if len(group) > 1:
            runs = pd.concat([setting.values for setting in group], axis=1).dropna().mean(axis=1)
            if len(runs) >= LEAST:
                effects.append(mean_effect(runs))
                weights.append(len(group))
                continue
        effects += [effect for setting in group if (effect := effect_of(setting))]
        weights += [1] * len(group)
    return pooled(effects, weights)


def paper_effect(settings: Sequence[Setting]) -> float | None:
    """Return the mean of the paper's effects in settings for which it prints one."""
    printed = [s.paper for s in settings if s.paper is not None and np.isfinite(s.paper)]
    return float(np.mean(printed)) if printed else None


def runs_needed(family: Family, region: Region, families: int, least: int) -> int | None:
    """Return how many more runs a setting would decide a family, beside so many families."""
    known = [setting for setting in family.settings if not setting.excluded and setting.n]
    if not known:
        return None
    lacking = max(least - max(setting.n for setting in known), 0)
    every = [effect for setting in known if (effect := effect_of(setting))]
    effects = [effect for effect in every if np.isfinite(effect.df) and effect.df and effect.variance > 0]
    if not effects:
        return lacking or None
    n = min(setting.n for setting in known if setting.n > 1)
    now, paper = pooled(effects), paper_effect(known)
    for more in range(lacking, MOST):
        grown = replace(now, variance=now.variance * n / (n + more), df=now.df * (n + more - 1) / (n - 1))
        if min(region.p_inside(grown), region.p_outside(grown, paper)) * families < LEVEL:
            return max(more, 1)
    return None
