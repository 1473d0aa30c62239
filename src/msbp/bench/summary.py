"""From seconds of single steps to the numbers of a row: medians, percentiles, ratios."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..training.clock import PHASES
from .flops import Flops
from .rows import Row

OPPONENTS = ("torch", "dense")
DATA, FORWARD, BP, UPDATE = ([at] for at in range(len(PHASES)))
COMPARED = {"bp": BP, "bp_update": BP + UPDATE, "total": DATA + FORWARD + BP + UPDATE}


def milliseconds(seconds: np.ndarray, phases: list[int], percentile: float = 50) -> float:
    """A percentile over steps of what these phases of a step take together; seconds (steps, phases)."""
    return round(1000 * float(np.percentile(seconds[:, phases].sum(1), percentile)), 5)


def numbers(row: Row, seconds: np.ndarray, formed: np.ndarray, flops: Flops) -> dict[str, Any]:
    """A row's numbers; formed: seconds of steps that form every gradient within the backward pass.

    bp_gflops is the dense arithmetic of the propagated entries over the time that forms every gradient; a row
    that skips zeros among them, as behind a maximum over time, goes beyond what the processor can.
    """
    materialised = milliseconds(formed, BP)
    return {
        "name": row.name,
        "data_ms": milliseconds(seconds, DATA),
        "forward_ms": milliseconds(seconds, FORWARD),
        "bp_ms": milliseconds(seconds, BP),
        "update_ms": milliseconds(seconds, UPDATE),
        "bp_update_ms": milliseconds(seconds, COMPARED["bp_update"]),
        "total_ms": milliseconds(seconds, COMPARED["total"]),
        "bp_p10_ms": milliseconds(seconds, BP, 10),
        "bp_p90_ms": milliseconds(seconds, BP, 90),
        "total_p10_ms": milliseconds(seconds, COMPARED["total"], 10),
        "total_p90_ms": milliseconds(seconds, COMPARED["total"], 90),
        "bp_materialised_ms": materialised,
        "bp_output_share": None if row.output_share is None else round(row.output_share, 3),
        "bp_gflops": round(flops.at(row.r) / materialised / 1e6, 3),
        "peak_mib": None if row.peak_mib is None else round(row.peak_mib, 2),
        "steps": len(seconds),
        "k_per_layer": row.k_per_layer,
    }


def compared(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows, and how many times less they take than each opponent: None where it is not among them."""
    found = {row["name"]: row for row in rows}
    ratios = {f"vs_{name}": found.get(name) for name in OPPONENTS}
    return [{**row, **{key: speedups(other, row) for key, other in ratios.items()}} for row in rows]


def speedups(opponent: Mapping[str, Any] | None, row: Mapping[str, Any]) -> dict[str, float] | None:
    """How many times less a row takes than an opponent, by phases; None without one."""
    if opponent is None:
        return None
    return {time: round(opponent[f"{time}_ms"] / row[f"{time}_ms"], 4) for time in COMPARED}
