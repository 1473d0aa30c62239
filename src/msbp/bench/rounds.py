"""Rows in turns, so that the drift of a machine's clock falls on all of them alike."""

import time
from collections.abc import Callable, Sequence

import numpy as np

from .rows import Row

AT_LEAST = 3  # rounds


def interleave(
    rows: Sequence[Row], block: int, settle: int, seconds: float, done: Callable[[float], None], **how: bool
) -> tuple[dict[str, np.ndarray], float]:
    """Every row makes `block` steps in its turn, again and again; the first `settle` of a turn are not kept.

    Returns each row's seconds (steps, phases) by name, and the processor time used per second of wall time.
    done: called after each round with the part of the work that is behind. how: for Row.steps.
    """
    kept: dict[str, list[np.ndarray]] = {row.name: [] for row in rows}
    wall, processor, turn = time.perf_counter(), time.process_time(), 0
    spent = 0.0
    while turn < AT_LEAST or spent < seconds:
        first = turn % len(rows)  # another row opens each round
        for row in (*rows[first:], *rows[:first]):
            kept[row.name].append(row.steps(block, **how)[settle:])
        turn, spent = turn + 1, time.perf_counter() - wall
        done(min(turn / AT_LEAST, spent / seconds if seconds else 1.0))
    share = (time.process_time() - processor) / spent
    return {name: np.concatenate(parts) for name, parts in kept.items()}, share
