"""Results of `python -m src.bench`: their names, files and published form.

A result is the JSON that the benchmark writes: one case, alone or at the points of a sweep, or the parts of a
step of one row.
"""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..files import json_text, parsed, save
from ..record import validated

Result = Mapping[str, Any]

COMPARED = ("bp", "bp_update", "total")
COMPARISONS = ("vs_torch", "vs_dense")
FULL_SHARE = 0.97  # of a processor
# Words of a command that the name of a result has, or that have no effect on times.
NAMED = ("case=", "sweep=", "threads=", "allocator=", "format=", "paths.", "repetitions=", "breakdown=")
MAIN_ROW = "msbp"  # whose step a breakdown is of, unless its name has another
ROUNDING = 1e-5  # milliseconds
WHOLE_PASS = 2  # the first rule whose BP is the whole backward pass


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


class Protocol(Stored):
    """The number of times that the models were built anew; 1 in files of earlier versions, which omit it."""

    repetitions: int = 1


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
    protocol: Protocol = Protocol()


class Case(Benchmark):
    rows: list[BenchmarkRow]


class Sweep(Benchmark):
    key: str
    points: list[Point]


class StepPart(Stored):
    """Milliseconds of a part of a phase, and the bytes and operations that it needs at least."""

    phase: str
    part: str
    ms: float = Field(ge=0)
    bytes: int = Field(ge=0)
    flops: int = Field(ge=0)


class Breakdown(Benchmark):
    """The parts of a step of one row, and the machine's rates of operations and of memory."""

    row: str
    steps: int
    step_ms: float = Field(gt=0)
    peak_gflops: float = Field(gt=0)
    peak_gb_s: float = Field(gt=0)
    parts: list[StepPart] = Field(min_length=1)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        """Return the breakdown; ValueError unless the parts sum to the step."""
        total = sum(part.ms for part in self.parts)
        if abs(total - self.step_ms) > ROUNDING * (1 + len(self.parts)):
            raise ValueError(f"parts sum to {total:.5f} ms, and step_ms is {self.step_ms:.5f}")
        return self


def checked(value: Any) -> Result:
    """Return the value; ValueError unless it has all that readers of a result count on."""
    if isinstance(value, dict) and breaks_down(value):
        validated(Breakdown, value)
    else:
        swept = isinstance(value, dict) and value.get("sweep")
        validated(Sweep if swept else Case, value)
    return value


def breaks_down(result: Result) -> bool:
    """Return whether a result has the parts of a step, and no rows."""
    return "parts" in result


def separated(results: Iterable[Result]) -> tuple[list[Result], list[Result]]:
    """Return the results with rows, and those with the parts of a step."""
    every = list(results)
    return [each for each in every if not breaks_down(each)], [each for each in every if breaks_down(each)]


def points(result: Result) -> list[Result]:
    """Return the measured configurations, each with its rows; a case alone is one."""
    return list(result["points"]) if result["sweep"] else [result]


def whole_pass(result: Result) -> bool:
    """Return whether BP is the whole backward pass; the earlier rule left ∂ℓ/∂W to the update."""
    return result.get("timing_rule", 1) >= WHOLE_PASS


def name(result: Result) -> str:
    """Return the case with what is off its default, as files are named."""
    parts = [result["case"], result["sweep"] and f"by-{result['sweep']}"]
    if breaks_down(result):
        parts += ["breakdown" if result["row"] == MAIN_ROW else f"breakdown-of-{result['row']}"]
    parts += [result["threads"] > 1 and f"{result['threads']}-threads"]
    parts += [result["allocator"] == "default" and "default-allocator"]
    return "-".join(filter(None, parts))


def command(result: Result) -> str:
    """Return what repeats the measurement."""
    words = [f"case={result['case']}", result["sweep"] and f"sweep={result['sweep']}"]
    if breaks_down(result):
        words += ["breakdown=true" if result["row"] == MAIN_ROW else f"breakdown={result['row']}"]
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
    """Return unrounded numbers, one row or part a line."""
    if breaks_down(result):
        fields = {key: result[key] for key in ("case", "row", "threads")}
        return pd.DataFrame(result["parts"]).assign(**fields).to_csv(index=False)
    about = ["case", "sweep", "threads", "allocator"]
    lines = rows(result).assign(**{key: result[key] for key in about})
    ratios = [f"{one}_{time}" for one in COMPARISONS for time in COMPARED]
    nested = [column for column in lines if str(column).startswith((*COMPARISONS, "k_per_layer"))]
    plain = [column for column in lines if column not in {*about, "value", "k", *nested}]
    return lines.reindex(columns=[*about, "value", *plain, "k", *ratios]).to_csv(index=False)
