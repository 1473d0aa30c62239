"""All that was measured: runs, benchmarks and angles, either the user's or what the project publishes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import check, parsed
from ..record import ANGLES
from . import benchmarks
from .benchmarks import Result
from .runs import Runs, own_runs, published_runs
from .settings import Settle

# One moment of one run: {"config": {"signature", "seed", "method", ...}, "k", "step", "epoch", "angle"}.
Angle = Mapping[str, Any]
NEEDED = {
    "config.signature": str, "config.seed": int, "config.method": str, "k": int, "step": int, "epoch": float,
    "angle.total": float, "angle.hidden": float,
}  # fmt: skip


@dataclass(frozen=True)
class Sources:
    """Never a mixture of both; where: overrides with which commands leave more here."""

    runs: Runs
    settle: Settle
    benchmarks: Sequence[Result] = ()
    angles: Sequence[Angle] = ()
    where: Sequence[str] = ()

    def angles_of(self, overrides: Sequence[str]) -> list[Angle]:
        """All moments of runs of this setting."""
        setting = self.settle(overrides)
        return [a for a in self.angles if setting and a["config"]["signature"] == setting.signature]


def own(outputs: Path, published: Path, settle: Settle, where: Sequence[str] = ()) -> Sources:
    """What lies below the outputs folder, but for the published there."""
    runs, others = own_runs(outputs), published.resolve()
    files = [path for path in sorted(outputs.rglob(ANGLES)) if others not in path.resolve().parents]
    measured = benchmarks.own(outputs / "bench", runs.damaged)
    return Sources(runs, settle, measured, angles_in(files, runs), where)


def published(folder: Path, settle: Settle) -> Sources:
    runs = published_runs(folder / "records.jsonl")
    file = folder / ANGLES
    angles = angles_in([file] if file.exists() else [], runs)
    return Sources(runs, settle, benchmarks.read(folder / "bench.json", runs.damaged), angles)


def angles_in(files: Iterable[Path], runs: Runs) -> list[Angle]:
    """One a run and step, in this order, the last that was read; what is damaged is noted among the runs'."""
    found: dict[tuple[str, int, int], Angle] = {}
    for path in files:
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError as error:
            runs.damaged.append(f"{path}: {error.strerror}")
            continue
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    check(angle := parsed(line), NEEDED, "moment")
                    found[angle["config"]["signature"], angle["config"]["seed"], angle["step"]] = angle
                except ValueError as error:
                    runs.damaged.append(f"{path} line {number}: no angle ({error})")
    return [found[key] for key in sorted(found)]
