"""All that was measured: runs, benchmarks and angles, either the user's or what the project publishes."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import benchmarks
from .benchmarks import Result
from .runs import Runs, own_runs, published_runs
from .settings import Settle

# One moment of one run: {"config": {"signature", "seed", "method", ...}, "k", "step", "epoch", "angle"}.
Angle = Mapping[str, Any]
ANGLES = "angles.jsonl"


@dataclass(frozen=True)
class Sources:
    """Never a mixture of both; where: overrides with which commands leave more here."""

    runs: Runs
    settle: Settle
    benchmarks: Sequence[Result] = ()
    angles: Sequence[Angle] = ()
    where: Sequence[str] = ()


def own(outputs: Path, published: Path, settle: Settle, where: Sequence[str] = ()) -> Sources:
    """What lies below the outputs folder, but for the published there."""
    runs = own_runs(outputs)
    files = [path for path in sorted(outputs.rglob(ANGLES)) if published not in path.parents]
    return Sources(runs, settle, benchmarks.own(outputs / "bench"), angles_in(files, runs), where)


def published(folder: Path, settle: Settle) -> Sources:
    runs = published_runs(folder / "records.jsonl")
    file = folder / ANGLES
    angles = angles_in([file] if file.exists() else [], runs)
    return Sources(runs, settle, benchmarks.read(folder / "bench.json"), angles)


def angles_in(files: Iterable[Path], runs: Runs) -> list[Angle]:
    """One a run and step, in this order, the last that was read; damaged lines are noted among the runs'."""
    found: dict[tuple[str, int, int], Angle] = {}
    for path in files:
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            if line.strip():
                try:
                    angle = json.loads(line)
                    found[angle["config"]["signature"], angle["config"]["seed"], angle["step"]] = angle
                except (ValueError, KeyError, TypeError) as error:
                    runs.damaged.append(f"{path} line {number}: no angle ({error!r})")
    return [found[key] for key in sorted(found)]
