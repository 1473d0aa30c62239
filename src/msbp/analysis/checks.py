"""The outcome of one setting of a claim, and what rules look at."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from .runs import Sources
from .settings import Config
from .statistics import Interval
from .tables import Table


class Outcome(StrEnum):
    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "not decidable here"


WORDS = {Outcome.HOLDS: "for it", Outcome.FAILS: "against it", Outcome.OPEN: "undecided"}  # of one setting


@dataclass(frozen=True)
class Check:
    """One setting: estimate, number of runs and outcome; n is 0 where there are no runs.

    excluded: the estimate cannot decide, such as that of a single run; it has no vote.
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
    excluded: bool = False


@dataclass(frozen=True)
class Measured:
    """The sources, tables filled from them, and the configuration of figures."""

    sources: Sources
    table: Callable[[str], Table]
    figures: Mapping[str, Config]


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
    excluded: bool = False,
) -> Check:
    """A check with its estimate, and its interval where there is one."""  # fmt: skip
    if isinstance(found, Interval):
        return Check(
            setting, outcome, n, unit, found.estimate, found.low, found.high, command, note, excluded
        )
    return Check(setting, outcome, n, unit, found, None, None, command, note, excluded)


def together(commands: Sequence[str]) -> str:
    """Commands of one setting as one line of shell: as one sweep if only their methods differ."""
    lines = [shlex.split(command) for command in dict.fromkeys(filter(None, commands))]
    methods = [word for line in lines for word in line if word.startswith("method=")]
    parts = [[word for word in line if word not in methods] for line in lines]
    if len(lines) > 1 and all(part == parts[0] for part in parts):
        return shlex.join([*parts[0], "method=" + ",".join(word[len("method=") :] for word in methods)])
    return " && ".join(map(shlex.join, lines))
