"""What several seeds of one setting say together, and how two settings compare."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Summary:
    """Mean and sample standard deviation of n runs; one run has no deviation."""

    mean: float
    sd: float | None = None
    n: int = 1


def summarize(values: Sequence[float]) -> Summary:
    """Mean and standard deviation (n - 1 in the denominator) of the runs' values, in their own unit."""
    runs = np.asarray(values, dtype=float)
    return Summary(float(runs.mean()), float(runs.std(ddof=1)) if runs.size > 1 else None, runs.size)


def speedup(baseline: Summary, other: Summary) -> float:
    """How many times less time than the baseline; below 1 is slower."""
    return baseline.mean / other.mean


def delta(baseline: Summary, other: Summary) -> float:
    """Points above the baseline."""
    return other.mean - baseline.mean
