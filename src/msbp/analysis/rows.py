"""A table of rows as a document: its text, and its plain numbers for CSV."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from .documents import Document
from .evidence import OTHER, SCORES, SECONDS, SHARES, Evidence
from .pairs import paired_p
from .resampled import notes
from .runs import Record
from .sheet import sheet
from .sources import Sources
from .tables import Block, Line, Table, fill
from .wanted import Config, lacks


def document(config: Config, sources: Sources) -> Document:
    """The table that the config lists row by row."""
    table = fill(config, sources.runs, sources.settle, sources.where)
    return of(table, lacks(config, sources), notes(table.blocks, sources.runs))


def of(table: Table, missing: Sequence[str] = (), below: Sequence[str] = ()) -> Document:
    """Any filled table; below: sentences that follow its own."""
    numbers = [plain_numbers(table, block, line) for block in table.blocks for line in block.lines]
    filled = [block for block in table.blocks if block.runs]
    return Document(
        table.name, table.caption, [sheet(table, below)], numbers,
        used=[run for block in filled for run in block.runs], lacks=list(missing),
        blank=[block.title for block in table.blocks if not block.runs],
        filled=sheet(replace(table, blocks=filled), below) if filled else None,
    )  # fmt: skip


def plain_numbers(table: Table, block: Block, line: Line) -> dict[str, Any]:
    """Seconds, percent and ratios, unrounded but for floating point; None where there is none."""
    setting, ours, paper, first = line.setting, line.ours, line.paper, block.lines[0]
    row: dict[str, Any] = {"block": block.title, "row": line.label, "task": block.task, "method": line.method}
    row |= {letter: getattr(setting, letter, None) for letter in ("r", "gamma", "hidden")}
    row |= {"n": len(ours.runs), "seeds": line.seeds}
    for column in SCORES:
        row |= {f"{column}_mean": ours.mean(column), f"{column}_sd": ours.sd(column)}
    row |= {column: ours.mean(column) for column in SECONDS} | _compared("", ours, first.ours)
    row |= {f"paper_{column}": paper.mean(column) for column in [*SCORES, *SECONDS]}
    row |= _compared("paper_", paper, first.paper)
    if SHARES.keys() & table.columns:
        row |= {column: ours.mean(column) for column in SHARES} | {"dropped_by_layer": by_layer(ours.runs)}
    for column in filter(table.records, OTHER):
        row |= {f"{column}_mean": ours.mean(column), f"{column}_sd": ours.sd(column)}
        row |= {f"{column}_delta": ours.against(first.ours, column)}
    if table.paired:
        row |= {f"paired_p_{place}": p for place, p in paired_p(block, line).items()}
    row |= {"signature": getattr(setting, "signature", None), "command": line.command}
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()}


def by_layer(runs: Sequence[Record]) -> str:
    """Each layer with the percent of non-zero entries and of squared norm that it drops, means over runs."""
    layers: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        for name, share in run.get("dropped_fraction", {}).items():
            layers.setdefault(name, []).append((share["entries"], share["squared_norm"]))
    means = {name: map(fmean, zip(*shares, strict=True)) for name, shares in layers.items()}
    return "; ".join(
        f"{name} {100 * entries:.1f} {100 * norm:.1f}" for name, (entries, norm) in means.items()
    )


def _compared(prefix: str, evidence: Evidence, baseline: Evidence) -> dict[str, float | None]:
    ratios = {column.removesuffix("_s") + "_ratio": evidence.against(baseline, column) for column in SECONDS}
    deltas = {f"{column}_delta": evidence.against(baseline, column) for column in SCORES}
    return {prefix + name: value for name, value in (ratios | deltas).items()}
