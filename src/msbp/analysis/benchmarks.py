"""Results of `python -m src.bench`: their names, files, published form and tables.

A result is the JSON that the benchmark writes: one case, alone or at the points of a sweep, or the parts of a
step of one row.
"""

import logging
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from ..files import json_text, save
from ..measurements import EARLIER_RULE, WHOLE_PASS, BenchmarkRow, Result, breaks_down, read_benchmarks
from .render import EMPTY, digits, pipe_table

log = logging.getLogger(__name__)

COMPARED = ("bp", "bp_update", "total")
COMPARISONS = ("vs_torch", "vs_dense")
FULL_SHARE = 0.97  # of a processor
# Words of a command that the name of a result has, or that have no effect on times.
NAMED = ("case=", "sweep=", "threads=", "allocator=", "format=", "paths.", "repetitions=", "breakdown=")
MAIN_ROW = "msbp"  # whose step a breakdown is of, unless its name has another
HIDDEN = ["bp_ms", "bp_p10_ms", "bp_p90_ms", "update_ms"]  # by the earlier rule of timing
TIMES = {"forward_ms": "forward", "bp_ms": "BP", "update_ms": "update", "total_ms": "total"}
LEGEND = """\
Milliseconds per step, each the median over all timed steps, so that the columns of a row need not add up to
its total, which includes the data's loading.
GFLOP/s: the dense products of the propagated entries in the backward pass, beyond the processor's rate where
zeros among them are skipped, as behind a maximum over time.
MiB: what building the row and its first steps add to resident memory.
vs: how many times faster BP, BP + update and total are than with torch (plain torch.nn, fused Adam) and with
dense (method=baseline)."""
SUMMARY_LEGEND = (
    "Medians of a step. vs torch, vs dense: how many times faster BP, BP + update and total are than with\n"
    "  torch (plain `torch.nn`, fused Adam) and with `method=baseline`."
)
NOTHING = "Nothing is measured yet: `python -m src.bench case=mnist`.\n"
MAIN = ("torch", "dense", "sbp", "msbp")
BREAKDOWN_LEGEND = """\
Milliseconds are means over steps, without the fastest and slowest tenth. MB and MFLOP: what a part needs at
least, with every operand moved once; operations are those on floats, not comparisons. Of the rate: the larger
share of two measured rates, the operations of a dense product of 1024 x 1024 and the bytes of adding vectors
as long as all that a step moves; "by rows", of copying a third of the weights' rows, for parts that update
rows. Operands in nearer caches and larger products are faster than these, and exceed 100 %. Python between is
what is left of a phase: new tensors, checks, torch's way to its operations and its operations on less than
32 KiB."""
BY_ROWS = "rows "  # how the parts of a step begin whose memory lies in rows apart


def points(result: Result) -> list[Result]:
    """Return the measured configurations, each with its rows; a case alone is one."""
    return list(result["points"]) if result["sweep"] else [result]


def frame(result: Result) -> pd.DataFrame:
    """Return a row for each row of each point, with the point's number and value, and the largest k.

    mflop: the dense products of a step. Times that the earlier rule left out of BP, or added to the update,
    are missing.
    """
    every = [
        {"point": number, "value": point.get("value"), "k": max(row["k_per_layer"].values(), default=None)}
        | row
        for number, point in enumerate(points(result))
        for row in point["rows"]
    ]
    rows = pd.DataFrame(every).reindex(columns=["point", "value", "k", *BenchmarkRow.model_fields])
    rows = rows.drop_duplicates(["point", "name"], keep="last")
    rows = rows.astype({"value": object, "peak_mib": float})  # nan also where no memory could be measured
    # by rule 1, GFLOP/s are per the time of a backward pass that forms every gradient
    rows["mflop"] = rows.bp_gflops * rows.bp_materialised_ms.astype(float).fillna(rows.bp_ms)
    if not whole_pass(result):
        rows[HIDDEN] = math.nan
        for one in COMPARISONS:
            rows[one] = [{**each, "bp": math.nan} if isinstance(each, dict) else None for each in rows[one]]
    return rows


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
    words += [result["allocator"] == "default" and "allocator=default", result.get("settings")]
    if not breaks_down(result):
        words += [f"repetitions={result.get('protocol', {}).get('repetitions', 1)}"]
    return " ".join(["python -m src.bench", *filter(None, words)])


def remarks(result: Result) -> list[str]:
    """Return the reasons for which a result counts for less."""
    reasons = []
    if partial := result.get("settings"):
        reasons.append(
            f"a partial benchmark, for {partial}: it is not published, and gives way to a full one"
        )
    share = min(point["cpu_share"] for point in points(result))
    if share < FULL_SHARE:
        reasons.append(
            f"other work took the processor: of the timed seconds the benchmark had {share:.0%}; "
            "repeat it on an idle machine"
        )
    return reasons


