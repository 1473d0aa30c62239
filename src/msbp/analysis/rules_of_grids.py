"""Rules about the grid of k and γ on MNIST."""

from collections.abc import Callable

import numpy as np

from .grids import adjusted, gather
from .intervals import bootstrap
from .statistics import LEVEL, Tested, brown_forsythe, f_ratio, pooled_t, welch_t
from .verdicts import Check, Measured, Outcome, below, check
from .wanted import Config

Compared = Callable[[list[float], list[float]], Tested | None]


def improves(config: Config, measured: Measured) -> list[Check]:
    """The paper's t-tests."""
    return _rejections(config, measured, pooled_t, "Welch's", welch_t)


def steadies(config: Config, measured: Measured) -> list[Check]:
    """The paper's F-tests."""
    return _rejections(config, measured, f_ratio, "Brown-Forsythe's", brown_forsythe)


def insensitive(config: Config, measured: Measured) -> list[Check]:
    """The range of MSBP's means over γ, as a share of its mean gain over SBP."""
    cells, command = gather(config["grid"], measured.sources), config["grid"]["command"]
    checks = []
    for k in cells.sparse:
        scores = [cells.scores(k, gamma) for gamma in (0.0, *cells.gammas)]
        n = min(map(len, scores))
        found = bootstrap(_sensitivity, *scores) if n > 1 else None
        outcome = below(found, config["limit"]) if found else Outcome.OPEN
        checks.append(check(f"k = {k}", outcome, n if found else 0, "of the gain", found, command))
    return checks


def _sensitivity(sbp: np.ndarray, *msbp: np.ndarray) -> np.ndarray:
    means = np.stack([scores.mean(axis=-1) for scores in msbp])
    gain = means.mean(axis=0) - sbp.mean(axis=-1)
    return np.where(gain > 0, np.ptp(means, axis=0) / np.where(gain > 0, gain, 1), np.inf)


def _rejections(
    config: Config, measured: Measured, test: Compared, robust_name: str, robust: Compared
) -> list[Check]:
    cells, command = gather(config["grid"], measured.sources), config["grid"]["command"]
    places = [(k, gamma) for k, gamma, *_ in cells.pairs()]
    tests, sturdy = ([each(sbp, msbp) for *_, sbp, msbp in cells.pairs()] for each in (test, robust))
    found = {place: test for place, test in zip(places, tests, strict=True) if test}
    missing = len(places) - len(found)
    name = f"{len(found)} of {len(places)} cells" if missing else f"all {len(places)} cells"
    if not found:
        return [Check(name, Outcome.OPEN, command=command)]
    share, n = (
        sum(test.rejects for test in found.values()) / len(found),
        min(min(t.n) for t in found.values()),
    )
    outcome = Outcome.OPEN
    if not missing and n >= config["runs"]:
        outcome = Outcome.HOLDS if share >= config["share"] else Outcome.FAILS
    by_k = [[test.rejects for (at, _), test in found.items() if at == k] for k in cells.sparse]
    told = [f"k = {k}: {sum(row)} of {len(row)}" for k, row in zip(cells.sparse, by_k, strict=True)]
    after, other = (sum(p is not None and p < LEVEL for p in adjusted(each)) for each in (tests, sturdy))
    note = f"{', '.join(told)}; after Holm {after}, by {robust_name} test after Holm {other} of {len(found)}"
    return [check(name, outcome, n, "of the cells", share, command, note)]
