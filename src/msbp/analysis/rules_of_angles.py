"""Rules about the gradient estimation angle over training."""

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from .intervals import mean_interval
from .sources import Angle
from .verdicts import Check, Evidence, Outcome, check
from .wanted import Config

COMMAND = "python -m src.train experiment=angle"


def smaller(config: Config, evidence: Evidence) -> list[Check]:
    """MSBP's angle against SBP's at the same k, seed and step: of all parameters, then of hidden layers."""
    checks = []
    for part, words in (("total", ""), ("hidden", ", hidden layers alone")):
        found = _by_moment(evidence.sources.angles, part)
        for k in sorted({k for _, k, *_ in found}):
            gaps: dict[int, list[float]] = defaultdict(list)
            for (method, at, seed, step), angle in found.items():
                other = found.get(("msbp", at, seed, step))
                if method == "sbp" and at == k and other is not None:
                    gaps[seed].append(other - angle)
            checks.append(_judged(f"k = {k}{words}", gaps, config["share"]))
    return checks or [Check("MNIST", Outcome.OPEN, command=COMMAND)]


def falls_with_k(config: Config, evidence: Evidence) -> list[Check]:
    """The angle at each k against that at the next smaller one."""
    found = _by_moment(evidence.sources.angles)
    checks = []
    for method in ("sbp", "msbp"):
        ks = sorted({k for name, k, *_ in found if name == method})
        for low, high in pairwise(ks):
            gaps: dict[int, list[float]] = defaultdict(list)
            for (name, k, seed, step), angle in found.items():
                other = found.get((method, high, seed, step))
                if name == method and k == low and other is not None:
                    gaps[seed].append(other - angle)
            checks.append(_judged(f"{method.upper()}, k = {high} and {low}", gaps, config["share"]))
    return checks or [Check("MNIST", Outcome.OPEN, command=COMMAND)]


def _by_moment(angles: Sequence[Angle], part: str = "total") -> dict[tuple[str, int, int, int], float]:
    """Degrees by method, k, seed and step; before the first step the memory is empty and both are equal."""
    return {
        (a["config"]["method"], a["k"], a["config"]["seed"], a["step"]): math.degrees(a["angle"][part])
        for a in angles
        if a["step"] > 0
    }


def _judged(name: str, gaps: dict[int, list[float]], share: float) -> Check:
    moments = [gap for seed in gaps for gap in gaps[seed]]
    if not moments:
        return Check(name, Outcome.OPEN, command=COMMAND)
    less = sum(gap < 0 for gap in moments) / len(moments)
    outcome = Outcome.HOLDS if less >= share else Outcome.FAILS if less <= 0.5 else Outcome.OPEN
    means = [sum(seed) / len(seed) for seed in gaps.values()]
    note = f"smaller at {sum(gap < 0 for gap in moments)} of {len(moments)} moments"
    return check(name, outcome, len(gaps), "degrees", mean_interval(means) or means[0], COMMAND, note)
