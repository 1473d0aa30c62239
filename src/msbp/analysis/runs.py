"""Runs on record: which files are whole, and which of two equal requests counts."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Record = dict[str, Any]

NEEDED = {
    "signature": str, "seed": int, "task": str, "method": str, "config": dict, "history": list,
    "metric": str, "dev": float, "test": float, "bp_s": float, "update_s": float, "total_s": float,
    "times_comparable": bool, "machine": str, "cpu": str, "device": str, "threads": int, "torch": str,
    "commit": str, "dirty": bool, "started_at": str,
}  # fmt: skip


@dataclass
class Runs:
    """Records by (signature, seed), and what could not be read: one sentence for each file."""

    records: dict[tuple[str, int], Record] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)

    def add(self, source: str, text: str) -> None:
        """Take the record in text; of two with one signature and seed the newer counts."""
        try:
            record = parse(text)
        except ValueError as error:
            self.damaged.append(f"{source}: {error}")
            return
        key = record["signature"], record["seed"]
        self.records[key] = max(self.records.get(key, record), record, key=lambda r: r["started_at"])

    def of(self, signature: str) -> list[Record]:
        """The records of one setting, one a seed, in the order of the seeds."""
        return [self.records[key] for key in sorted(self.records) if key[0] == signature]


def parse(text: str) -> Record:
    """A record out of its JSON; ValueError says what is wrong with it."""
    try:
        record = json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise ValueError(f"not a whole JSON record ({error})") from error
    if not isinstance(record, dict):
        raise ValueError(f"not a record but a {type(record).__name__}")
    wrong = [name for name, kind in NEEDED.items() if not _is(record.get(name), kind)]
    if wrong:
        raise ValueError(f"missing or of the wrong type: {', '.join(wrong)}")
    return record


def own_runs(outputs: Path) -> Runs:
    """Every finished run below the outputs folder; a run leaves record.json when it is complete."""
    runs = Runs()
    for path in sorted(outputs.rglob("record.json")):
        try:
            runs.add(str(path), path.read_bytes().decode("utf-8", errors="replace"))
        except OSError as error:
            runs.damaged.append(f"{path}: {error.strerror}")
    return runs


def published_runs(path: Path) -> Runs:
    """The records that the project publishes, one JSON a line."""
    runs = Runs()
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    for number, line in enumerate(lines, 1):
        if line.strip():
            runs.add(f"{path} line {number}", line)
    return runs


def _is(value: object, kind: type) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")
