"""Rules of claims: the effect that each claim is about, setting by setting.

A rule is a function that a file of conf/claim names; it yields `Setting`s, which
`verdicts` pools by family. Effects of times are differences of logarithms.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pandas as pd
from scipy import stats

from ..measurements import Result, by_default
from .benchmarks import command as command_of
from .benchmarks import frame, whole_pass
from .benchmarks import name as name_of
from .runs import BASELINE, SBP, Sources, gather
from .settings import Config, benchmark_command, grid_command, rows_of, source_of, together
from .significance import Tested, f_ratio, welch_t
from .tables import Table, fill
from .verdicts import FAMILIES, LEAST, LEVEL, Setting, counts, family_of, holm, jackknife, log_slope

SHORT = "trained for fewer epochs than the paper"
SAME = "nothing was dropped, so the methods are one and the same"
BENCHMARK = "benchmark "
SINGLE = "one measurement, without a variance"
BENCHMARKED = "the benchmark of this network counts in its place"
ANGLES = "python -m src.train experiment=angle"
Network = tuple[str, frozenset[str]]


@dataclass(frozen=True)
class Measured:
    """The sources, and the configuration of tables and figures by name."""

    sources: Sources
    configs: Mapping[str, Config]


@dataclass(frozen=True)
class Pair:
    """A row of a table with the row beside it that it is compared with, and their block's first row."""

    table: Table
    first: int
    less: int
    more: int

    def setting(self, values: pd.Series, rows: Sequence[int]) -> Setting:
        """Return the setting of this pair, whose effect has these values."""
        about = self.table.rows.loc[self.more]
        short = SHORT if any("trainer.epochs=" in word for word in about["shared"]) else ""
        return Setting(
            family_of(about.task), f"{about.title}: {about.label.removeprefix('+ ')}",
            together([self.table.rows.command[row] for row in rows]), f"{self.table.name} {about.task}",
            values, n=len(values), excluded=short,
        )  # fmt: skip


def pairs(config: Config, measured: Measured) -> Iterator[Pair]:
    """Yield each row of the method `of` (MSBP) with the row of `than` that has its r, or that has none."""
    for name in config["tables"]:
        table = fill(measured.configs[name], measured.sources)
        for _, block in table.rows.groupby("block"):
            for more in block.index[block.method == config.get("of", "msbp")]:
                alike = block[block.method == config["than"]].drop(more, errors="ignore")
                alike = alike[alike.r.isna() | (alike.r == block.r[more])]
                yield from (Pair(table, block.index[0], less, more) for less in alike.index[:1])


def scores_of_rows(config: Config, measured: Measured) -> Iterator[Setting]:
    """Yield the difference of scores, run by run of equal seeds."""
    for pair in pairs(config, measured):
        both = pair.table.common(pair.less, pair.more)
        gains = both[pair.more] - both[pair.less]
        runs = pair.table.runs[pair.table.runs.row == pair.more]
        same = len(gains) and not gains.any() and (runs.dropped_norm == 0).all()
        printed = pair.table.rows.get("paper_score")
        paper = None if printed is None else printed[pair.more] - printed[pair.less]
        setting = pair.setting(gains, (pair.less, pair.more))
        yield replace(setting, paper=paper, excluded=SAME if same else setting.excluded)


def regained(config: Config, measured: Measured) -> Iterator[Setting]:
    """Yield the share that MSBP regains of the score that SBP loses to the baseline."""
    for pair in pairs(config, measured):
        rows = pair.first, pair.less, pair.more
        values = pair.table.common(*rows)
        base, sbp, msbp = (pair.table.rows.paper_score[row] for row in rows)
        share = pseudo_values(share_regained, values)
        yield replace(pair.setting(share, rows), paper=(msbp - sbp) / (base - sbp))


def share_regained(scores: np.ndarray) -> float:
    """Return (MSBP - SBP) / (baseline - SBP) of mean scores in the order baseline, SBP, MSBP."""
    base, sbp, msbp = scores.mean(axis=0)
    return float((msbp - sbp) / (base - sbp)) if base != sbp else 0.0


