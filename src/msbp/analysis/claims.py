"""The paper's claims as a document: all verdicts, then the families and settings of each claim."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
import numpy as np
import pandas as pd
from hydra.utils import get_method

from ..files import Fields
from .claim import Claim, region_of
from .claim_rules import Measured
from .differences import questions
from .render import COMMAND, EMPTY, Document, Sheet, bullet
from .runs import Sources
from .settings import Config
from .verdicts import LEAST, Word, judge

NAME, CAPTION = "claims", "Claims of the paper, and whether they reproduce here."
FOREST = Path(__file__).with_name("forest.svg")
ROW = 22  # pixels of a forest plot
KEY = "Dotted: edges of the claim; orange: the paper; pale rows do not count."
HEADER = ["Claim of the paper", "Here", "Effect"]
SETTING = "setting"
PARTS = ["estimate", "95 % interval", "paper", "n", "verdict"]
NOTE = (
    f"A family's estimate is the mean of its settings with at least {LEAST} seeds or folds each (more where "
    "a rule says so), run by run of equal seeds. src/msbp/analysis/README.md defines the words: reproduced, "
    "in part, not reproduced, open. Intervals are not adjusted for multiple families; verdicts use Holm's "
    "adjusted p-values. n of a pooled row sums the runs of its settings, of a benchmark its repetitions. "
    "Ratios, as of times, are averaged as logarithms; a benchmark counts by the medians of each repetition, "
    "as a run, where its own table has medians over all steps."
)


@dataclass
class Claims(Document):
    """All claims with their verdicts; forests: the forest plot of each that is measured, as SVG."""

    claims: Sequence[Claim] = ()
    forests: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_results(self) -> bool:
        return any(claim.measured for claim in self.claims)

    def files(self, draw: bool = True) -> dict[str, str | bytes]:
        return {**self.texts(), **{f"{name}.svg": text for name, text in self.forests.items()}}


def document(config: Config, sources: Sources) -> Claims:
    """Return text and numbers of all claims; config holds conf/claim, conf/table and conf/figure."""
    every = claims(config["claims"], {**config["tables"], **config["figures"]}, sources)
    rows = [{"claim": claim.name, "word": claim.word.value, **row} for claim in every for row in claim.rows]
    forests = {claim.name: forest_plot(claim) for claim in every if claim.measured}
    beyond = {name: table for name, table in config["tables"].items() if "questions" in table}
    further = [questions(beyond, sources)] if beyond else []
    sheets = [summary(every), *map(details, every), *further]
    numbers = pd.DataFrame(rows).round(6)
    return Claims(config["name"], CAPTION, sheets, numbers, claims=every, forests=forests)


def claims(configs: Mapping[str, Config], shown: Mapping[str, Config], sources: Sources) -> list[Claim]:
    """Return every claim of conf/claim with its verdict, in its order; shown: tables and figures by name."""
    measured, every = Measured(sources, shown), []
    for name, config in sorted(configs.items(), key=lambda item: item[1]["order"]):
        settings = list(get_method(config["_target_"])(config, measured))
        least, every_cell = config.get("least", LEAST), config.get("every_cell", False)
        verdict = judge(settings, region_of(config), least, every_cell)
        every.append(Claim(name, config, verdict))
    return every


def summary(claims: Sequence[Claim]) -> Sheet:
    """Return a line for each claim."""
    lines = [[claim.config["title"], str(claim.word), claim.brief, ""] for claim in claims]
    return Sheet(NAME, CAPTION, [pd.DataFrame(lines, columns=[*HEADER, COMMAND])], below=[NOTE], prose=True)


def bullets(claims: Sequence[Claim]) -> str:
    """Return the decided claims as a Markdown list with their numbers, then the open ones by their reason.

    A title says what a difference in points is; for ratios and slopes the line says what is measured.
    """
    order = list(Word)
    known = sorted((c for c in claims if c.word != Word.OPEN), key=lambda claim: order.index(claim.word))
    named = {c.name: "" if c.config["unit"] == "points" else f"{c.config['effect']}: " for c in known}
    lines = [f"**{c.word.capitalize()}**: {c.config['title']}. {named[c.name]}{c.short}." for c in known]
    reasons: dict[str, list[str]] = {}
    for claim in claims:
        if claim.word == Word.OPEN:
            reasons.setdefault(claim.reason_open, []).append(claim.config["title"])
    lines += [f"**Open**, {reason}: {'; '.join(titles)}." for reason, titles in reasons.items()]
    return "".join(f"{bullet(line)}\n" for line in lines)


def details(claim: Claim) -> Sheet:
    """Return every family and every measured setting of a claim with its number, and the rule."""
    image = f"{NAME}.{claim.name}.svg" if claim.measured else ""
    text = Sheet(f"claim_{claim.name}", claim.config["title"], image=image)
    lines, unit = [], claim.unit
    for row in [row for row in claim.rows if row["n"] or not row["setting"]]:
        estimate, low, high, paper = (unit.text(row[name]) for name in ("estimate", "low", "high", "paper"))
        interval = EMPTY if low == EMPTY else f"{low} to {high}"
        label = row["setting"] or f"{row['family']}, pooled"
        verdict = row["verdict"] + (text.mark([row["remark"]]) if row["remark"] else "")
        suffix = "" if estimate == EMPTY else unit.suffix
        lines.append([label, estimate + suffix, interval, paper, str(row["n"]), verdict, row["command"]])
    text.blocks = [pd.DataFrame(lines, columns=[SETTING, *PARTS, COMMAND])]
    text.above = [f"Here {claim.word}. {claim.sentence}."]
    text.below = [f'The paper, {claim.config["where"]}: "{claim.config["quote"]}"', f"Rule: {claim.rule}"]
    if claim.absent:
        names = [each.name + (f" ({each.note})" if each.note else "") for each in claim.absent]
        text.below.append(f"Not measured: {'; '.join(names)}.")
    return text


def forest_plot(claim: Claim) -> str:
    """Return the forest plot of a claim as an image of its own, for light and dark pages."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    rows = forest_rows(claim)
    about = {"height": ROW * len(rows) + 28, "title": claim.config["effect"], "step": ROW, "key": KEY}
    return environment.from_string(FOREST.read_text(encoding="utf-8")).render(rows=rows, **about) + "\n"


