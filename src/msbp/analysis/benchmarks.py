"""Results of `python -m src.bench`: reading and publishing them, and their tables.

A result is the JSON that the benchmark writes: one case, alone or at the points of a sweep.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from ..files import json_text, parsed, save
from ..record import validated
from .render import EMPTY, digits, pipe_table

Result = Mapping[str, Any]

COMPARED = ("bp", "bp_update", "total")
COMPARISONS = ("vs_torch", "vs_dense")
FULL_SHARE = 0.97  # of a processor
# Words of a command that the name of a result has, or that have no effect on times.
NAMED = ("case=", "sweep=", "threads=", "allocator=", "format=", "paths.", "repetitions=")
TIMES = {"forward_ms": "forward", "bp_ms": "BP", "update_ms": "update", "total_ms": "total"}
HEADER = [*TIMES.values(), "BP p10-p90", "GFLOP/s", "MiB", "vs torch", "vs dense"]
WHOLE_PASS = 2  # the first rule whose BP is the whole backward pass
EARLIER_RULE = "BP is not shown: it was timed by the earlier rule, which left ∂ℓ/∂W to the update"
LEGEND = """\
Milliseconds per step, medians; total = data + forward + BP + update.
GFLOP/s: the dense products of the propagated entries in the backward pass, beyond the processor's rate where
zeros among them are skipped, as behind a maximum over time.
MiB: what building the row and its first steps add to resident memory.
vs: times less than torch (plain torch.nn, fused Adam) and dense (method=baseline): BP, BP + update, total."""
SUMMARY_LEGEND = (
    "Medians of a step; vs: times less BP, BP + update and total than torch (plain `torch.nn`, fused Adam) "
    "and than dense (`method=baseline`). Measured on"
)
NOTHING = "Nothing is measured yet: `python -m src.bench case=mnist`.\n"
MAIN = ("torch", "dense", "sbp", "msbp")


class Stored(BaseModel):
    """A part of a benchmark's file; fields that analysis does not read are kept."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


class SpeedUps(Stored):
    bp: float
    bp_update: float
    total: float


class BenchmarkRow(Stored):
    """Milliseconds of one model's step."""

    name: str
    forward_ms: float
    bp_ms: float
    update_ms: float
    bp_update_ms: float
    total_ms: float
    bp_p10_ms: float
    bp_p90_ms: float
    bp_materialised_ms: float | None = None  # by rule 1 of timing
    bp_gflops: float
    peak_mib: float | None
    steps: int
    k_per_layer: dict[str, int]
    vs_torch: SpeedUps | None
    vs_dense: SpeedUps | None


class Point(Stored):
    value: float | str | bool | None
    rows: list[BenchmarkRow]


class Benchmark(Stored):
    """One case alone, with rows; a sweep has a key and points instead."""

    case: str
    sweep: str | None
    threads: int
    allocator: str
    cpu: str
    torch: str
    blas: str
    commit: str
    dirty: bool
    settings: str = ""
    timing_rule: int = Field(default=1, ge=1)


class Case(Benchmark):
    rows: list[BenchmarkRow]


class Sweep(Benchmark):
    key: str
    points: list[Point]


def checked(value: Any) -> Result:
    """Return the value; ValueError unless it has all that readers of a result count on."""
    swept = isinstance(value, dict) and value.get("sweep")
    validated(Sweep if swept else Case, value)
    return value


def points(result: Result) -> list[Result]:
    """Return the measured configurations, each with its rows; a case alone is one."""
    return list(result["points"]) if result["sweep"] else [result]


def whole_pass(result: Result) -> bool:
    """Whether BP is the whole backward pass; the earlier rule left ∂ℓ/∂W to the update."""
    return result.get("timing_rule", 1) >= WHOLE_PASS


def name(result: Result) -> str:
    """Return the case with what is off its default, as files are named."""
    parts = [result["case"], result["sweep"] and f"by-{result['sweep']}"]
    parts += [result["threads"] > 1 and f"{result['threads']}-threads"]
    parts += [result["allocator"] == "default" and "default-allocator"]
    return "-".join(filter(None, parts))


def command(result: Result) -> str:
    """Return what repeats the measurement."""
    words = [f"case={result['case']}", result["sweep"] and f"sweep={result['sweep']}"]
    words += [result["threads"] > 1 and f"threads={result['threads']}"]
    repetitions = result.get("protocol", {}).get("repetitions", 1)
    words += [result["allocator"] == "default" and "allocator=default", result.get("settings")]
    words += [repetitions > 1 and f"repetitions={repetitions}"]
    return " ".join(["python -m src.bench", *filter(None, words)])


