"""The claims as a document: a sheet with all verdicts, then one with every setting of each claim."""

from typing import Any

from .documents import Document
from .sheet import EMPTY, Grid, Sheet
from .sources import Sources
from .verdicts import WORDS, Check, Claim, claims
from .wanted import Config

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


def document(config: Config, sources: Sources) -> Document:
    """Text and plain numbers of all claims; config holds conf/claim, conf/table and conf/figure."""
    found = claims(config["claims"], config["tables"], config["figures"], sources)
    numbers = [_numbers(claim, check) for claim in found for check in claim.checks]
    sheets = [summary(found), *map(details, found)]
    return Document(config["name"], CAPTION, sheets, numbers, claims=found)


def summary(found: list[Claim]) -> Sheet:
    """A line for each claim."""
    lines = [[claim.title, claim.outcome.value, claim.reason] for claim in found]
    return Sheet(NAME, CAPTION, [Grid(HEADER, lines, [""] * len(lines))], below=[NOTE])


def details(claim: Claim) -> Sheet:
    """Every setting of a claim with its number, and the rule."""
    commands = [check.command for check in claim.checks]
    grid = Grid(["setting", *PARTS], [_cells(check) for check in claim.checks], commands)
    paper = f'The paper, {claim.where}: "{claim.quote}"'
    verdict = f"Here: {claim.outcome} ({claim.reason})."
    return Sheet(f"claim_{claim.name}", claim.title, [grid], below=[paper, f"Rule: {claim.rule}", verdict])


def _cells(check: Check) -> list[str]:
    if not check.n:
        return [check.setting, EMPTY, EMPTY, "0", said(check), check.note]
    estimate, low, high = (_number(value, check.unit) for value in (check.estimate, check.low, check.high))
    estimate += UNITS.get(check.unit, f" {check.unit}") if estimate != EMPTY else ""
    interval = EMPTY if low == EMPTY else f"{low} to {high}"
    return [check.setting, estimate, interval, str(check.n), said(check), check.note]


def said(check: Check) -> str:
    """The verdict of a setting."""
    return "cannot decide" if check.n and check.mute else WORDS[check.outcome] if check.n else "not measured"


def _number(value: float | None, unit: str) -> str:
    """As its unit has it, and never as -0.00."""
    if value is None:
        return EMPTY
    form = FORMS.get(unit, ".2f")
    return format(round(value, 3 if "%" in form else 2) + 0.0, form)


def _numbers(claim: Claim, check: Check) -> dict[str, Any]:
    row: dict[str, Any] = {"claim": claim.name, "outcome": claim.outcome.value, "setting": check.setting}
    row |= {"verdict": said(check), "n": check.n, "unit": check.unit}
    parts = {"estimate": check.estimate, "low": check.low, "high": check.high}
    row |= {name: None if value is None else round(value, 6) for name, value in parts.items()}
    return row | {"remark": check.note, "command": check.command}
