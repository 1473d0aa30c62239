"""A table of the paper as data: its rows, the runs that fill them, and the paper's numbers beside ours.

Only raw numbers come in; every ratio and difference is computed, the paper's own included.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .evidence import Evidence, measure
from .runs import Record, Runs
from .settings import Setting, Settle, command
from .statistics import Summary
from .wanted import Config, row_asked


@dataclass
class Line:
    """One row that wants so many seeds; it has no setting and command where its task does not exist."""

    label: str
    method: str
    setting: Setting | None
    command: str
    ours: Evidence
    paper: Evidence
    seeds: int = 1


@dataclass
class Block:
    """Rows that are compared with the first of them."""

    title: str
    task: str
    score: str
    lines: list[Line]

    @property
    def runs(self) -> list[Record]:
        return [run for line in self.lines for run in line.ours.runs]


@dataclass
class Table:
    """A filled table: columns name what its rows show; paired: their scores are tested seed by seed."""

    name: str
    caption: str
    columns: list[str]
    blocks: list[Block]
    paired: bool = False

    def records(self, column: str) -> bool:
        """Whether any of its runs gives a number for that column."""
        return any(column in line.ours.summary for block in self.blocks for line in block.lines)


def fill(config: Config, runs: Runs, settle: Settle, where: Sequence[str] = ()) -> Table:
    """The table with each row's records, found by the signature that settle gives its overrides.

    where: overrides that the rows' commands need so that their runs are found here.
    """
    blocks = [_fill(config, block, runs, settle, where) for block in config["blocks"]]
    return Table(
        config["name"], config["caption"], list(config["columns"]), blocks, config.get("paired", False)
    )


def _fill(config: Config, block: Config, runs: Runs, settle: Settle, where: Sequence[str]) -> Block:
    every = [row_asked(config, block, row) for row in block["rows"]]
    settings = [settle(asked.overrides) for asked in every]
    found = [runs.of(setting.signature) if setting else [] for setting in settings]
    lines = []
    for row, asked, setting, ours in zip(block["rows"], every, settings, measure(found), strict=True):
        if not ours.runs:
            ours.remarks["n"].append("not run yet" if setting else "its task is not there yet")
        paper = Evidence(summary={column: Summary(value) for column, value in row.get("paper", {}).items()})
        shared = asked.overrides[: -len(row["overrides"])]
        seeds = max([asked.seeds, *(run["seed"] + 1 for run in ours.runs)])
        how = command([*shared, *where], row["overrides"], seeds) if setting else ""
        lines.append(Line(asked.label, _method(row), setting, how, ours, paper, asked.seeds))
    return Block(block["title"], block["task"], block["score"], lines)


def _method(row: Config) -> str:
    """The method a row names, also where its task cannot be composed yet."""
    named = (word.removeprefix("method=") for word in row["overrides"] if word.startswith("method="))
    return next(named, "")