def remarks(result: Result) -> list[str]:
    """Return the reasons for which a result counts for less."""
    found = []
    if partial := result.get("settings"):
        found.append(f"a partial benchmark, for {partial}: it is not published, and gives way to a full one")
    share = min(point["cpu_share"] for point in points(result))
    if share < FULL_SHARE:
        found.append(
            f"other work took the processor: of the timed seconds the benchmark had {share:.0%}; "
            "repeat it on an idle machine"
        )
    return found


def settings(words: Iterable[str]) -> str:
    """Return those words of a command that make its result partial, such as only=[msbp] or seconds=1."""
    return shlex.join(word for word in words if not word.startswith(NAMED))


def write(folder: Path, result: Result) -> list[Path]:
    """Leave the result as JSON and CSV in the folder, under its name; a partial one replaces no full one."""
    if result.get("settings") and _is_full(folder / f"{name(result)}.json"):
        return []
    texts = {"json": json_text(result, indent=1), "csv": comma_separated(result)}
    files = {folder / f"{name(result)}.{suffix}": text for suffix, text in texts.items()}
    save(files)
    return list(files)


def _is_full(path: Path) -> bool:
    try:
        return not checked(parsed(path.read_bytes())).get("settings")
    except (OSError, ValueError):
        return False


def own(folder: Path, damaged: list[str]) -> list[Result]:
    """Return the user's results in the folder; files that hold none are added to damaged."""
    return [result for path in sorted(folder.glob("*.json")) for result in load(path, damaged)]


def read(path: Path, damaged: list[str]) -> list[Result]:
    """Return the published results, a list in a file if there is one; a damaged file is added to damaged."""
    return load(path, damaged, listed=True) if path.exists() else []


def load(path: Path, damaged: list[str], listed: bool = False) -> list[Result]:
    """Return the result, or list of results, of a file; none where it holds no such thing."""
    try:
        value = parsed(path.read_bytes())
        return [checked(result) for result in (value if listed and isinstance(value, list) else [value])]
    except OSError as error:
        damaged.append(f"{path}: {error.strerror}")
    except ValueError as error:
        damaged.append(f"{path}: {error}")
    return []


def publish(measured: Path, published: Path, allow_dirty: bool = False) -> list[Result]:
    """Put the results of a folder into the published file, each in place of the one of its name.

    ValueError for those of uncommitted code, which nobody can repeat, unless allow_dirty; for partial ones;
    and where a file of either is damaged.
    """
    damaged: list[str] = []
    new, old = own(measured, damaged), read(published, damaged)
    if damaged:
        raise ValueError(f"repair or remove first: {'; '.join(damaged)}")
    if not new:
        raise ValueError(f"no results in {measured}; python -m src.bench case=mnist leaves one there")
    dirty = [name(result) for result in new if result["dirty"] or result["commit"] == "unknown"]
    if dirty and not allow_dirty:
        raise ValueError(
            f"{', '.join(dirty)}: measured on uncommitted code, so nobody can repeat it; commit and measure "
            "again, or publish it all the same with allow_dirty=true"
        )
    if partial := [f"{name(result)} ({result['settings']})" for result in new if result.get("settings")]:
        raise ValueError(f"{', '.join(partial)}: only full benchmarks are published; measure without these")
    results = {name(result): result for result in [*old, *new]}
    ordered = [results[key] for key in sorted(results)]
    save({published: json_text(ordered, indent=1)})
    return ordered


def rows(result: Result) -> pd.DataFrame:
    """Return the rows of every point; nested fields have columns such as `vs_dense_bp`."""
    parts = []
    for point in points(result):
        part = pd.json_normalize(list(point["rows"]), sep="_", max_level=1)
        part["k"] = [" ".join(map(str, row["k_per_layer"].values())) for row in point["rows"]]
        parts.append(part.assign(value=point.get("value")))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def comma_separated(result: Result) -> str:
    """Return unrounded numbers, one row a line."""
    about = ["case", "sweep", "threads", "allocator"]
    lines = rows(result).assign(**{key: result[key] for key in about})
    ratios = [f"{one}_{time}" for one in COMPARISONS for time in COMPARED]
    nested = [column for column in lines if str(column).startswith((*COMPARISONS, "k_per_layer"))]
    plain = [column for column in lines if column not in {*about, "value", "k", *nested}]
    return lines.reindex(columns=[*about, "value", *plain, "k", *ratios]).to_csv(index=False)


def table(result: Result) -> str:
    """Return the rows of every point for a terminal, and where they were timed."""
    swept = [result["key"]] if result["sweep"] else []
    lines = [
        [*([str(point["value"])] if swept else []), row["name"], *cells(row, result)]
        for point in points(result)
        for row in point["rows"]
    ]
    text = aligned(lines, [*swept, "row", *HEADER], len(swept) + 1, "simple")
    return f"{name(result)}: {place(result)}\n\n{text}\n\n{LEGEND}"


