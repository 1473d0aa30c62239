"""Results of `python -m src.bench`: their names, their files, and those that the project publishes.

A result is what the benchmark writes as JSON: one case, alone or at the points of a sweep.
"""

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .files import save

Result = Mapping[str, Any]

COMPARED = ("bp", "bp_update", "total")
OPPONENTS = ("vs_torch", "vs_dense")
FULL_SHARE = 0.97  # of a processor


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
    words += [result["allocator"] == "default" and "allocator=default"]
    return " ".join(["python -m src.bench", *filter(None, words)])


def remarks(result: Result) -> list[str]:
    """What casts doubt on the times."""
    share = min(point["cpu_share"] for point in points(result))
    if share >= FULL_SHARE:
        return []
    return [
        f"other work took the processor: of the timed seconds the benchmark had {share:.0%}; "
        "repeat it on an idle machine"
    ]


def write(folder: Path, result: Result) -> list[Path]:
    """Leave the result as JSON and CSV in the folder, under its name."""
    texts = {"json": dumped(result), "csv": comma_separated(result)}
    files = {folder / f"{name(result)}.{suffix}": text for suffix, text in texts.items()}
    save(files)
    return list(files)


def read(path: Path) -> list[Result]:
    """The published results; none where there is no such file yet."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def own(folder: Path) -> list[Result]:
    """What the user's benchmarks left in the folder."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def publish(measured: Path, published: Path, allow_dirty: bool = False) -> list[Result]:
    """Put the results of a folder into the published file, each in place of the one of its name.

    ValueError for those of uncommitted code, which nobody can repeat, unless allow_dirty.
    """
    new = own(measured)
    if not new:
        raise ValueError(f"no results in {measured}; python -m src.bench case=mnist leaves one there")
    dirty = [name(result) for result in new if result["dirty"] or result["commit"] == "unknown"]
    if dirty and not allow_dirty:
        raise ValueError(
            f"{', '.join(dirty)}: measured on uncommitted code, so nobody can repeat it; commit and measure "
            "again, or publish it all the same with allow_dirty=true"
        )
    results = {name(result): result for result in [*read(published), *new]}
    ordered = [results[key] for key in sorted(results)]
    save({published: dumped(ordered)})
    return ordered


def comma_separated(result: Result) -> str:
    """Unrounded numbers, one row a line."""
    about = {key: result[key] for key in ("case", "sweep", "threads", "allocator")}
    lines = [
        about | {"value": point.get("value")} | flat(row) for point in points(result) for row in point["rows"]
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in row.items() if key not in (*OPPONENTS, "k_per_layer")}
    plain |= {"k": " ".join(map(str, row["k_per_layer"].values()))}
    ratios = {f"{key}_{time}": (row[key] or {}).get(time) for key in OPPONENTS for time in COMPARED}
    return plain | ratios


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
