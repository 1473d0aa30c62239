"""The claims as a document: a sheet with all verdicts, then one with every setting of each claim."""

from collections.abc import Callable
from typing import Any

from .documents import Document
from .sheet import EMPTY, Grid, Sheet
from .sources import Sources
from .verdicts import Check, Claim, Outcome, claims
from .wanted import Config

NAME, CAPTION = "claims", "Claims of the paper, and whether they hold here."
HEADER = ["Claim of the paper", "Here", "Settings"]
PARTS = ["estimate", "95 % interval", "n", "verdict", "remark"]
NOTE = (
    "A claim does not hold if one setting is against it; else it holds if more than half of those measured "
    "are for it, and is not decidable if not. The rule for a setting stands with the claim."
)
SHARES = {"more", "of the cells", "of the gain", "of the loss"}
SHORT = {Outcome.HOLDS: "for it", Outcome.FAILS: "against it", Outcome.OPEN: "undecided"}


def document(config: Config, sources: Sources) -> Document:
    """Text and plain numbers of all claims; config holds the files of conf/claim and of conf/table."""
    found = claims(config["claims"], config["tables"], sources)
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
        return [check.setting, EMPTY, EMPTY, "0", "not measured", check.note]
    show = _shown(check.unit)
    estimate = EMPTY if check.estimate is None else f"{show(check.estimate)}{_unit(check.unit)}"
    interval = EMPTY if check.low is None else f"{show(check.low)} to {show(check.high)}"
    return [check.setting, estimate, interval, str(check.n), SHORT[check.outcome], check.note]


def _shown(unit: str) -> Callable[[Any], str]:
    if unit in SHARES:
        return lambda value: f"{round(value, 3) + 0.0:+.1%}" if unit == "more" else f"{value:.0%}"
    return lambda value: f"{round(value, 2) + 0.0:+.2f}" if unit in ("points", "degrees") else f"{value:.2f}"


def _unit(unit: str) -> str:
    return {"": "", "more": "", "×": "×"}.get(unit, f" {unit}")


def _numbers(claim: Claim, check: Check) -> dict[str, Any]:
    row: dict[str, Any] = {"claim": claim.name, "outcome": claim.outcome.value, "setting": check.setting}
    row |= {"verdict": SHORT[check.outcome] if check.n else "not measured", "n": check.n, "unit": check.unit}
    parts = {"estimate": check.estimate, "low": check.low, "high": check.high}
    row |= {name: None if value is None else round(value, 6) for name, value in parts.items()}
    return row | {"remark": check.note, "command": check.command}