def markdown(results: Iterable[Result], rows: Sequence[str] | None = MAIN) -> str:
    """Return pipe tables of the cases, then of the sweeps; rows: the names of those to show, None for all."""
    every = list(results)
    if not every:
        return NOTHING
    blocks = [case_table(result, rows) for result in every if not result["sweep"]]
    blocks += [sweep_table(result) for result in every if result["sweep"]]
    return "\n\n".join([*blocks, LEGEND, *rule_notes(every)]) + "\n"


def summary(results: Iterable[Result]) -> str:
    """Return one pipe table with MSBP's times and speed-ups in every case."""
    every = list(results)
    lines = [
        [result["case"], *(milliseconds(row, f"{time}_ms", result) for time in COMPARED)]
        + [ratios(row[one], result) for one in COMPARISONS]
        for result in every
        for row in result["rows"]
        if row["name"] == "msbp"
    ]
    header = ["MSBP", "BP (ms)", "BP + update (ms)", "total (ms)", "vs torch", "vs dense"]
    places = "; ".join(dict.fromkeys(place(result) for result in every))
    notes = " ".join([f"{SUMMARY_LEGEND} {places}.", *rule_notes(every)])
    return f"{aligned(lines, header, 1)}\n\n{notes}\n" if every else NOTHING


def case_table(result: Result, rows: Sequence[str] | None) -> str:
    shown = [row for row in result["rows"] if rows is None or row["name"] in rows]
    lines = [[row["name"], *cells(row, result)] for row in shown]
    return f"{title(result)}\n\n{aligned(lines, ['row', *HEADER], 1)}"


def sweep_table(result: Result) -> str:
    """Return milliseconds of BP of every row at every value; of BP + update by the earlier rule."""
    time, label = ("bp_ms", "BP") if whole_pass(result) else ("bp_update_ms", "BP + update")
    times = [{row["name"]: digits(row[time]) for row in point["rows"]} for point in points(result)]
    text = pd.DataFrame(times, [str(point["value"]) for point in points(result)]).fillna("")
    text = text.rename(columns=lambda row: f"{label} of {row}").rename_axis(f"`{result['key']}`")
    return f"{title(result)}\n\n{pipe_table(text.reset_index(), ['right'] * (text.shape[1] + 1))}"


def title(result: Result) -> str:
    return f"**{name(result)}**: `{command(result)}` on {place(result)}"


def place(result: Result) -> str:
    """Return the machine and software of a result in words."""
    threads = f"{result['threads']} thread" + ("s" if result["threads"] > 1 else "")
    memory = "freed memory kept" if result["allocator"] == "keep" else "freed memory given back"
    commit = result["commit"][:8] + (" with changes" if result["dirty"] else "")
    return f"{result['cpu']}, {threads}, {memory}, torch {result['torch']}, {result['blas']}, commit {commit}"


def rule_notes(results: Iterable[Result]) -> list[str]:
    """Return the sentence on hidden times, if any are."""
    return [] if all(map(whole_pass, results)) else [f"{EARLIER_RULE}."]


def cells(row: Mapping[str, Any], result: Result) -> list[str]:
    spread = f"{digits(row['bp_p10_ms'])}-{digits(row['bp_p90_ms'])}" if whole_pass(result) else EMPTY
    memory = "" if row["peak_mib"] is None else f"{row['peak_mib']:.0f}"
    times = [milliseconds(row, time, result) for time in TIMES]
    rest = [spread, digits(row["bp_gflops"]), memory]
    return [*times, *rest, *(ratios(row[one], result) for one in COMPARISONS)]


def milliseconds(row: Mapping[str, Any], time: str, result: Result) -> str:
    """Return a time; a dash for what the earlier rule left out of BP, or added to the update."""
    hidden = time in ("bp_ms", "update_ms") and not whole_pass(result)
    return EMPTY if hidden else digits(row[time])


def ratios(speedups: Mapping[str, float] | None, result: Result) -> str:
    if speedups is None:
        return ""
    shown = COMPARED if whole_pass(result) else COMPARED[1:]
    return ", ".join(
        [EMPTY] * (len(COMPARED) - len(shown)) + [f"{digits(speedups[time])}×" for time in shown]
    )


def aligned(lines: list[list[str]], header: Sequence[str], names: int, style: str = "pipe") -> str:
    """Return a table whose first columns are names and whose others are numbers."""
    sides = ["left"] * names + ["right"] * (len(header) - names)
    return pipe_table(pd.DataFrame(lines, columns=list(header)), sides, style)
