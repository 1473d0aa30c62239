"""Rules about scores: rows of tables compared over equal seeds."""

from collections.abc import Iterator

import numpy as np

from .evidence import SHARES
from .intervals import bootstrap, mean_interval
from .pairs import common_scores
from .runs import Record
from .tables import Block, Line
from .verdicts import Check, Measured, Outcome, above, check, together
from .wanted import Config


def higher(config: Config, measured: Measured) -> list[Check]:
    """Every MSBP row of the tables against the row of `than` beside it."""
    checks = [
        _gain(block, less, more)
        for block, less, more in settings(config, measured)
    ]  # fmt: skip
    return checks


def recovers(config: Config, measured: Measured) -> list[Check]:
    """What MSBP regains of the score that SBP loses to the baseline."""
    checks = []
    for block, sbp, msbp in settings({**config, "than": "sbp"}, measured):
        base = block.lines[0]
        scores = [[run["test"] for run in line.ours.runs] for line in (base, sbp, msbp)]
        command = together([line.command for line in (base, sbp, msbp)])
        name, n = named(block, msbp), min(map(len, scores))
        if not n:
            checks.append(Check(name, Outcome.OPEN, command=command))
            continue
        share = _share(*(np.asarray(values) for values in scores))
        found = bootstrap(_share, *scores) if n > 1 else None
        outcome = above(found, config["share"])
        value, one = found or float(share), found is None
        checks.append(check(name, outcome, n, "of the loss", value, command, mute=one))
    return checks


def settings(config: Config, measured: Measured) -> Iterator[tuple[Block, Line, Line]]:
    """Each MSBP row with the row of `than` that has its r, or that has none."""
    for name in config["tables"]:
        for block in measured.table(name).blocks:
            for more in block.lines:
                if more.method != "msbp":
                    continue
                less = [line for line in block.lines if line.method == config["than"] and _alike(line, more)]
                yield from ((block, line, more) for line in less[:1])


def _alike(less: Line, more: Line) -> bool:
    if less.setting is None or more.setting is None or less.setting.r is None:
        return True
    return less.setting.r == more.setting.r


def _gain(block: Block, less: Line, more: Line) -> Check:
    first, second = common_scores(less, more)
    gains = [b - a for a, b in zip(first, second, strict=True)]
    command = together([less.command, more.command])
    if not gains:
        return Check(named(block, more), Outcome.OPEN, command=command)
    if not any(gains) and all(map(nothing_dropped, more.ours.runs)):
        note = "nothing was dropped, so the methods are one and the same"
        return check(named(block, more), Outcome.OPEN, len(gains), "points", 0.0, command, note, mute=True)
    found = mean_interval(gains)
    value, one = found or gains[0], found is None
    return check(named(block, more), above(found, 0), len(gains), "points", value, command, mute=one)


def nothing_dropped(run: Record) -> bool:
    """Whether its sparse layers propagated all; False where the record does not say."""
    return bool(run.get("dropped_fraction")) and not SHARES["dropped_norm"](run)


def named(block: Block, line: Line) -> str:
    """How a check calls its setting."""
    return f"{block.title}: {line.label.removeprefix('+ ')}"


def _share(base: np.ndarray, sbp: np.ndarray, msbp: np.ndarray) -> np.ndarray:
    lost, regained = base.mean(axis=-1) - sbp.mean(axis=-1), msbp.mean(axis=-1) - sbp.mean(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):  # nothing lost: nothing to regain
        return np.where(lost > 0, regained / lost, 0.0)
