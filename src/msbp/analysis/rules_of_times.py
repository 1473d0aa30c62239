"""Rules about seconds of training runs and milliseconds of the benchmark."""

import numpy as np

from .benchmark_tables import digits
from .benchmarks import Result
from .benchmarks import command as command_of
from .benchmarks import name as name_of
from .evidence import SECONDS
from .figures import swept, timed
from .intervals import Interval, bootstrap, line_of, slope
from .rules_of_scores import named, settings
from .sheet import HEADERS
from .tables import Block, Line
from .verdicts import Check, Measured, Outcome, above, below, check, together
from .wanted import Config, lacks

BENCHMARKED = {"bp_ms": "BP (ms)", "total_ms": "Total (ms)", "peak_mib": "memory (MiB)"}


def acceleration(config: Config, measured: Measured) -> list[Check]:
    """MSBP's speed-up of BP over the baseline as a share of SBP's."""
    checks = []
    for block, sbp, msbp in settings({**config, "than": "sbp"}, measured):
        base, name = block.lines[0], named(block, msbp)
        command = together([line.command for line in (base, sbp, msbp)])
        values = [_seconds(line, "bp_s") for line in (base, sbp, msbp)]
        n = min(map(len, values))
        if not n:
            checks.append(Check(name, Outcome.OPEN, command=command, note=_refused(block)))
            continue
        gain, share = _ratio(values[0], values[2]), _ratio(values[1], values[2])
        outcomes = {above(gain, 1), above(share, config["share"])}
        outcome = next((o for o in (Outcome.FAILS, Outcome.OPEN) if o in outcomes), Outcome.HOLDS)
        note = f"{share.estimate:.2f} of SBP's speed-up"
        checks.append(check(name, outcome, n, "×", gain if n > 1 else gain.estimate, command, note))
    return checks


def overhead(config: Config, measured: Measured) -> list[Check]:
    """How much longer MSBP takes than SBP: its backward pass, with the update, and all of training."""
    checks = []
    for block, sbp, msbp in settings({**config, "than": "sbp"}, measured):
        command = together([sbp.command, msbp.command])
        for column in ("bp_s", "total_s"):
            values = [_seconds(line, column) for line in (msbp, sbp)]
            name, n = f"{named(block, msbp)}: {HEADERS[column].removesuffix(' (s)')}", min(map(len, values))
            if not n:
                checks.append(Check(name, Outcome.OPEN, command=command, note=_refused(block)))
                continue
            more = _less_one(_ratio(*values))
            outcome = below(more, config["limit"]) if n > 1 else Outcome.OPEN
            value = more if n > 1 else more.estimate
            checks.append(check(name, outcome, n, "more", value, command, mute=n == 1))
    for result in measured.sources.benchmarks:
        checks += _benchmarked(result, config["limit"])
    return checks


def proportional(config: Config, measured: Measured) -> list[Check]:
    """The slope of log BP time by log k, for SBP and for MSBP."""
    low, high = config["slopes"]
    result = swept(config, measured.sources)
    command = next(iter(lacks(config, measured.sources)), "python -m src.bench case=mnist sweep=k")
    checks = []
    for name in ("sbp", "msbp"):
        line = [p for p in timed(result, name) if 0 < p.x <= config["largest"] and p.y > 0] if result else []
        if len(line) < 3:
            checks.append(Check(name.upper(), Outcome.OPEN, command=command))
            continue
        found = slope([p.x for p in line], [p.y for p in line])
        inside, outside = low <= found.low and found.high <= high, found.high < low or found.low > high
        outcome = Outcome.HOLDS if inside else Outcome.FAILS if outside else Outcome.OPEN
        at_0, each, r2 = line_of([p.x for p in line], [p.y for p in line])
        note = f"{at_0:.3f} ms + {each:.4f} ms for each of k, R² = {r2:.3f}"
        checks.append(check(name.upper(), outcome, len(line), "", found, command, note))
    return checks


def _benchmarked(result: Result, limit: float) -> list[Check]:
    """What MSBP costs above SBP in a whole case alone, by medians over steps; none without both rows."""
    partial = result["sweep"] or result["threads"] > 1 or result.get("settings")
    rows = {} if partial else {row["name"]: row for row in result["rows"]}
    checks = []
    for column, label in BENCHMARKED.items() if rows.keys() >= {"sbp", "msbp"} else ():
        sbp, msbp = rows["sbp"][column], rows["msbp"][column]
        if not sbp or msbp is None:
            continue
        name, more = f"benchmark {name_of(result)}: {label}", msbp / sbp - 1
        outcome = Outcome.HOLDS if more <= limit else Outcome.FAILS
        n, note = rows["msbp"]["steps"], f"{digits(msbp)} against {digits(sbp)}"
        checks.append(check(name, outcome, n, "more", more, command_of(result), note))
    return checks


def _seconds(line: Line, column: str) -> list[float]:
    return [seconds for run in line.ours.timed if (seconds := SECONDS[column](run)) > 0]


def _refused(block: Block) -> str:
    """Why runs that exist have no times to compare."""
    remarks = [r for line in block.lines for r in line.ours.remarks["bp_s"] if r.startswith("no times")]
    return remarks[0] if remarks else ""


def _ratio(above: list[float], below: list[float]) -> Interval:
    """How many times the mean of below goes into that of above; a single run's interval is its estimate."""

    def means(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a.mean(axis=-1) / b.mean(axis=-1)

    return bootstrap(means, above, below)


def _less_one(ratio: Interval) -> Interval:
    return Interval(ratio.estimate - 1, ratio.low - 1, ratio.high - 1)