def pseudo_values(statistic: Callable[[np.ndarray], float], runs: pd.DataFrame) -> pd.Series:
    """Return the jackknife's values by seed; of a single run the statistic itself."""
    values = runs.to_numpy(dtype=float)
    estimates = jackknife(statistic, values) if len(runs) > 1 else [statistic(run[None]) for run in values]
    return pd.Series(estimates, runs.index, dtype=float)


def times(config: Config, measured: Measured) -> Iterator[Setting]:
    """Yield the log ratio of seconds, run by run of equal seeds, and of benchmarks by repetition.

    A network counts once: by its benchmark where that has enough repetitions, else by whole runs.
    """
    column, steps = config["column"], list(steps_of(config, measured))
    timed = {network for network, step in steps if counts(step, config.get("least", LEAST))}
    for pair in pairs(config, measured):
        both = pair.table.common(pair.less, pair.more, column=column)
        both = np.log(both[(both > 0).all(axis=1)])
        printed = pair.table.rows.get(f"paper_{column}")
        paper = None if printed is None else np.log(printed[pair.more] / printed[pair.less])
        remarks = pair.table.remarks.get((pair.more, column), [])
        note = "" if len(both) else "; ".join(r for r in remarks if r.startswith(("no times", "BP is not")))
        setting = pair.setting(both[pair.more] - both[pair.less], (pair.less, pair.more))
        row = pair.table.rows.loc[pair.more]
        excluded = setting.excluded or BENCHMARKED * (network_of(row.task, row["shared"]) in timed)
        yield replace(setting, paper=paper, note=note, excluded=excluded)
    yield from (step for _, step in steps)


def network_of(task: str, overrides: Sequence[str]) -> Network:
    """Return what tells networks apart that are timed: the task without its corpus, words on the model."""
    stems = (stem for every in FAMILIES.values() for stem in every if task.startswith(stem))
    return next(stems, task), frozenset(word for word in overrides if word.startswith("model"))


def steps_of(config: Config, measured: Measured) -> Iterator[tuple[Network, Setting]]:
    """Yield the setting of each benchmark after its network."""
    of, than = config.get("of", "msbp"), "dense" if config["than"] == "baseline" else config["than"]
    ms = f"{config['column'].removesuffix('_s')}_ms"
    for result in measured.sources.benchmarks:
        if by_default(result) and not result["sweep"] and (ms != "bp_ms" or whole_pass(result)):
            same = SAME if result["case"] in config.get("nothing_dropped", ()) else ""
            words = result.get("overrides", ())
            task = next((word[len("task=") :] for word in words if word.startswith("task=")), result["case"])
            for step in benchmarked(result, of, than, ms, same):
                yield network_of(task, words), step


def benchmarked(result: Result, of: str, than: str, ms: str, excluded: str = "") -> Iterator[Setting]:
    """Yield the log ratio of two rows of a benchmark, repetition by repetition where it has several."""
    repetitions = result.get("repetitions") or [result]
    named = [{row["name"]: row for row in each["rows"]} for each in repetitions]
    known = family_of(result["case"]) in FAMILIES  # the example of the README is no network of the paper
    if known and all({of, than} <= rows.keys() for rows in named):
        ratios = pd.Series([float(np.log(rows[of][ms] / rows[than][ms])) for rows in named])
        name = f"{BENCHMARK}{name_of(result)}"
        why = SINGLE if len(ratios) == 1 else excluded
        # A group of its own: repetitions of two benchmarks share nothing, though they have the same numbers.
        yield Setting(
            family_of(result["case"]), name, command_of(result), name, ratios, n=len(ratios), excluded=why
        )


def gains_over_gamma(config: Config, measured: Measured) -> Iterator[Setting]:
    """Yield for each k MSBP's gain over SBP, the mean over all γ, run by run of equal seeds."""
    for k, sbp, msbp in by_k(config, measured):
        gains = msbp.sub(sbp, axis=0).dropna()
        tests = [welch_t(sbp.dropna(), msbp[gamma].dropna()) for gamma in msbp]
        yield tested(grid_setting(config, k, gains.mean(axis=1)), "Welch's", tests)


