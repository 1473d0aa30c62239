"""What the project publishes: records, one a line, tables rendered from them, and the README that shows some.

A record enters as it was measured and is only ever replaced by another run of its signature and seed.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from . import benchmark_tables, benchmarks
from .formats import markdown, renderings, save
from .runs import Record, published_runs
from .settings import Settle
from .sheet import sheet
from .tables import Table, TableConfig, fill

SHOWN = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def publish(table: Table, path: Path, allow_dirty: bool = False) -> list[Record]:
    """Put every record that the table uses into the file at path; ValueError where one must not be."""
    used = [run for block in table.blocks for line in block.lines for run in line.ours.runs]
    chosen = list({(run["signature"], run["seed"]): run for run in used}.values())  # rows may share runs
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
    folder: Path, readme: Path, configs: Mapping[str, TableConfig], settle: Settle, new: Iterable[str] = ()
) -> dict[Path, str]:
    """By file, the text that README and rendered tables should have; new: names of tables to render too."""
    runs = published_runs(folder / "records.jsonl")
    rendered = [name for name in configs if name in new or (folder / f"{name}.md").exists()]
    texts = {
        folder / f"{name}.{suffix}": text
        for name in rendered
        for suffix, text in renderings(fill(configs[name], runs, settle)).items()
    }
    measured = benchmarks.read(folder / "bench.json")
    if measured:
        texts[folder / "bench.md"] = benchmark_tables.markdown(measured, rows=None)

    def part(name: str) -> str:
        if name == "bench":
            return benchmark_tables.summary(run for run in measured if benchmarks.name(run) == run["case"])
        if name not in configs:
            raise ValueError(f"{readme} shows table: {name}; there are bench, {', '.join(configs)}")
        return markdown(sheet(fill(configs[name], runs, settle)))

    return texts | {readme: shown_in(readme.read_text(encoding="utf-8"), part)}


def shown_in(text: str, part: Callable[[str], str]) -> str:
    """The text with the part of that name between every `table: NAME` and `end of table`."""
    return SHOWN.sub(lambda found: f"{found[1]}{part(found[2])}{found[3]}", text)


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