def settings(words: Iterable[str]) -> str:
    """Return those words of a command that make its result partial, such as only=[msbp] or seconds=1."""
    return shlex.join(word for word in words if not word.startswith(NAMED))


def write(folder: Path, result: Result) -> list[Path]:
    """Leave the result as JSON and CSV in the folder, under its name; a partial one replaces no full one."""
    damaged: list[str] = []
    kept = read_benchmarks(folder / f"{name(result)}.json", damaged)
    for sentence in damaged:
        log.warning("damaged: %s", sentence)
    if result.get("settings") and (damaged or not all(each.get("settings") for each in kept)):
        return []
    texts = {"json": json_text(result, indent=1), "csv": comma_separated(result)}
    files = {folder / f"{name(result)}.{suffix}": text for suffix, text in texts.items()}
    save(files)
    return list(files)


def comma_separated(result: Result) -> str:
    """Return unrounded numbers, one row or part a line; nested fields have columns such as `vs_dense_bp`."""
    if breaks_down(result):
        fields = {key: result[key] for key in ("case", "row", "threads")}
        return pd.DataFrame(result["parts"]).assign(**fields).to_csv(index=False)
    about = ["case", "sweep", "threads", "allocator"]
    parts = []
    for point in points(result):
        part = pd.json_normalize(list(point["rows"]), sep="_", max_level=1)
        part["k"] = [" ".join(map(str, row["k_per_layer"].values())) for row in point["rows"]]
        parts.append(part.assign(value=point.get("value"), **{key: result[key] for key in about}))
    lines = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    ratios = [f"{one}_{time}" for one in COMPARISONS for time in COMPARED]
    nested = [column for column in lines if str(column).startswith((*COMPARISONS, "k_per_layer"))]
    plain = [column for column in lines if column not in {*about, "value", "k", *nested}]
    return lines.reindex(columns=[*about, "value", *plain, "k", *ratios]).to_csv(index=False)


def table(result: Result) -> str:
    """Return the rows of every point, or the parts of a step, for a terminal, and where they were timed."""
    if breaks_down(result):
        text = pipe_table(cells(result), 2, "simple")
        return f"{name(result)}: {where(result)}\n\n{text}\n\n{BREAKDOWN_LEGEND}"
    rows = frame(result)
    lines = row_cells(rows)
    if result["sweep"]:
        lines.insert(0, result["key"], rows.value.map(str))
    text = pipe_table(lines, 1 + bool(result["sweep"]), "simple")
    return f"{name(result)}: {platform(result)}\n\n{text}\n\n{LEGEND}"


def markdown(results: Iterable[Result], rows: Sequence[str] | None = MAIN) -> str:
    """Return pipe tables of the cases, then of the sweeps; rows: the names of those to show, None for all."""
    every = sorted(results, key=lambda result: bool(result["sweep"]))
    blocks = [
        titled(result, pipe_table(cells(result, rows), 0 if result["sweep"] else 1)) for result in every
    ]
    return "\n\n".join([*blocks, LEGEND, *rule_notes(every)]) + "\n" if every else NOTHING


def breakdown_section(results: Sequence[Result]) -> str:
    """Return a section with a pipe table of the parts of each step; empty if there is none."""
    tables = "".join(f"{titled(result, pipe_table(cells(result), 2))}\n\n" for result in results)
    return f"\n## Where a step goes\n\n{tables}{BREAKDOWN_LEGEND}\n" if results else ""


def titled(result: Result, table: str) -> str:
    """Return a table in Markdown under the name of its result, its command and the machine."""
    return f"**{name(result)}**: `{command(result)}` on {where(result)}\n\n{table}"


def summary(results: Iterable[Result]) -> str:
    """Return one pipe table with MSBP's times and speed-ups in every case."""
    every, lines = list(results), []
    cases: dict[str, list[str]] = {}  # by platform
    for result in every:
        rows = frame(result)
        for _, row in rows[rows.name == MAIN_ROW].iterrows():
            times = [digits(row[f"{time}_ms"]) for time in COMPARED]
            lines.append([result["case"], *times, *(ratios(row[one]) for one in COMPARISONS)])
            cases.setdefault(platform(result), []).append(result["case"])
    header = ["MSBP", "BP (ms)", "BP + update (ms)", "total (ms)", "vs torch", "vs dense"]
    measured = [f"{', '.join(names)}: {where}." for where, names in cases.items()]
    notes = "\n".join(f"- {note}" for note in (SUMMARY_LEGEND, *measured, *rule_notes(every)))
    return f"{pipe_table(pd.DataFrame(lines, columns=header))}\n\n{notes}\n" if every else NOTHING


