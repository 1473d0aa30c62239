"""What the project publishes: records, one a line, tables rendered from them, and the README that shows some.

A record enters as it was measured and is only ever replaced by another run of its signature and seed.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .formats import markdown, renderings, save
from .runs import Record, published_runs
from .settings import Settle
from .sheet import sheet
from .tables import Table, TableConfig, fill

SHOWN = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def publish(table: Table, path: Path, allow_dirty: bool = False) -> list[Record]:
    """Put every record that the table uses into the file at path; ValueError where one must not be."""
    chosen = [run for block in table.blocks for line in block.lines for run in line.ours.runs]
    if not chosen:
        raise ValueError(f"no runs of table={table.name} on record: python -m src.report tells what to run")
    for run in chosen:
        _refuse_unfit(run, allow_dirty)
    published = published_runs(path)
    if published.damaged:
        raise ValueError(f"repair what is published first: {'; '.join(published.damaged)}")
    lines = published.records | {(run["signature"], run["seed"]): without_paths(run) for run in chosen}
    texts = [json.dumps(run, ensure_ascii=False, allow_nan=False) + "\n" for run in lines.values()]
    save({path: "".join(texts)})
    return chosen


def documents(
    folder: Path, readme: Path, configs: Mapping[str, TableConfig], settle: Settle
) -> dict[Path, str]:
    """The text that the rendered tables in the folder and the README should have, by file."""
    runs = published_runs(folder / "records.jsonl")
    tables = {name: fill(config, runs, settle) for name, config in configs.items()}
    texts = {
        folder / f"{name}.{suffix}": text
        for name, table in tables.items()
        if any(line.ours.runs for block in table.blocks for line in block.lines)
        for suffix, text in renderings(table).items()
    }
    parts = {name: markdown(sheet(table)) for name, table in tables.items()}
    return texts | {readme: shown_in(readme.read_text(encoding="utf-8"), parts)}


def shown_in(text: str, parts: Mapping[str, str]) -> str:
    """The text with the part of that name put between every `table: NAME` and `end of table`."""

    def render(found: re.Match[str]) -> str:
        if found[2] not in parts:
            raise ValueError(f"the README shows table: {found[2]}; there are {', '.join(parts)}")
        return f"{found[1]}{parts[found[2]]}{found[3]}"

    return SHOWN.sub(render, text)


def stale(texts: Mapping[Path, str]) -> list[Path]:
    """The files that differ from the text they should have."""
    return [path for path, text in texts.items() if not path.exists() or path.read_text("utf-8") != text]


def without_paths(value: Any) -> Any:
    """The value without its parts that name places of one machine: config.paths and absolute paths."""
    if isinstance(value, dict):
        kept = {name: part for name, part in value.items() if name != "paths" and not _is_path(part)}
        return {name: without_paths(part) for name, part in kept.items()}
    if isinstance(value, list):
        return [without_paths(part) for part in value if not _is_path(part)]
    return value


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and os.path.isabs(value)


def _refuse_unfit(run: Record, allow_dirty: bool) -> None:
    where = f"{run['task']} {run['method']} seed {run['seed']} ({run['signature']})"
    if run.get("sample") == "tiny":
        raise ValueError(f"{where} ran on a tiny made-up sample: trials are never published")
    if (run["dirty"] or run["commit"] == "unknown") and not allow_dirty:
        raise ValueError(
            f"{where} ran on uncommitted code, so nobody can repeat it from commit {run['commit'][:8]}: "
            "commit and run again with force=true, or publish it all the same with allow_dirty=true"
        )
