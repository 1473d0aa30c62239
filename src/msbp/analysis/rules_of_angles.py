"""Rules about the gradient estimation angle over training."""

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from .intervals import mean_interval
from .sources import Angle
from .verdicts import Check, Measured, Outcome, check
from .wanted import Config, asked_by

Moments = dict[tuple[str, int, int, int], float]
COMMAND = "python -m src.train experiment=angle"


def smaller(config: Config, measured: Measured) -> list[Check]:
    """MSBP's angle against SBP's at the same k, seed and step: of all parameters, then of hidden layers."""
    checks = []
    for part, words in (("total", ""), ("hidden", ", hidden layers alone")):
        found = _by_moment(_shown(config, measured), part)
        for k in sorted({k for _, k, *_ in found}):
            gaps = _gaps(found, ("sbp", k), ("msbp", k))
            checks.append(_judged(f"k = {k}{words}", gaps, config["share"]))
    return checks or [Check("MNIST", Outcome.OPEN, command=COMMAND)]


def falls_with_k(config: Config, measured: Measured) -> list[Check]:
    """The angle at each k against that at the next smaller one."""
    found = _by_moment(_shown(config, measured))
    checks = []
    for method in ("sbp", "msbp"):
        ks = sorted({k for name, k, *_ in found if name == method})
        for low, high in pairwise(ks):
            gaps = _gaps(found, (method, low), (method, high))
            checks.append(_judged(f"{method.upper()}, k = {high} and {low}", gaps, config["share"]))
    return checks or [Check("MNIST", Outcome.OPEN, command=COMMAND)]


def _shown(config: Config, measured: Measured) -> list[Angle]:
    """The angles of what the claim's figures ask for: others may be of another task or γ."""
    asked = [asked for name in config["figures"] for asked in asked_by(measured.figures[name])]
    return [angle for each in asked for angle in measured.sources.angles_of(each.overrides)]


def _by_moment(angles: Sequence[Angle], part: str = "total") -> Moments:
    """Degrees by method, k, seed and step; before the first step the memory is empty and both are equal."""
    return {
        (a["config"]["method"], a["k"], a["config"]["seed"], a["step"]): math.degrees(a["angle"][part])
        for a in angles
        if a["step"] > 0
    }


def _gaps(found: Moments, one: tuple[str, int], other: tuple[str, int]) -> dict[int, list[float]]:
    """By seed, how far angles of the other method and k exceed those of the one, where both were measured."""
    gaps: dict[int, list[float]] = defaultdict(list)
    for (method, k, seed, step), angle in found.items():
        if (method, k) == one and (*other, seed, step) in found:
            gaps[seed].append(found[*other, seed, step] - angle)
    return gaps


def _judged(name: str, gaps: dict[int, list[float]], share: float) -> Check:
    moments = [gap for seed in gaps for gap in gaps[seed]]
    if not moments:
        return Check(name, Outcome.OPEN, command=COMMAND)
    less = sum(gap < 0 for gap in moments) / len(moments)
    outcome = Outcome.HOLDS if less >= share else Outcome.FAILS if less <= 0.5 else Outcome.OPEN
    means = [sum(seed) / len(seed) for seed in gaps.values()]
    note = f"smaller at {sum(gap < 0 for gap in moments)} of {len(moments)} moments"
    return check(name, outcome, len(gaps), "degrees", mean_interval(means) or means[0], COMMAND, note)