def cells(result: Result, rows: Sequence[str] | None = None) -> pd.DataFrame:
    """Return a result as text: the rows of a case, of a sweep BP and total by value, or the parts of a step.

    rows: the names of those to show. By the earlier rule of timing a sweep has BP + update instead of BP.
    """
    if breaks_down(result):
        return part_cells(result)
    if not result["sweep"]:
        every = frame(result)
        return row_cells(every if rows is None else every[every.name.isin(rows)])
    bp = {"bp_ms": "BP"} if whole_pass(result) else {"bp_update_ms": "BP + update"}
    times = bp | {"total_ms": "total"}
    text = pd.DataFrame(
        [
            {
                f"{label} of {row['name']}": digits(row[time])
                for time, label in times.items()
                for row in point["rows"]
            }
            for point in points(result)
        ],
        pd.Index([str(point["value"]) for point in points(result)], name=f"`{result['key']}`"),
    )
    return text.fillna("").reset_index()


def row_cells(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows of a frame as text."""
    low, high = rows.bp_p10_ms.map(digits), rows.bp_p90_ms.map(digits)
    text = {"row": rows.name} | {label: rows[time].map(digits) for time, label in TIMES.items()}
    text |= {"BP p10-p90": (low + "-" + high).where(rows.bp_p10_ms.notna(), EMPTY)}
    text |= {"GFLOP/s": rows.bp_gflops.map(digits)}
    text |= {"MiB": rows.peak_mib.map(lambda size: "" if pd.isna(size) else f"{size:.0f}")}
    compared = {one.replace("_", " "): rows[one].map(ratios) for one in COMPARISONS}
    return pd.DataFrame(text | compared)


def part_cells(result: Result) -> pd.DataFrame:
    """Return the parts of a step as text, and the step in the last line; a dash stands for nothing."""
    parts = pd.DataFrame(result["parts"])
    parts.loc[len(parts)] = {"phase": "step", "part": "", "ms": result["step_ms"]} | {
        unit: parts[unit].sum() for unit in ("bytes", "flops")
    }
    rates = pd.DataFrame({"GB/s": parts.bytes / parts.ms / 1e6, "GFLOP/s": parts.flops / parts.ms / 1e6})
    of_memory = pd.Series(result["peak_gb_s"], parts.index)
    if result.get("rows_gb_s"):
        of_memory[parts.part.str.startswith(BY_ROWS)] = result["rows_gb_s"]
    shares = rates / pd.DataFrame({"GB/s": of_memory, "GFLOP/s": result["peak_gflops"]})
    binding = zip(shares.max(axis=1), shares.idxmax(axis=1), strict=True)
    numbers = pd.DataFrame({"MB": parts.bytes / 1e6, "MFLOP": parts.flops / 1e6}).join(rates)
    return pd.DataFrame({
        "phase": parts.phase.where(parts.phase != parts.phase.shift(), ""),  # once for all of its parts
        "part": parts.part, "ms": parts.ms.map(digits),
        "of the step": (parts.ms / result["step_ms"]).map("{:.1%}".format),
        **numbers.map(lambda number: digits(number) if number else EMPTY),
        "of the rate": [f"{share:.0%} of {rate}" if share else EMPTY for share, rate in binding],
    })  # fmt: skip


def where(result: Result) -> str:
    """Return the machine in words, of a breakdown with its rates."""
    if not breaks_down(result):
        return platform(result)
    rates = f"rates {digits(result['peak_gflops'])} GFLOP/s and {digits(result['peak_gb_s'])} GB/s"
    by_rows = f", {digits(result['rows_gb_s'])} GB/s by rows" if result.get("rows_gb_s") else ""
    return f"{platform(result)}; {rates}{by_rows}"


def platform(result: Result) -> str:
    """Return the machine and software of a result in words."""
    threads = f"{result['threads']} thread" + ("s" if result["threads"] > 1 else "")
    if result.get("key") == "threads":
        threads = "threads as below"
    commit = result["commit"][:8] + (" with changes" if result["dirty"] else "")
    software = f"allocator={result['allocator']}, torch {result['torch']}, {result['blas']}"
    return f"{result['cpu']}, {threads}, {software}, commit {commit}"


def rule_notes(results: Iterable[Result]) -> list[str]:
    """Return the sentence on hidden times, if any are."""
    return [] if all(map(whole_pass, results)) else [f"{EARLIER_RULE}."]


def ratios(speedups: Mapping[str, float] | None) -> str:
    """Return the speed-ups over a comparison row, if it was timed; a dash for a hidden one."""
    times = [speedups[time] for time in COMPARED] if speedups else []
    return ", ".join(EMPTY if math.isnan(time) else f"{digits(time)}×" for time in times)