def tested(setting: Setting, name: str, tests: Sequence[Tested | None]) -> Setting:
    """Return a setting with the p of its tests, one for each γ, and a note on how many of them reject.

    A cell without a test has p = 1, since it rejects nothing.
    """
    ps = [test.p if test else 1.0 for test in tests]
    below, by_holm = (sum(p < LEVEL for p in each) for each in (ps, holm(ps)))
    note = f"{name} p is below 5 % at {below} of {len(tests)} γ, by Holm over these at {by_holm}"
    return replace(setting, ps=ps, note=note)


def sensitivity(config: Config, measured: Measured) -> Iterator[Setting]:
    """Yield for each k how much means differ between γ, as a share of the mean gain over SBP."""
    for k, sbp, msbp in by_k(config, measured):
        values = pd.concat([sbp.rename(SBP), msbp], axis=1).dropna()
        shares = defined_values(share_of_gain, values)
        note = "no gain over SBP, so no share of it" if len(values) > 2 and shares.empty else ""
        yield replace(grid_setting(config, k, shares), note=note)


def share_of_gain(scores: np.ndarray) -> float:
    """Return the standard deviation of MSBP's means over γ, without what runs alone cause, by its gain.

    scores: by seed, of SBP and then of MSBP at each γ; a seed's runs at all γ have a part in common.
    """
    sbp, msbp = scores[:, 0], scores[:, 1:]
    n, gammas = msbp.shape
    residuals = msbp - msbp.mean(axis=1, keepdims=True) - msbp.mean(axis=0) + msbp.mean()
    error = (residuals**2).sum() / ((n - 1) * (gammas - 1)) / n
    spread = max(float(msbp.mean(axis=0).var(ddof=1)) - error, 0.0) ** 0.5
    gain = float(msbp.mean() - sbp.mean())
    return spread / gain if gain > 0 else np.inf


def deviations(config: Config, measured: Measured) -> Iterator[Setting]:
    """Yield for each k the log ratio of standard deviations between runs, SBP's by that of MSBP at all γ."""
    printed = measured.configs[config["paper_table"]]["paper"]
    for k, sbp, msbp in by_k(config, measured):
        paper = float(np.mean(np.log(printed[k]))) / 2 if k in printed else None
        values = pd.concat([sbp.rename(SBP), msbp], axis=1).dropna()
        ratios = defined_values(log_spread_ratio, values)
        tests = [f_ratio(sbp.dropna(), msbp[gamma].dropna()) for gamma in msbp]
        yield tested(replace(grid_setting(config, k, ratios), paper=paper), "F's", tests)