def forest_rows(claim: Claim) -> list[Fields]:
    """Return the estimates with positions in percent of the axis, which spans all that counts, and as text.

    kind: pooled, counted or uncounted. Intervals end with the axis; estimates beyond it have no position.
    """
    unit, rows = claim.unit, [row for row in claim.rows if row["n"]]
    edges = [claim.config[edge] for edge in ("low", "high") if claim.config.get(edge) is not None]
    counted = [row for row in rows if row["verdict"] != "not counted"] or rows
    ends = [row[name] for row in counted for name in ("low", "high", "estimate", "paper")]
    ends = [end for end in [*ends, *edges] if end is not None and np.isfinite(end)]
    least, width = min(ends), (max(ends) - min(ends)) or 1.0

    def position(value: float | None) -> float | None:
        if value is None or not np.isfinite(value):
            return None
        return round(float(np.clip(4 + 92 * (value - least) / width, 0, 100)), 2)

    def inside(value: float | None) -> float | None:
        at = position(value)
        return at if at is not None and 0 < at < 100 else None

    lines = []
    for row in rows:
        low, high, dot = position(row["low"]), position(row["high"]), position(row["estimate"])
        interval = f" ({unit.text(row['low'])} to {unit.text(row['high'])})" if low is not None else ""
        kind = "pooled" if not row["setting"] else "counted" if row["verdict"] == "counted" else "uncounted"
        lines.append({
            "kind": kind, "label": row["setting"] or f"{row['family']}, pooled",
            "dot": inside(row["estimate"]), "radius": 6 if kind == "pooled" else 4,
            "low": dot if low is None else low, "high": dot if high is None else high,
            "paper": inside(row["paper"]), "edges": [position(edge) for edge in edges],
            "text": f"{unit.text(row['estimate'])}{unit.suffix}{interval}, n = {row['n']}",
        })  # fmt: skip
    return lines
