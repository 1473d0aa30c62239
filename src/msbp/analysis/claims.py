"""The paper's claims and their verdicts; as a document all verdicts, then every setting of each claim."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd
from hydra.utils import get_method

from .checks import WORDS, Check, Measured, Outcome
from .render import COMMAND, EMPTY, Document, Sheet
from .runs import Sources
from .settings import Config
from .tables import Table, fill

NAME, CAPTION = "claims", "Claims of the paper, and whether they hold here."
HEADER = ["Claim of the paper", "Here", "Settings"]
PARTS = ["estimate", "95 % interval", "n", "verdict", "remark"]
NOTE = (
    "A claim does not hold if one setting is against it; else it holds if more than half of those that "
    "can decide are for it, and is not decidable if not. The rule for a setting stands with the claim."
)
FORMS = {
    "more": "+.1%", "points": "+.2f", "degrees": "+.2f",
    "of the cells": ".0%", "of the gain": ".0%", "of the loss": ".0%",
}  # fmt: skip
UNITS = {"": "", "more": "", "×": "×"}  # the others stand after a space


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper with its location there, the rule that decides it, and a check a setting."""

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
        outcomes = [check.outcome for check in self.measured if not check.excluded]
        if Outcome.FAILS in outcomes:
            return Outcome.FAILS
        most = 2 * outcomes.count(Outcome.HOLDS) > len(outcomes) >= self.needs
        return Outcome.HOLDS if most else Outcome.OPEN

    @property
    def reason(self) -> str:
        """Return how many settings came out which way."""
        voting = [check for check in self.measured if not check.excluded]
        counts = [(sum(c.outcome == o for c in voting), o) for o in Outcome]
        counted = [f"{count} {WORDS[outcome]}" for count, outcome in counts if count]
        absent = len(self.checks) - len(self.measured)
        few = 0 < len(voting) < self.needs
        excluded = len(self.measured) - len(voting)
        counted += [f"{excluded} that cannot decide"] if excluded else []
        counted += [f"{absent} not measured"] if absent else []
        return ", ".join(counted) + (f"; at least {self.needs} wanted" if few else "")


def claims(
    configs: Mapping[str, Config],
    tables: Mapping[str, Config],
    figures: Mapping[str, Config],
    sources: Sources,
) -> list[Claim]:
    """Every claim of conf/claim, in its order."""

    @cache
    def table(name: str) -> Table:
        return fill(tables[name], sources)

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


def document(config: Config, sources: Sources) -> Document:
    """Return text and plain numbers of all claims; config holds conf/claim, conf/table and conf/figure."""
    found = claims(config["claims"], config["tables"], config["figures"], sources)
    numbers = pd.DataFrame([_numbers(claim, check) for claim in found for check in claim.checks])
    sheets = [summary(found), *map(details, found)]
    return Document(config["name"], CAPTION, sheets, numbers, claims=found)


def summary(found: list[Claim]) -> Sheet:
    """A line for each claim."""
    lines = [[claim.title, claim.outcome.value, claim.reason, ""] for claim in found]
    return Sheet(NAME, CAPTION, [pd.DataFrame(lines, columns=[*HEADER, COMMAND])], below=[NOTE])


def details(claim: Claim) -> Sheet:
    """Every setting of a claim with its number, and the rule."""
    lines = [[*_cells(check), check.command] for check in claim.checks]
    block = pd.DataFrame(lines, columns=["setting", *PARTS, COMMAND])
    paper = f'The paper, {claim.where}: "{claim.quote}"'
    result = f"Here: {claim.outcome} ({claim.reason})."
    return Sheet(f"claim_{claim.name}", claim.title, [block], below=[paper, f"Rule: {claim.rule}", result])


def _cells(check: Check) -> list[str]:
    if not check.n:
        return [check.setting, EMPTY, EMPTY, "0", verdict_of(check), check.note]
    estimate, low, high = (_number(value, check.unit) for value in (check.estimate, check.low, check.high))
    estimate += UNITS.get(check.unit, f" {check.unit}") if estimate != EMPTY else ""
    interval = EMPTY if low == EMPTY else f"{low} to {high}"
    return [check.setting, estimate, interval, str(check.n), verdict_of(check), check.note]


def verdict_of(check: Check) -> str:
    """The verdict of a setting."""
    return (
        "cannot decide" if check.n and check.excluded else WORDS[check.outcome] if check.n else "not measured"
    )


def _number(value: float | None, unit: str) -> str:
    """Return the value in the form of its unit, never as -0.00."""
    if value is None:
        return EMPTY
    form = FORMS.get(unit, ".2f")
    return format(round(value, 3 if "%" in form else 2) + 0.0, form)


def _numbers(claim: Claim, check: Check) -> dict[str, Any]:
    row: dict[str, Any] = {"claim": claim.name, "outcome": claim.outcome.value, "setting": check.setting}
    row |= {"verdict": verdict_of(check), "n": check.n, "unit": check.unit}
    parts = {"estimate": check.estimate, "low": check.low, "high": check.high}
    row |= {name: None if value is None else round(value, 6) for name, value in parts.items()}
    return row | {"remark": check.note, "command": check.command}
