"""Results of `python -m src.bench` as text: for a terminal, and as Markdown for the README."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tabulate import tabulate

from .benchmarks import COMPARED, OPPONENTS, Result, command, name, points

TIMES = {"forward_ms": "forward", "bp_ms": "BP", "update_ms": "update", "total_ms": "total"}
HEADER = [*TIMES.values(), "BP p10-p90", "BP, formed", "GFLOP/s", "MiB", "vs torch", "vs dense"]
LEGEND = """\
Milliseconds per step, medians; total = data + forward + BP + update.
BP, formed: with every weight gradient formed within BP. GFLOP/s: the dense products of the propagated entries
in that time, beyond the processor's rate where zeros among them are skipped, as behind a maximum over time.
MiB: what building the row and its first steps add to resident memory.
vs: times less than torch (plain torch.nn, fused Adam) and dense (method=baseline): BP, BP + update, total."""
SUMMARY_LEGEND = (
    "Medians of a step; vs: times less BP, BP + update and total than torch (plain `torch.nn`, fused Adam) "
    "and than dense (`method=baseline`). Measured on"
)
NOTHING = "Nothing is measured yet: `python -m src.bench case=mnist`.\n"
MAIN = ("torch", "dense", "sbp", "msbp")


def table(result: Result) -> str:
    """For a terminal: the rows of every point, and where they were timed."""
    swept = [result["key"]] if result["sweep"] else []
    lines = [
        [*([str(point["value"])] if swept else []), row["name"], *cells(row)]
        for point in points(result)
        for row in point["rows"]
    ]
    text = aligned(lines, [*swept, "row", *HEADER], "simple", len(swept) + 1)
    return f"{name(result)}: {place(result)}\n\n{text}\n\n{LEGEND}"


def markdown(results: Iterable[Result], rows: Sequence[str] | None = MAIN) -> str:
    """Pipe tables of the cases, then of the sweeps; rows: the names of those to show, None for all."""
    every = list(results)
    if not every:
        return NOTHING
    blocks = [case_table(result, rows) for result in every if not result["sweep"]]
    blocks += [sweep_table(result) for result in every if result["sweep"]]
    return "\n\n".join([*blocks, LEGEND]) + "\n"


def summary(results: Iterable[Result]) -> str:
    """One pipe table: what MSBP gains in every case, and where that was timed."""
    every = list(results)
    lines = [
        [result["case"], *(digits(row[f"{time}_ms"]) for time in COMPARED)]
        + [ratios(row[opponent]) for opponent in OPPONENTS]
        for result in every
        for row in result["rows"]
        if row["name"] == "msbp"
    ]
    header = ["MSBP", "BP (ms)", "BP + update (ms)", "total (ms)", "vs torch", "vs dense"]
    places = "; ".join(dict.fromkeys(place(result) for result in every))
    return f"{aligned(lines, header, 'pipe', 1)}\n\n{SUMMARY_LEGEND} {places}.\n" if every else NOTHING


def case_table(result: Result, rows: Sequence[str] | None) -> str:
    shown = [row for row in result["rows"] if rows is None or row["name"] in rows]
    lines = [[row["name"], *cells(row)] for row in shown]
    return f"{title(result)}\n\n{aligned(lines, ['row', *HEADER], 'pipe', 1)}"


def sweep_table(result: Result) -> str:
    """BP milliseconds of every row at every value."""
    times = [{row["name"]: digits(row["bp_ms"]) for row in point["rows"]} for point in points(result)]
    names = list(dict.fromkeys(name for row in times for name in row))
    lines = [
        [str(point["value"]), *(row.get(name, "") for name in names)]
        for point, row in zip(points(result), times, strict=True)
    ]
    header = [f"`{result['key']}`", *(f"BP of {row}" for row in names)]
    return f"{title(result)}\n\n{aligned(lines, header, 'pipe', 0)}"


def title(result: Result) -> str:
    return f"**{name(result)}**: `{command(result)}` on {place(result)}"


def place(result: Result) -> str:
    threads = f"{result['threads']} thread" + ("s" if result["threads"] > 1 else "")
    memory = "freed memory kept" if result["allocator"] == "keep" else "freed memory given back"
    commit = result["commit"][:8] + (" with changes" if result["dirty"] else "")
    return f"{result['cpu']}, {threads}, {memory}, torch {result['torch']}, {result['blas']}, commit {commit}"


def cells(row: Mapping[str, Any]) -> list[str]:
    spread = f"{digits(row['bp_p10_ms'])}-{digits(row['bp_p90_ms'])}"
    memory = "" if row["peak_mib"] is None else f"{row['peak_mib']:.0f}"
    times = [digits(row[time]) for time in TIMES]
    formed = row.get("bp_materialised_ms")  # by the timing rule before: all of BP is formed now
    rest = [spread, "" if formed is None else digits(formed), digits(row["bp_gflops"]), memory]
    return [*times, *rest, *(ratios(row[opponent]) for opponent in OPPONENTS)]


def ratios(speedups: Mapping[str, float] | None) -> str:
    return "" if speedups is None else ", ".join(f"{digits(speedups[time])}×" for time in COMPARED)


def digits(value: float) -> str:
    """Three digits that count, and no more than three decimals."""
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3}f}"


def aligned(lines: list[list[str]], header: Sequence[str], style: str, names: int) -> str:
    """The first columns are names, the others numbers."""
    sides = ["left"] * names + ["right"] * (len(header) - names)
    return tabulate(lines, header, tablefmt=style, disable_numparse=True, colalign=sides)
