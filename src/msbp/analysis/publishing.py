"""Records on their way into what the project publishes.

A record enters as it was measured and is only ever replaced by another run of its signature and seed.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files import json_text, save
from .documents import Document
from .runs import Record, Runs, published_runs
from .sources import angles_in

Key = tuple[str, int]  # signature and seed


@dataclass
class Change:
    """What publishing does to the records of some rows: old gives way to new, the others stay."""

    added: list[Record] = field(default_factory=list)
    replaced: list[tuple[Record, Record]] = field(default_factory=list)
    kept: list[Record] = field(default_factory=list)

    @property
    def mixed(self) -> list[tuple[Record, Record]]:
        """The replacements by a run of another commit that leave other commits in the row."""
        staying = {(run["signature"], run["commit"]) for run in self.kept}
        return [
            (old, new) for old, new in self.replaced
            if old["commit"] != new["commit"]
            and any(row == new["signature"] and commit != new["commit"] for row, commit in staying)
        ]  # fmt: skip

    def told(self) -> Iterator[str]:
        """The counts, then a line for each replacement."""
        yield f"{len(self.added)} added, {len(self.replaced)} replaced, {len(self.kept)} kept as they were"
        yield from (f"replaced {_exchange(old, new)}" for old, new in self.replaced)


def publish(
    documents: Sequence[Document], path: Path, allow_dirty: bool = False, replace: bool = False
) -> Change:
    """Put every record that the documents use into the file at path; ValueError where one must not be.

    allow_dirty: also runs of uncommitted code. replace: also by runs of another commit, though others stay.
    """
    if missing := [made.name for made in documents if not made.used]:
        raise ValueError(f"no runs of {', '.join(missing)} on record: python -m src.report tells what to run")
    used = [run for made in documents for run in made.used]
    chosen = {(run["signature"], run["seed"]): without_paths(run) for run in used}  # rows share runs
    for run in chosen.values():
        _refuse_unfit(run, allow_dirty)
    published = published_runs(path)
    if published.damaged:
        raise ValueError(f"repair what is published first: {'; '.join(published.damaged)}")
    change = change_of(published.records, chosen)
    if change.mixed and not replace:
        raise ValueError(_mixing(change))
    save({path: "".join(map(json_text, (published.records | chosen).values()))})
    return change


def change_of(published: Mapping[Key, Record], chosen: Mapping[Key, Record]) -> Change:
    """What becomes of the rows, told by signature, that the chosen records belong to."""
    change, rows = Change(), {signature for signature, _ in chosen}
    for key, old in published.items():
        if key in chosen and chosen[key] != old:
            change.replaced.append((old, chosen[key]))
        elif key[0] in rows:
            change.kept.append(old)
    change.added = [new for key, new in chosen.items() if key not in published]
    return change


def publish_angles(document: Document, path: Path) -> int:
    """Put the angles that the document shows into the file at path; how many they are."""
    read = Runs()
    kept = angles_in([path] if path.exists() else [], read)
    if read.damaged:
        raise ValueError(f"repair what is published first: {'; '.join(read.damaged)}")
    angles = {
        (a["config"]["signature"], a["config"]["seed"], a["step"]): a for a in [*kept, *document.angles]
    }
    save({path: "".join(map(json_text, angles.values()))})
    return len(document.angles)


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


def _mixing(change: Change) -> str:
    told = "; ".join(_exchange(old, new) for old, new in change.mixed)
    return (
        f"would mix commits within a row, of which other seeds stay: {told}. Run the row's other seeds with "
        "this commit, too, and publish all of it; or replace these all the same with replace=true"
    )


def _exchange(old: Record, new: Record) -> str:
    return f"{_named(old)}: commit {old['commit'][:8]} by {new['commit'][:8]}"


def _named(run: Record) -> str:
    return f"{run['task']} {run['method']} seed {run['seed']} ({run['signature']})"


def _refuse_unfit(run: Record, allow_dirty: bool) -> None:
    where = _named(run)
    if run.get("sample") == "tiny":
        raise ValueError(f"{where} ran on a tiny made-up sample: trials are never published")
    if (run["dirty"] or run["commit"] == "unknown") and not allow_dirty:
        raise ValueError(
            f"{where} ran on uncommitted code, so nobody can repeat it from commit {run['commit'][:8]}: "
            "commit and run again with force=true, or publish it all the same with allow_dirty=true"
        )
