"""A claim of the paper with its verdict, as numbers in its unit and as sentences."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..files import Fields
from .claim_rules import BENCHMARK
from .render import EMPTY
from .settings import Config
from .verdicts import (
    FAMILIES,
    LEVEL,
    MOST,
    POWER,
    Effect,
    Family,
    Region,
    Setting,
    Verdict,
    Word,
    counts,
    effect_of,
    heterogeneity,
    holm,
    in_paper,
    pool,
)  # fmt: skip

OPPOSITE = "opposite sign, but not beyond the margin after Holm's correction"
BEYOND = "an interval beyond the claim's edge, but not beyond the margin after Holm's correction"
SURELY = f" would decide it with a probability of {100 * POWER:.0f} %, if the effect is as estimated"
LIKEWISE = f" for {100 * POWER:.0f} %"  # where it repeats
EVERY_CELL = (
    "Reproduced: each cell has a one-sided p below 5 % by a test of its own, as in the paper, not corrected "
    "for their number (an intersection-union test)."
)
MANY = 4  # families, of which the list of verdicts shows intervals


@dataclass(frozen=True)
class Unit:
    """The form of an effect; log: the effect is a logarithm, and shown as a ratio, minus 1 where relative."""

    form: str
    suffix: str = ""
    log: bool = False
    relative: bool = False

    def shown(self, effect: float) -> float:
        """Return an effect in its unit."""
        return float(np.exp(effect)) - self.relative if self.log else effect

    def effect(self, shown: float) -> float:
        """Return the effect that is shown as this number."""
        return float(np.log(shown + self.relative)) if self.log else shown

    def text(self, shown: float | None) -> str:
        """Return a number as text without its suffix, never as -0.00; a dash for a missing one."""
        if shown is None or not np.isfinite(shown):
            return EMPTY
        return format(round(round(shown, 9), 3 if "%" in self.form else 2) + 0.0, self.form)

    def edge(self, shown: float) -> str:
        """Return the edge of a claim as text."""
        return f"{shown:.0%}" if "%" in self.form else f"{shown:g}{self.suffix}"


UNITS = {
    "points": Unit("+.2f", " points"), "degrees": Unit("+.2f", " degrees"), "share": Unit(".0%"),
    "times": Unit(".2f", "×", log=True), "percent": Unit("+.1%", log=True, relative=True),
    "exponent": Unit(".2f"),
}  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper with its location there, its configuration, and the verdict on it."""

    name: str
    config: Config
    verdict: Verdict

    @property
    def word(self) -> Word:
        return self.verdict.word

    @property
    def unit(self) -> Unit:
        return UNITS[self.config["unit"]]

    @property
    def shown_in(self) -> list[str]:
        """The tables and figures that show its numbers."""
        return [*self.config.get("figures", ()), *self.config.get("tables", ())]

    @property
    def measured(self) -> bool:
        """True if a setting has runs."""
        return any(setting.n for family in self.verdict.families for setting in family.settings)

    @property
    def absent(self) -> list[Setting]:
        """The settings without runs."""
        return [each for family in self.verdict.families for each in family.settings if not each.n]

    @property
    def rule(self) -> str:
        """The question, the effects that agree with the claim, and the margin with its reason."""
        named = (("above", self.config.get("low")), ("below", self.config.get("high")))
        edges = [f"{side} {self.unit.edge(edge)}" for side, edge in named if edge is not None]
        margin = self.config["margin"]
        words = f"Margin {self.unit.edge(margin)}: " if margin else ""
        question = f"{self.config['effect']}; {' and '.join(edges)} agrees with the claim."
        least = f" At least {self.verdict.least} runs." if "least" in self.config else ""
        cells = f" {EVERY_CELL}" if self.verdict.every_cell else ""
        return f"{question}{cells} {words}{self.config['reason']}{least}"

    @property
    def families(self) -> list[Family]:
        """The families with a setting that is not excluded."""
        return [each for each in self.verdict.families if any(not s.excluded for s in each.settings)]

    @property
    def sentence(self) -> str:
        """The word on every family with its number."""
        every = "; ".join([*map(self.sentence_of, self.families), *self.beside])
        first, surely, rest = every.partition(SURELY)
        return first + surely + rest.replace(SURELY, LIKEWISE) or "nothing to measure"

    @property
    def beside(self) -> list[str]:
        """Remarks of the settings, after the estimate over all k where `pooled` is set."""
        counted = [s for family in self.verdict.families for s in family.counted]
        asides = [setting.aside for setting in counted if setting.aside]
        if not self.config.get("pooled") or not counted:
            return asides
        return [f"all k pooled: {self.number_of(pool(counted))}{self.cells_of(counted)}", *asides]

    def named(self, family: Family) -> str:
        """Return the name of a family with the tasks whose runs are pooled; of a single task that alone."""
        tasks = dict.fromkeys(map(task_of, family.counted))
        measured = [task.removeprefix(BENCHMARK) for task in tasks if task.startswith(BENCHMARK)]
        named = [task for task in tasks if not task.startswith(BENCHMARK)]
        benchmarks = f"benchmark{'s' if len(measured) > 1 else ''} {', '.join(measured)}" if measured else ""
        if len(named) == 1 and not measured and family.name in FAMILIES:
            return named[0]
        shown = "; ".join(filter(None, [", ".join(named), benchmarks]))
        return f"{family.name} ({shown})" if shown else family.name

    def estimate_of(self, effect: Effect | None) -> str:
        """Return an estimate in the claim's unit."""
        return self.unit.text(shown_numbers(self, effect, None)[0]) + self.unit.suffix

    def number_of(self, effect: Effect | None) -> str:
        """Return an estimate with its interval."""
        _, low, high, _ = shown_numbers(self, effect, None)
        return f"{self.estimate_of(effect)} ({self.unit.text(low)} to {self.unit.text(high)})"

    def word_of(self, family: Family) -> str:
        """Return the word on a family, with the side on which it misses a range."""
        region, effect, printed = self.verdict.region, family.effect, family.printed
        if family.word == Word.OPEN and family.against(region):
            return f"{family.word}: {self.against}"
        if effect is None or family.word != Word.NOT:
            return str(family.word)
        if np.isfinite(region.low) and effect.estimate > region.high:
            return f"{family.word}: more than claimed"
        if region.p_outside(effect) > LEVEL:
            paper = self.unit.text(shown_numbers(self, None, family.paper)[-1]) + self.unit.suffix
            settings = in_paper(family.counted)
            tasks = ", ".join(dict.fromkeys(map(task_of, settings)))
            some = len(settings) < len(family.counted)
            there = f"on {tasks} {self.number_of(printed)}, " if some else ""
            return f"{family.word}: {there}less than the paper's {paper}"
        return str(family.word)

    @property
    def against(self) -> str:
        """The reason for which a family with its interval outside the effects that agree is open."""
        return OPPOSITE if not self.unit.log and 0 in self.edges else BEYOND

    @property
    def edges(self) -> list[float]:
        """The edges of the effects that agree, in the claim's unit."""
        return [self.config[name] for name in ("low", "high") if self.config.get(name) is not None]

    def range_of(self, family: Family) -> str:
        """Return the least and the largest estimate of several settings that are pooled."""
        effects = [effect_of(setting) for setting in family.counted]
        shown = sorted(self.unit.shown(effect.estimate) for effect in effects if effect)
        least, most = (self.unit.text(each) for each in (shown[0], shown[-1])) if shown else ("", "")
        return "" if least == most else f", settings range from {least} to {most}"

    def cells_of(self, settings: Sequence[Setting]) -> str:
        """Return how many of the cells of several settings are significant, each by a test of its own."""
        ps = [p for setting in settings for p in setting.ps]
        if len(settings) < 2 or not ps:
            return ""
        below, by_holm = (sum(p < LEVEL for p in each) for each in (ps, holm(ps)))
        return f", significant in {below} of {len(ps)} cells, after Holm's correction in {by_holm}"

    def difference_of(self, family: Family) -> str:
        """Return that pooled settings differ, with p, where they do."""
        p = heterogeneity(family.counted)
        shown_p = "< .001" if p < 0.001 else f"= {p:.3f}"
        return f", which differ (Cochran's Q, p {shown_p})" if p < LEVEL else ""

    def sentence_of(self, family: Family) -> str:
        """Return a family's estimate, interval and word; where it is open, the runs that would decide."""
        runs = self.verdict.more(family) if family.word == Word.OPEN else None
        more = f"about {runs} more {'run' if runs == 1 else 'runs'} per setting{SURELY}" if runs else ""
        if not family.effect:
            most = max((setting.n for setting in family.settings if not setting.excluded), default=0)
            few = f"open, {f'at most {most}' if most else 'none'} of {self.verdict.least} runs"
            return ", ".join(filter(None, [f"{family.name}: {few}", more]))
        number = self.number_of(family.effect) + self.range_of(family) + self.difference_of(family)
        number += self.cells_of(family.counted)
        sentence = f"{self.named(family)}: {number}, {self.word_of(family)}"
        if family.word != Word.OPEN:
            return sentence
        if more or not family.by_runs or self.verdict.every_cell:
            return ", ".join(filter(None, [sentence, more]))
        return f"{sentence}, and {MOST} more runs per setting would hardly decide it"

    @property
    def short(self) -> str:
        """The number of every family that has one, with its word where that is not the claim's.

        Of more families than MANY the estimates alone, by word; those that are open are counted.
        """
        known = [family for family in self.families if family.effect]
        parts, undecided = [], []
        if len(known) > MANY:
            undecided = [family for family in known if family.word == Word.OPEN]
            parts = [*self.by_word([family for family in known if family.word != Word.OPEN])]
            known = []
        for family in known:
            words = "" if self.word_of(family) == self.word else f", {self.word_of(family)}"
            number = self.number_of(family.effect) + self.range_of(family) + self.cells_of(family.counted)
            parts.append(f"{self.named(family)} {number}{words}")
        few = [family.name for family in self.families if not family.effect]
        if undecided:
            against = sum(family.against(self.verdict.region) for family in undecided)
            of_them = f", {against} of them with {self.against}" if against else ""
            parts.append(f"{len(undecided)} open{of_them}")
        if parts and few:
            named = few if len(few) < 3 else [f"{len(few)} others"]
            parts.append(f"{' and '.join(named)}: too few runs")
        return "; ".join([*parts, *self.beside])

    @property
    def brief(self) -> str:
        """The estimate of every family that has one; of more families than MANY how many have each word."""
        known = [family for family in self.families if family.effect]
        if len(known) > MANY:
            words = Counter(str(family.word) for family in known)
            return (
                f"{', '.join(f'{n} {word}' for word, n in words.most_common())} of {len(known)} comparisons"
            )
        several = len(self.families) > 1
        numbers = [
            f"{f.name}: {self.estimate_of(f.effect)}" if several else self.estimate_of(f.effect)
            for f in known
        ]
        return ", ".join(numbers) or "too few runs"

    def by_word(self, families: Sequence[Family]) -> Iterator[str]:
        """Yield each word with its families and their estimates."""
        for word in dict.fromkeys(map(self.word_of, families)):
            same = [family for family in families if self.word_of(family) == word]
            numbers = [f"{each.name}: {self.estimate_of(each.effect)}" for each in same]
            yield f"{word}: {', '.join(numbers)}"

    @property
    def reason_open(self) -> str:
        """The reason why no family is decided: runs, or where the intervals lie."""
        measured = [family for family in self.verdict.families if family.effect]
        if not measured:
            return "too few runs or no comparable times"
        against = any(family.against(self.verdict.region) for family in measured)
        return self.against if against else "intervals too wide"

    @property
    def rows(self) -> list[Fields]:
        """The numbers of every family, pooled first and then by setting, in the claim's unit."""
        return [row for family in self.verdict.families for row in rows_of(self, family)]


