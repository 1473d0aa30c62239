"""Tables of benchmarks, for a terminal, Markdown and the HTML page."""

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from .benchmarks import COMPARED, COMPARISONS, Result, command, name, points, whole_pass
from .render import EMPTY, digits, pipe_table

TIMES = {"forward_ms": "forward", "bp_ms": "BP", "update_ms": "update", "total_ms": "total"}
HEADER = [*TIMES.values(), "BP p10-p90", "GFLOP/s", "MiB", "vs torch", "vs dense"]
EARLIER_RULE = "BP is not shown: it was timed by the earlier rule, which left ∂ℓ/∂W to the update"
LEGEND = """\
Milliseconds per step, medians; total = data + forward + BP + update.
GFLOP/s: the dense products of the propagated entries in the backward pass, beyond the processor's rate where
zeros among them are skipped, as behind a maximum over time.
MiB: what building the row and its first steps add to resident memory.
vs: times less than torch (plain torch.nn, fused Adam) and dense (method=baseline): BP, BP + update, total."""
SUMMARY_LEGEND = (
    "Medians of a step. vs torch, vs dense: how many times faster BP, BP + update and total are than with\n"
    "  torch (plain `torch.nn`, fused Adam) and with `method=baseline`."
)
NOTHING = "Nothing is measured yet: `python -m src.bench case=mnist`.\n"
MAIN = ("torch", "dense", "sbp", "msbp")


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
    places: dict[str, list[str]] = {}
    for result in every:
        if any(row["name"] == "msbp" for row in result["rows"]):
            places.setdefault(place(result), []).append(result["case"])
    measured = [f"{', '.join(cases)}: {where}." for where, cases in places.items()]
    notes = "\n".join(f"- {note}" for note in (SUMMARY_LEGEND, *measured, *rule_notes(every)))
    return f"{aligned(lines, header, 1)}\n\n{notes}\n" if every else NOTHING


def case_table(result: Result, rows: Sequence[str] | None) -> str:
    cells = case_cells(result, rows)
    sides = ["left", *["right"] * (cells.shape[1] - 1)]
    return f"{title(result)}\n\n{pipe_table(cells, sides)}"


def case_cells(result: Result, rows: Sequence[str] | None = None) -> pd.DataFrame:
    """Return the rows of a case as text; rows: the names of those to show, None for all."""
    shown = [row for row in result["rows"] if rows is None or row["name"] in rows]
    lines = [[row["name"], *cells(row, result)] for row in shown]
    return pd.DataFrame(lines, columns=["row", *HEADER])


def sweep_table(result: Result) -> str:
    cells = sweep_cells(result)
    return f"{title(result)}\n\n{pipe_table(cells, ['right'] * cells.shape[1])}"


def sweep_cells(result: Result) -> pd.DataFrame:
    """Return milliseconds of BP of every row at every value; of BP + update by the earlier rule."""
    time, label = ("bp_ms", "BP") if whole_pass(result) else ("bp_update_ms", "BP + update")
    times = [{row["name"]: digits(row[time]) for row in point["rows"]} for point in points(result)]
    text = pd.DataFrame(times, [str(point["value"]) for point in points(result)]).fillna("")
    text = text.rename(columns=lambda row: f"{label} of {row}").rename_axis(f"`{result['key']}`")
    return text.reset_index()


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


def cells(row: Result, result: Result) -> list[str]:
    spread = f"{digits(row['bp_p10_ms'])}-{digits(row['bp_p90_ms'])}" if whole_pass(result) else EMPTY
    memory = "" if row["peak_mib"] is None else f"{row['peak_mib']:.0f}"
    times = [milliseconds(row, time, result) for time in TIMES]
    rest = [spread, digits(row["bp_gflops"]), memory]
    return [*times, *rest, *(ratios(row[one], result) for one in COMPARISONS)]


def milliseconds(row: Result, time: str, result: Result) -> str:
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
