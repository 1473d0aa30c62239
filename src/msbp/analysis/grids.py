"""Runs by k and γ, as the paper's figures and tests of both have them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .intervals import Interval, bootstrap
from .runs import Record
from .sources import Sources
from .statistics import Tested, holm
from .wanted import Config, cells

Place = tuple[int | None, float | None]
BASELINE: Place = (None, None)
SBP = 0.0  # the γ of SBP


@dataclass
class Cells:
    """The runs at every k and γ of a grid: SBP at γ = 0, the baseline at (None, None)."""

    sparse: list[int]
    gammas: list[float]
    seeds: int
    runs: dict[Place, list[Record]]

    def scores(self, k: int | None, gamma: float | None) -> list[float]:
        return [run["test"] for run in self.runs[k, gamma]]

    def pairs(self) -> Iterator[tuple[int, float, list[float], list[float]]]:
        """Each k and γ with the scores of SBP and of MSBP."""
        for k in self.sparse:
            for gamma in self.gammas:
                yield k, gamma, self.scores(k, SBP), self.scores(k, gamma)

    def used(self) -> list[Record]:
        return [run for runs in self.runs.values() for run in runs]


def gather(grid: Config, sources: Sources) -> Cells:
    """The records of a grid of conf/grid."""
    found = {}
    for place, asked in cells(grid).items():
        setting = sources.settle(asked.overrides)
        found[place] = sources.runs.of(setting.signature) if setting else []
    return Cells(list(grid["sparse"]), list(grid["gamma"]), grid["seeds"], found)


def adjusted(tests: list[Tested | None]) -> list[float | None]:
    """Holm's p of the tests that there are."""
    ps = iter(holm([test.p for test in tests if test]))
    return [next(ps) if test else None for test in tests]


def spread_ratio(wide: list[float], narrow: list[float]) -> Interval | None:
    """How many times the standard deviation of wide is that of narrow."""
    if min(len(wide), len(narrow)) < 2 or np.ptp(narrow) == 0:
        return None

    def ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        above, below = a.std(axis=-1, ddof=1), b.std(axis=-1, ddof=1)
        return np.where(above == below, 1.0, above / below)  # a resample may repeat one run, in both

    with np.errstate(divide="ignore", invalid="ignore"):
        return bootstrap(ratio, wide, narrow)
