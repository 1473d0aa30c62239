"""The rules that decide claims, setting by setting: numbers in, checks out, nothing of their presentation."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from .benchmarks import Result, whole_pass
from .benchmarks import command as command_of
from .benchmarks import name as name_of
from .checks import Check, Measured, Outcome, above, below, check, together
from .figures import swept, timed
from .grid import SBP, gather, scores
from .render import digits
from .runs import missing_commands
from .settings import Config, rows_of
from .statistics import (
    LEVEL,
    Interval,
    Tested,
    Values,
    bootstrap,
    brown_forsythe,
    f_ratio,
    holm,
    line_of,
    mean_interval,
    pooled_t,
    slope,
    welch_t,
)
from .tables import Table

BENCHMARKED = {"bp_ms": "BP (ms)", "total_ms": "Total (ms)", "peak_mib": "memory (MiB)"}
ANGLES = "python -m src.train experiment=angle"


@dataclass(frozen=True)
class Pair:
    """An MSBP row of a table with the row beside it that it is compared with, and their block's baseline."""

    table: Table
    first: int
    less: int
    more: int

    @property
    def name(self) -> str:
        rows = self.table.rows
        return f"{rows.title[self.more]}: {rows.label[self.more].removeprefix('+ ')}"

    def command(self, *rows: int) -> str:
        """Return the command that runs these rows."""
        return together([self.table.rows.command[row] for row in rows])


def pairs(config: Config, measured: Measured, than: str) -> Iterator[Pair]:
    """Yield each MSBP row with the row of that method that has its r, or that has none."""
    for name in config["tables"]:
        table = measured.table(name)
        for _, block in table.rows.groupby("block"):
            for more in block.index[block.method == "msbp"]:
                alike = block[(block.method == than) & (block.r.isna() | (block.r == block.r[more]))]
                yield from (Pair(table, block.index[0], less, more) for less in alike.index[:1])


def higher(config: Config, measured: Measured) -> list[Check]:
    """Every MSBP row of the tables against the row of `than` beside it."""
    return [gain(pair) for pair in pairs(config, measured, config["than"])]


def gain(pair: Pair) -> Check:
    both, command = pair.table.common(pair.less, pair.more), pair.command(pair.less, pair.more)
    gains = both[pair.more] - both[pair.less]
    if gains.empty:
        return Check(pair.name, Outcome.OPEN, command=command)
    runs = pair.table.runs[pair.table.runs.row == pair.more]
    if not gains.any() and (runs.dropped_norm == 0).all():
        note = "nothing was dropped, so the methods are one and the same"
        return check(pair.name, Outcome.OPEN, len(gains), "points", 0.0, command, note, excluded=True)
    found = mean_interval(gains)
    value = found or gains.iloc[0]
    return check(pair.name, above(found, 0), len(gains), "points", value, command, excluded=found is None)


def recovers(config: Config, measured: Measured) -> list[Check]:
    """The share that MSBP regains of the score that SBP loses to the baseline."""
    checks = []
    for pair in pairs(config, measured, "sbp"):
        rows = pair.first, pair.less, pair.more
        values, command = [pair.table.values(row).to_numpy() for row in rows], pair.command(*rows)
        n = min(map(len, values))
        if not n:
            checks.append(Check(pair.name, Outcome.OPEN, command=command))
            continue
        found = bootstrap(regained, *values) if n > 1 else None
        value = found or float(regained(*values))
        outcome = above(found, config["share"])
        checks.append(check(pair.name, outcome, n, "of the loss", value, command, excluded=found is None))
    return checks


def regained(base: np.ndarray, sbp: np.ndarray, msbp: np.ndarray) -> np.ndarray:
    lost, more = base.mean(axis=-1) - sbp.mean(axis=-1), msbp.mean(axis=-1) - sbp.mean(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):  # nothing lost: nothing to regain
        return np.where(lost > 0, more / lost, 0.0)


def acceleration(config: Config, measured: Measured) -> list[Check]:
    """MSBP's speed-up of BP over the baseline as a share of SBP's."""
    checks = []
    for pair in pairs(config, measured, "sbp"):
        rows = pair.first, pair.less, pair.more
        base, sbp, msbp = (positive(pair.table.values(row, "bp_s")) for row in rows)
        n, command = min(len(base), len(sbp), len(msbp)), pair.command(*rows)
        if not n:
            checks.append(Check(pair.name, Outcome.OPEN, command=command, note=why_untimed(pair, "bp_s")))
            continue
        gain, share = ratio(base, msbp), ratio(sbp, msbp)
        outcomes = {above(gain, 1), above(share, config["share"])}
        outcome = next((o for o in (Outcome.FAILS, Outcome.OPEN) if o in outcomes), Outcome.HOLDS)
        note = f"{share.estimate:.2f} of SBP's speed-up"
        checks.append(check(pair.name, outcome, n, "×", gain if n > 1 else gain.estimate, command, note))
    return checks