def defined_values(statistic: Callable[[np.ndarray], float], runs: pd.DataFrame) -> pd.Series:
    """Return the jackknife's values by seed of three or more; none where the statistic is not defined.

    That is the ratio of deviations of equal scores, and the share of a gain that is none.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        values = pseudo_values(statistic, runs if len(runs) > 2 else runs[:0])
    return values if np.isfinite(values).all() else values[:0]


def log_spread_ratio(scores: np.ndarray) -> float:
    """Return the log of the standard deviation of the first column, by that which the others share."""
    first, *others = np.var(scores, axis=0, ddof=1)
    return float(np.log(first / np.mean(others))) / 2


def deviation_of_sbp(config: Config, measured: Measured) -> Iterator[Setting]:
    """Yield for each k the log ratio of standard deviations between runs, SBP's by the baseline's."""
    runs = gather(config["grid"], measured.sources)
    base = runs[runs.gamma == BASELINE].set_index("seed").test
    for k, sbp, _ in by_k(config, measured):
        values = pd.concat([sbp, base], axis=1, keys=["sbp", "baseline"]).dropna()
        ratios = defined_values(log_spread_ratio, values)
        setting = grid_setting(config, k, ratios, "baseline")
        yield replace(setting, paper=float(np.log(config["paper"])))


def by_k(config: Config, measured: Measured) -> Iterator[tuple[int, pd.Series, pd.DataFrame]]:
    """Yield k, SBP's scores by seed, and MSBP's by seed and γ."""
    runs = gather(config["grid"], measured.sources)
    runs = runs[runs.gamma != BASELINE]
    for k in config["grid"]["sparse"]:
        wide = runs[runs.k == k].pivot(index="seed", columns="gamma", values="test")
        wide = wide.reindex(columns=[SBP, *config["grid"]["gamma"]])
        yield k, wide[SBP], wide.drop(columns=SBP)


def grid_setting(config: Config, k: int, values: pd.Series, other: str = "msbp") -> Setting:
    """Return the setting of one k of the grid, a family of its own where the claim is judged by k.

    other: the method that SBP is compared with. The runs of all k start from the same seeds, so that they are
    one group.
    """
    family, runs = f"k = {k}" if config.get("by_k") else "MLPs", grid_command(config["grid"], k, other)
    return Setting(family, f"MNIST: k = {k}", runs, "grid", values, n=len(values))


def angle_of_methods(config: Config, measured: Measured) -> Iterator[Setting]:
    """Yield MSBP's angle minus SBP's at the same k in degrees, the mean over a run."""
    for part, family in (("total", "all parameters"), ("hidden", "hidden layers alone")):
        wide = angles(config, measured, part)
        for k in wide.columns.unique("k"):
            gap = column(wide, "msbp", k) - column(wide, "sbp", k)
            yield angle_setting(config, family, f"k = {k}", gap, f"{k}")


def angle_by_k(config: Config, measured: Measured) -> Iterator[Setting]:
    """Yield the angle at each k minus that at each smaller one in degrees, the mean over a run.

    Run by run of equal seeds, and each method for itself: the runs of both start from the same seeds.
    """
    wide = angles(config, measured, "total")
    for method in ("sbp", "msbp"):
        for low, high in combinations(wide.columns.unique("k"), 2):
            gap = column(wide, method, high) - column(wide, method, low)
            yield angle_setting(config, method.upper(), f"k = {high} vs {low}", gap, method)


def angle_gap(config: Config, measured: Measured) -> Iterator[Setting]:
    """Yield by how many degrees more MSBP's angle is below SBP's at the smallest k than at the largest."""
    wide = angles(config, measured, "total")
    ks = wide.columns.unique("k")
    for low, high in [(min(ks), max(ks))] if len(ks) > 1 else []:
        gaps = [column(wide, "sbp", k) - column(wide, "msbp", k) for k in (low, high)]
        yield angle_setting(config, "all parameters", f"k = {low} and {high}", gaps[0] - gaps[1], "")


def angles(config: Config, measured: Measured, part: str) -> pd.DataFrame:
    """Return mean degrees by seed, method and k; before the first step all are equal, and it is left out."""
    shown = [measured.configs[name] for name in config["figures"]]
    rows = [row for figure in shown if figure.get("shows") == "angles" for row in rows_of(figure)]
    if not rows:
        raise ValueError(
            f"{source_of(config)}: figures: none of {config['figures']} shows angles, which this rule "
            "compares; name one that has shows: angles, such as figures: [angle]"
        )
    every = pd.concat(map(measured.sources.angles_of, rows))
    later = every[every.step > 0].astype({part: float, "k": int})
    return np.degrees(later.pivot_table(index="seed", columns=["method", "k"], values=part))


def column(wide: pd.DataFrame, method: str, k: int) -> pd.Series:
    return wide.get((method, k), pd.Series(np.nan, wide.index))


def angle_setting(config: Config, part: str, ks: str, values: pd.Series, group: str) -> Setting:
    """Return the setting of some k, a family of its own where the claim is judged by k."""
    values = values.dropna()
    family = " at ".join(filter(None, [part, ks])) if config.get("by_k") else part
    return Setting(family, f"MNIST: {ks}", ANGLES, group, values, n=len(values))


def slope_by_k(config: Config, measured: Measured) -> Iterator[Setting]:
    """Yield the slope of log BP time by log k, repetition by repetition of the sweep, for SBP and for MSBP.

    Each is a family of its own, since both were measured in the same repetitions. What is left of a line is
    curvature that all repetitions share, no noise, and enters no interval.
    """
    result, command = swept(config, measured)
    for method in ("sbp", "msbp"):
        name = method.upper()
        every = [sparse_times(config, each, method) for each in repetitions(result)]
        every = [times for times in every if times.k.nunique() > 2]
        slopes = pd.Series([log_slope(np.log(each.k), each.ratio).estimate for each in every], dtype=float)
        aside = straight_line(name, sparse_times(config, result, method)) if every else ""
        yield Setting(name, f"MNIST: {name}", command, name, slopes, n=len(slopes), aside=aside)


def sparse_times(config: Config, result: Result | None, method: str) -> pd.DataFrame:
    """Return the BP times of a method up to the largest k of a claim, relative to the baseline's."""
    times = relative_times(result, method, "dense")
    return times[(times.k > 0) & (times.k <= config["largest"]) & (times.ratio > 0)]


