"""Runs on record: which files are whole, and which of two equal requests counts."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files import check
from ..record import NAME, parse

Record = dict[str, Any]
# What a record may lack, but has as these where it has it.
OPTIONAL: dict[str, Any] = {
    "metric_signature": str | None, "dropped_fraction": dict, "dropped_fraction.*.entries": float,
    "dropped_fraction.*.squared_norm": float, "config.paths": dict,
}  # fmt: skip


@dataclass
class Runs:
    """Records and their sources by (signature, seed), and a sentence for each that could not be read."""

    records: dict[tuple[str, int], Record] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    sources: dict[tuple[str, int], str] = field(default_factory=dict)

    def add(self, source: str, text: str) -> None:
        """Take the record in text; of two with one signature and seed the newer counts."""
        try:
            record = parse(text)
            _check_optional(record)
        except ValueError as error:
            self.damaged.append(f"{source}: {error}")
            return
        key = record["signature"], record["seed"]
        if key not in self.records or record["started_at"] > self.records[key]["started_at"]:
            self.records[key], self.sources[key] = record, source

    def of(self, signature: str) -> list[Record]:
        """The records of one setting, one a seed, in the order of the seeds."""
        return [self.records[key] for key in sorted(self.records) if key[0] == signature]

    def folder(self, run: Record) -> Path:
        """What a run of the user's left its record in, beside what else it left."""
        return Path(self.sources[run["signature"], run["seed"]]).parent


def own_runs(outputs: Path) -> Runs:
    """Every finished run below the outputs folder; a run leaves record.json when it is complete."""
    runs = Runs()
    for path in sorted(outputs.rglob(NAME)):
        try:
            runs.add(str(path), path.read_bytes().decode("utf-8", errors="replace"))
        except OSError as error:
            runs.damaged.append(f"{path}: {error.strerror}")
    return runs


def _check_optional(record: Record) -> None:
    lacking: Record = {"metric_signature": None, "dropped_fraction": {}}
    config = {"paths": {}} | record["config"]
    check(lacking | record | {"config": config}, OPTIONAL, "record")
    for row in record["history"]:
        check(row, {"*": float | None}, "row of history")


def published_runs(path: Path) -> Runs:
    """The records that the project publishes, one JSON a line."""
    runs = Runs()
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.exists() else []
    for number, line in enumerate(lines, 1):
        if line.strip():
            runs.add(f"{path} line {number}", line)
    return runs