def overhead(config: Config, measured: Measured) -> list[Check]:
    """How much longer MSBP takes than SBP: its backward pass, with the update, and all of training."""
    checks = []
    for pair in pairs(config, measured, "sbp"):
        command = pair.command(pair.less, pair.more)
        for column, label in (("bp_s", "BP"), ("total_s", "Total")):
            msbp, sbp = (positive(pair.table.values(row, column)) for row in (pair.more, pair.less))
            name, n = f"{pair.name}: {label}", min(len(msbp), len(sbp))
            if not n:
                checks.append(Check(name, Outcome.OPEN, command=command, note=why_untimed(pair, column)))
                continue
            more = less_one(ratio(msbp, sbp))
            outcome = below(more, config["limit"]) if n > 1 else Outcome.OPEN
            value = more if n > 1 else more.estimate
            checks.append(check(name, outcome, n, "more", value, command, excluded=n == 1))
    for result in measured.sources.benchmarks:
        checks += benchmarked(result, config["limit"])
    return checks


def benchmarked(result: Result, limit: float) -> list[Check]:
    """What MSBP costs above SBP in a whole case alone, by medians over steps; none without both rows."""
    partial = result["sweep"] or result["threads"] > 1 or result.get("settings")
    rows = {} if partial else {row["name"]: row for row in result["rows"]}
    checks = []
    for column, label in BENCHMARKED.items() if rows.keys() >= {"sbp", "msbp"} else ():
        sbp, msbp = rows["sbp"][column], rows["msbp"][column]
        if not sbp or msbp is None or (column == "bp_ms" and not whole_pass(result)):
            continue
        name, more = f"benchmark {name_of(result)}: {label}", msbp / sbp - 1
        outcome = Outcome.HOLDS if more <= limit else Outcome.FAILS
        n, note = rows["msbp"]["steps"], f"{digits(msbp)} against {digits(sbp)}"
        checks.append(check(name, outcome, n, "more", more, command_of(result), note))
    return checks


def positive(seconds: pd.Series) -> np.ndarray:
    return seconds[seconds > 0].to_numpy()


def why_untimed(pair: Pair, column: str) -> str:
    """Return why runs that exist have no times to compare."""
    remarks = (pair.table.remarks.get((row, column), []) for row in pair.table.block(pair.more).index)
    return next((r for each in remarks for r in each if r.startswith(("no times", "BP is not"))), "")


def ratio(above: np.ndarray, below: np.ndarray) -> Interval:
    """Mean of above as a multiple of that of below; a single run's interval is its estimate."""
    return bootstrap(lambda a, b: a.mean(axis=-1) / b.mean(axis=-1), above, below)


def less_one(ratio: Interval) -> Interval:
    return Interval(ratio.estimate - 1, ratio.low - 1, ratio.high - 1)


def proportional(config: Config, measured: Measured) -> list[Check]:
    """The slope of log BP time by log k, for SBP and for MSBP."""
    low, high = config["slopes"]
    result = swept(config, measured.sources)
    if result and not whole_pass(result):
        result = None
    command = next(iter(missing_commands(config, measured.sources)), "python -m src.bench case=mnist sweep=k")
    checks = []
    for name in ("sbp", "msbp"):
        line = timed(result, name) if result else pd.DataFrame({"x": [], "y": []})
        line = line[(line.x > 0) & (line.x <= config["largest"]) & (line.y > 0)]
        if len(line) < 3:
            checks.append(Check(name.upper(), Outcome.OPEN, command=command))
            continue
        found = slope(line.x, line.y)
        inside, outside = low <= found.low and found.high <= high, found.high < low or found.low > high
        outcome = Outcome.HOLDS if inside else Outcome.FAILS if outside else Outcome.OPEN
        at_0, each, r2 = line_of(line.x, line.y)
        note = f"{at_0:.3f} ms + {each:.4f} ms for each of k, R² = {r2:.3f}"
        checks.append(check(name.upper(), outcome, len(line), "", found, command, note))
    return checks


Test = Callable[[Values, Values], Tested | None]


def improves(config: Config, measured: Measured) -> list[Check]:
    """The paper's t-tests."""
    return rejections(config, measured, pooled_t, "Welch's", welch_t)


def steadies(config: Config, measured: Measured) -> list[Check]:
    """The paper's F-tests."""
    return rejections(config, measured, f_ratio, "Brown-Forsythe's", brown_forsythe)