def repetitions(result: Result | None) -> list[Result]:
    """Return each repetition of a sweep as a sweep; the sweep itself where its points have none."""
    if result is None:
        return []

    def repeated(point: Result, number: int) -> Result:
        rows = {row["name"]: row for row in point["rows"]}  # with the k of layers, which repetitions lack
        return {**point, "rows": [rows[row["name"]] | row for row in point["repetitions"][number]["rows"]]}

    least = min((len(point.get("repetitions") or ()) for point in result["points"]), default=0)
    every = ([repeated(point, number) for point in result["points"]] for number in range(least))
    return [{**result, "points": points} for points in every] or [result]


def straight_line(name: str, times: pd.DataFrame) -> str:
    """Return in words the least-squares line through BP times by k, as shares of the baseline's."""
    line = stats.linregress(times.k, times.ratio)
    terms = f"{line.intercept:.3f} {line.slope:+.4f} k".replace(" +", " + ").replace(" -", " - ")
    return f"{name}'s time by a line with an offset: {terms} of the baseline's (R² = {line.rvalue**2:.3f})"


def slope_by_gamma(config: Config, measured: Measured) -> Iterator[Setting]:
    """Yield how the log of MSBP's BP time changes from γ = 0 to 1; here n counts values of γ.

    γ = 0 is left out, since that is SBP.
    """
    result, command = swept(config, measured)
    times = relative_times(result, "msbp", "sbp")
    times = times[(times.value > 0) & (times.ratio > 0)]
    n = times.value.nunique()
    effect = log_slope(times.value, times.ratio) if n > 2 else None
    yield Setting("MLPs", "MNIST: MSBP", command, effect=effect, n=n)


def relative_times(result: Result | None, name: str, than: str) -> pd.DataFrame:
    """Return value, k and the ratio of BP times of two rows at each point of a sweep that has both.

    They were measured in turns, so that the ratio is free of a machine's drift over the minutes of a sweep.
    """
    if result is None:
        return pd.DataFrame(columns=["value", "k", "ratio"], dtype=float)
    rows = frame(result).set_index("point")
    times, others = rows[rows.name == name], rows.bp_ms[rows.name == than]
    ratios = pd.DataFrame({"value": times.value, "k": times.k.fillna(0), "ratio": times.bp_ms / others})
    ratios = ratios.apply(pd.to_numeric, errors="coerce").astype(float)  # a sweep may be over words
    return ratios[np.isfinite(ratios.ratio)]


def swept(config: Config, measured: Measured) -> tuple[Result | None, str]:
    """Return the sweep that a claim lists, if it was measured, and the command for it."""
    listed = config["benchmarks"][0]
    return measured.sources.benchmark(**listed), benchmark_command(**listed)