def task_of(setting: Setting) -> str:
    """Return the part of a setting's name that names its task."""
    return re.split("[:,(]", setting.name)[0].strip()


def region_of(config: Config) -> Region:
    """Return the effects that agree with a claim, whose edges are given in its unit."""
    unit, margin = UNITS[config["unit"]], config["margin"]
    edges = {name: unit.effect(config[name]) for name in ("low", "high") if config.get(name) is not None}
    return Region(**edges, margin=float(np.log1p(margin)) if unit.log else margin)


def rows_of(claim: Claim, family: Family) -> list[Fields]:
    """Return the numbers of a family, pooled and by setting."""

    def row(setting: str, effect: Effect | None, paper: float | None, **rest: object) -> Fields:
        numbers = zip(("estimate", "low", "high", "paper"), shown_numbers(claim, effect, paper), strict=True)
        about = {"family": family.name, "setting": setting, "unit": claim.config["unit"]}
        return about | dict(numbers) | rest

    least = claim.verdict.least
    n = sum(setting.n for setting in family.counted)
    paper = family.paper if len(in_paper(family.counted)) == len(family.counted) else None
    rows = [row("", family.effect, paper, n=n, verdict=family.word.value, remark="", command="")]
    for setting in family.settings:
        verdict = "counted" if counts(setting, least) else "not counted" if setting.n else "not measured"
        few = f"fewer than {least} runs" if 0 < setting.n < least and not setting.excluded else ""
        about = {"n": setting.n, "verdict": verdict, "command": setting.command}
        about["remark"] = "; ".join(filter(None, [setting.excluded, few, setting.note]))
        rows.append(row(setting.name, effect_of(setting) if setting.n else None, setting.paper, **about))
    return rows


def shown_numbers(claim: Claim, effect: Effect | None, paper: float | None) -> list[float | None]:
    """Return estimate, interval and the paper's effect in the claim's unit."""
    values = [effect.estimate if effect else None, None, None, paper]
    if effect and effect.df and np.isfinite(effect.variance):
        interval = effect.interval()
        values[1:3] = [interval.low, interval.high]
    return [None if value is None else claim.unit.shown(value) for value in values]
