"""Results of `python -m src.bench`: their names, their files, and those that the project publishes.

A result is what the benchmark writes as JSON: one case, alone or at the points of a sweep.
"""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..files import check, csv_text, json_text, parsed, save

Result = Mapping[str, Any]

COMPARED = ("bp", "bp_update", "total")
OPPONENTS = ("vs_torch", "vs_dense")
FULL_SHARE = 0.97  # of a processor
# Of a command: what names tell, or what has no effect on times.
TOLD = ("case=", "sweep=", "threads=", "allocator=", "format=", "paths.")
# What readers of a result may count on; of a sweep each point has rows.
ABOUT: dict[str, Any] = {
    "case": str, "sweep": str | None, "threads": int, "allocator": str, "cpu": str, "torch": str, "blas": str,
    "commit": str, "dirty": bool, "settings": str,
}  # fmt: skip
SWEPT = {"key": str, "points": list}
POINT = {"value": float | str | bool | None}
ROWS = {"rows": list}
NUMBERS = (
    "forward_ms", "bp_ms", "update_ms", "bp_update_ms", "total_ms", "bp_p10_ms", "bp_p90_ms",
    "bp_materialised_ms", "bp_gflops",
)  # fmt: skip
ROW: dict[str, Any] = {
    "name": str, **dict.fromkeys(NUMBERS, float), "peak_mib": float | None, "steps": int,
    "k_per_layer": dict, "k_per_layer.*": int, **dict.fromkeys(OPPONENTS, dict | None),
}  # fmt: skip


def points(result: Result) -> list[Result]:
    """The settings that were measured, each with its rows; a case alone is one."""
    return list(result["points"]) if result["sweep"] else [result]


def name(result: Result) -> str:
    """The case with what is off its default, as files are called."""
    parts = [result["case"], result["sweep"] and f"by-{result['sweep']}"]
    parts += [result["threads"] > 1 and f"{result['threads']}-threads"]
    parts += [result["allocator"] == "default" and "default-allocator"]
    return "-".join(filter(None, parts))


def command(result: Result) -> str:
    """What repeats the measurement."""
    words = [f"case={result['case']}", result["sweep"] and f"sweep={result['sweep']}"]
    words += [result["threads"] > 1 and f"threads={result['threads']}"]
    words += [result["allocator"] == "default" and "allocator=default", result.get("settings")]
    return " ".join(["python -m src.bench", *filter(None, words)])


def remarks(result: Result) -> list[str]:
    """What makes the result count for less."""
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
    """Of the words of a command those that make its result partial, such as only=[msbp] or seconds=1."""
    return shlex.join(word for word in words if not word.startswith(TOLD))


def write(folder: Path, result: Result) -> list[Path]:
    """Leave the result as JSON and CSV in the folder, under its name; a partial one in no full one's."""
    if result.get("settings") and _is_full(folder / f"{name(result)}.json"):
        return []
    texts = {"json": json_text(result, indent=1), "csv": comma_separated(result)}
    files = {folder / f"{name(result)}.{suffix}": text for suffix, text in texts.items()}
    save(files)
    return list(files)


def read(path: Path, damaged: list[str]) -> list[Result]:
    """The published results; none where there is no such file yet, or a damaged one, which is noted."""
    try:
        every = parsed(path.read_bytes()) if path.exists() else []
        return [checked(result) for result in (every if isinstance(every, list) else [every])]
    except ValueError as error:
        damaged.append(f"{path}: {error}")
        return []


def own(folder: Path, damaged: list[str]) -> list[Result]:
    """What the user's benchmarks left in the folder; files that hold no result are noted as damaged."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(checked(parsed(path.read_bytes())))
        except OSError as error:
            damaged.append(f"{path}: {error.strerror}")
        except ValueError as error:
            damaged.append(f"{path}: {error}")
    return found


def checked(result: Any) -> Result:
    """The result; ValueError unless it has all that its readers count on."""
    check({"settings": ""} | result if isinstance(result, dict) else result, ABOUT, "benchmark")
    check(result, SWEPT if result["sweep"] else ROWS, "benchmark")
    for point in points(result):
        check(point, POINT | ROWS if result["sweep"] else ROWS, "point")
        for row in point["rows"]:
            check(row, ROW, "row")
            for speedups in (row[opponent] for opponent in OPPONENTS if row[opponent] is not None):
                check(speedups, dict.fromkeys(COMPARED, float), "comparison")
    return result


def _is_full(path: Path) -> bool:
    try:
        return not checked(parsed(path.read_bytes())).get("settings")
    except (OSError, ValueError):
        return False


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


def comma_separated(result: Result) -> str:
    """Unrounded numbers, one row a line."""
    about = {key: result[key] for key in ("case", "sweep", "threads", "allocator")}
    lines = [
        about | {"value": point.get("value")} | flat(row) for point in points(result) for row in point["rows"]
    ]
    return csv_text(lines)


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in row.items() if key not in (*OPPONENTS, "k_per_layer")}
    plain |= {"k": " ".join(map(str, row["k_per_layer"].values()))}
    ratios = {f"{key}_{time}": (row[key] or {}).get(time) for key in OPPONENTS for time in COMPARED}
    return plain | ratios
