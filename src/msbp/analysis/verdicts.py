"""Whether a claim of the paper holds here, setting by setting, by a rule that is stated beside it."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from hydra.utils import get_method

from .intervals import Interval
from .sources import Sources
from .tables import Table, fill
from .wanted import Config


class Outcome(StrEnum):
    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "not decidable here"


WORDS = {Outcome.HOLDS: "for it", Outcome.FAILS: "against it", Outcome.OPEN: "undecided"}  # of one setting


@dataclass(frozen=True)
class Check:
    """One setting: what was found, of how many runs, and what that says; n is 0 where there are none.

    mute: what was found cannot decide, such as a single run; it has no vote.
    """

    setting: str
    outcome: Outcome
    n: int = 0
    unit: str = ""
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    command: str = ""
    note: str = ""
    mute: bool = False


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, its place there, what shows it, the rule it is judged by, and each setting."""

    name: str
    title: str
    quote: str
    where: str
    shown_in: list[str]
    rule: str
    checks: list[Check]
    needs: int = 1

    @property
    def measured(self) -> list[Check]:
        return [check for check in self.checks if check.n]

    @property
    def rows_measured(self) -> list[int]:
        return [place for place, check in enumerate(self.checks) if check.n]

    @property
    def rows_absent(self) -> list[int]:
        return [place for place, check in enumerate(self.checks) if not check.n]

    @property
    def outcome(self) -> Outcome:
        """One setting against a claim refutes it; else it holds if more than half of enough are for it."""
        outcomes = [check.outcome for check in self.measured if not check.mute]
        if Outcome.FAILS in outcomes:
            return Outcome.FAILS
        most = 2 * outcomes.count(Outcome.HOLDS) > len(outcomes) >= self.needs
        return Outcome.HOLDS if most else Outcome.OPEN

    @property
    def reason(self) -> str:
        """How many settings say what."""
        voting = [check for check in self.measured if not check.mute]
        counts = [(sum(c.outcome == o for c in voting), o) for o in Outcome]
        told = [f"{count} {WORDS[outcome]}" for count, outcome in counts if count]
        absent = len(self.checks) - len(self.measured)
        few = 0 < len(voting) < self.needs
        mute = len(self.measured) - len(voting)
        told += [f"{mute} that cannot decide"] if mute else []
        told += [f"{absent} not measured"] if absent else []
        return ", ".join(told) + (f"; at least {self.needs} wanted" if few else "")


@dataclass(frozen=True)
class Measured:
    """What rules look at: the sources, tables filled from them, and what figures ask for."""

    sources: Sources
    table: Callable[[str], Table]
    figures: Mapping[str, Config]


def claims(
    configs: Mapping[str, Config],
    tables: Mapping[str, Config],
    figures: Mapping[str, Config],
    sources: Sources,
) -> list[Claim]:
    """Every claim of conf/claim, in its order."""

    @cache
    def table(name: str) -> Table:
        return fill(tables[name], sources.runs, sources.settle, sources.where)

    measured = Measured(sources, table, figures)
    ordered = sorted(configs.items(), key=lambda item: item[1]["order"])
    return [
        Claim(
            name, config["title"], config["quote"], config["where"],
            [*config.get("figures", ()), *config.get("tables", ())],
            config["rule"].format(**config), get_method(config["_target_"])(config, measured),
            config.get("needs", 1),
        )
        for name, config in ordered
    ]  # fmt: skip


def above(interval: Interval | None, limit: float) -> Outcome:
    """Holds where the whole interval is above the limit, fails where none of it is."""
    if interval is None:
        return Outcome.OPEN
    if interval.low > limit:
        return Outcome.HOLDS
    return Outcome.FAILS if interval.high < limit or interval.low == interval.high else Outcome.OPEN


def below(interval: Interval | None, limit: float) -> Outcome:
    """Holds where the whole interval is at most the limit, fails where none of it is."""
    if interval is None:
        return Outcome.OPEN
    if interval.high <= limit:
        return Outcome.HOLDS
    return Outcome.FAILS if interval.low > limit else Outcome.OPEN


def check(
    setting: str,
    outcome: Outcome,
    n: int,
    unit: str,
    found: Interval | float | None,
    command: str = "",
    note: str = "",
    mute: bool = False,
) -> Check:
    """A check with its estimate, and its interval where there is one."""  # fmt: skip
    if isinstance(found, Interval):
        return Check(setting, outcome, n, unit, found.estimate, found.low, found.high, command, note, mute)
    return Check(setting, outcome, n, unit, found, None, None, command, note, mute)


def together(commands: Sequence[str]) -> str:
    """Commands of one setting as one line of shell: as one sweep if only their methods differ."""
    lines = [shlex.split(command) for command in dict.fromkeys(filter(None, commands))]
    methods = [word for line in lines for word in line if word.startswith("method=")]
    parts = [[word for word in line if word not in methods] for line in lines]
    if len(lines) > 1 and all(part == parts[0] for part in parts):
        return shlex.join([*parts[0], "method=" + ",".join(word[len("method=") :] for word in methods)])
    return " && ".join(map(shlex.join, lines))