def rejections(config: Config, measured: Measured, test: Test, robust_name: str, robust: Test) -> list[Check]:
    grid, runs = config["grid"], gather(config["grid"], measured.sources)
    places = [(k, gamma) for k in grid["sparse"] for gamma in grid["gamma"]]
    values = [(scores(runs, k, SBP), scores(runs, k, gamma)) for k, gamma in places]
    found = {place: t for place, pair in zip(places, values, strict=True) if (t := test(*pair))}
    sturdy = [t for pair in values if (t := robust(*pair))]
    missing = len(places) - len(found)
    name = f"{len(found)} of {len(places)} cells" if missing else f"all {len(places)} cells"
    if not found:
        return [Check(name, Outcome.OPEN, command=grid["command"])]
    share, n = float(np.mean([t.rejects for t in found.values()])), min(min(t.n) for t in found.values())
    outcome = Outcome.OPEN
    if not missing and n >= config["runs"]:
        outcome = Outcome.HOLDS if share >= config["share"] else Outcome.FAILS
    by_k = {k: [t.rejects for (at, _), t in found.items() if at == k] for k in grid["sparse"]}
    counts = [f"k = {k}: {sum(row)} of {len(row)}" for k, row in by_k.items()]
    after, other = (sum(p < LEVEL for p in holm([t.p for t in each])) for each in (found.values(), sturdy))
    note = (
        f"{', '.join(counts)}; after Holm {after}, by {robust_name} test after Holm {other} of {len(found)}"
    )
    return [check(name, outcome, n, "of the cells", share, grid["command"], note)]


def insensitive(config: Config, measured: Measured) -> list[Check]:
    """The range of MSBP's means over γ, as a share of its mean gain over SBP."""
    grid, runs = config["grid"], gather(config["grid"], measured.sources)
    checks = []
    for k in grid["sparse"]:
        values = [scores(runs, k, gamma) for gamma in (SBP, *grid["gamma"])]
        n = min(map(len, values))
        found = bootstrap(sensitivity, *values) if n > 1 else None
        outcome = below(found, config["limit"]) if found else Outcome.OPEN
        checks.append(check(f"k = {k}", outcome, n if found else 0, "of the gain", found, grid["command"]))
    return checks


def sensitivity(sbp: np.ndarray, *msbp: np.ndarray) -> np.ndarray:
    means = np.stack([values.mean(axis=-1) for values in msbp])
    gain = means.mean(axis=0) - sbp.mean(axis=-1)
    return np.where(gain > 0, np.ptp(means, axis=0) / np.where(gain > 0, gain, 1), np.inf)


def smaller_angle(config: Config, measured: Measured) -> list[Check]:
    """MSBP's angle against SBP's at the same k, seed and step: of all parameters, then of hidden layers."""
    checks = []
    angles = shown_angles(config, measured)
    for part, words in (("total", ""), ("hidden", ", hidden layers alone")):
        for k, rows in angles.groupby("k"):
            wide = rows.pivot(index=["seed", "step"], columns="method", values=part)
            gaps = (wide.get("msbp", np.nan) - wide.get("sbp", np.nan)).dropna()
            checks.append(judged(f"k = {k}{words}", gaps, config["share"]))
    return checks or [Check("MNIST", Outcome.OPEN, command=ANGLES)]


def angle_by_k(config: Config, measured: Measured) -> list[Check]:
    """The angle at each k against that at the next smaller one."""
    checks = []
    for method, rows in shown_angles(config, measured).groupby("method", sort=False):
        wide = rows.pivot(index=["seed", "step"], columns="k", values="total")
        for low, high in pairwise(sorted(wide)):
            gaps = (wide[high] - wide[low]).dropna()
            checks.append(judged(f"{method.upper()}, k = {high} and {low}", gaps, config["share"]))
    return checks or [Check("MNIST", Outcome.OPEN, command=ANGLES)]


def shown_angles(config: Config, measured: Measured) -> pd.DataFrame:
    """Return the angles of the claim's figures in degrees; before the first step all are equal."""
    rows = [row for name in config["figures"] for row in rows_of(measured.figures[name])]
    angles = pd.concat([measured.sources.angles_of(row.overrides) for row in rows])
    angles = angles[angles.step > 0].astype({"total": float, "hidden": float})
    return angles.assign(total=np.degrees(angles.total), hidden=np.degrees(angles.hidden))


def judged(name: str, gaps: pd.Series, share: float) -> Check:
    if gaps.empty:
        return Check(name, Outcome.OPEN, command=ANGLES)
    smaller = int((gaps < 0).sum())
    less = smaller / len(gaps)
    outcome = Outcome.HOLDS if less >= share else Outcome.FAILS if less <= 0.5 else Outcome.OPEN
    means = gaps.groupby("seed").mean()
    note = f"smaller at {smaller} of {len(gaps)} measurements"
    value = mean_interval(means) or float(means.iloc[0])
    return check(name, outcome, len(means), "degrees", value, ANGLES, note)
