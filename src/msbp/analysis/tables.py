"""A table of the paper as data: its rows, the runs that fill them, and the paper's numbers beside ours.

Only raw numbers come in; every ratio and difference is computed, the paper's own included.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from .evidence import Evidence, measure
from .runs import Runs
from .settings import Setting, Settle, command
from .statistics import Summary

TableConfig = Mapping[str, Any]


@dataclass
class Line:
    """One row; setting is None and command empty where the task does not exist yet."""

    label: str
    method: str
    setting: Setting | None
    command: str
    ours: Evidence
    paper: Evidence


@dataclass
class Block:
    """Rows that are compared with the first of them."""

    title: str
    task: str
    score: str
    lines: list[Line]


@dataclass
class Table:
    """A filled table: columns name what its rows show, seeds how many runs a row should have."""

    name: str
    caption: str
    columns: list[str]
    seeds: int
    blocks: list[Block]


def table_configs(conf: Path) -> dict[str, TableConfig]:
    """Every file of conf/table by its name."""
    return {path.stem: plain(OmegaConf.load(path)) for path in sorted((conf / "table").glob("*.yaml"))}


def plain(config: Any) -> TableConfig:
    """A table as Hydra composed it, as ordinary dicts and lists."""
    table = OmegaConf.to_container(config, resolve=True)
    assert isinstance(table, dict)
    return table  # type: ignore[return-value]


def fill(config: TableConfig, runs: Runs, settle: Settle, where: Sequence[str] = ()) -> Table:
    """The table with each row's records, found by the signature that settle gives its overrides.

    where: overrides that the rows' commands need so that their runs are found here.
    """
    blocks = [_fill(block, config, runs, settle, where) for block in config["blocks"]]
    return Table(config["name"], config["caption"], list(config["columns"]), config["seeds"], blocks)


def _fill(
    block: Mapping[str, Any], config: TableConfig, runs: Runs, settle: Settle, where: Sequence[str]
) -> Block:
    shared = [f"task={block['task']}", *block.get("overrides", [])]
    settings = [settle([*shared, *row["overrides"]]) for row in block["rows"]]
    found = [runs.of(setting.signature) if setting else [] for setting in settings]
    lines = []
    for row, setting, ours in zip(block["rows"], settings, measure(found), strict=True):
        if not ours.runs:
            ours.remarks["n"].append("not run yet" if setting else "its task is not there yet")
        paper = Evidence(summary={column: Summary(value) for column, value in row.get("paper", {}).items()})
        how = command([*shared, *where], row["overrides"], config["seeds"]) if setting else ""
        lines.append(Line(row["label"], _method(row), setting, how, ours, paper))
    return Block(block["title"], block["task"], block["score"], lines)


def _method(row: Mapping[str, Any]) -> str:
    """The method a row names, also where its task cannot be composed yet."""
    return next(word.removeprefix("method=") for word in row["overrides"] if word.startswith("method="))
