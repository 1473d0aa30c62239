"""The paper's complexity of a backward pass beside operations, milliseconds and bytes of the benchmark.

Letters: k entries kept, m width of a hidden layer, n its inputs. The paper's table exchanges m and n in
mk + n log k: with W of m × n the selection is among the m entries of h, and k of its rows are propagated.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import log2
from typing import Any

from .benchmark_tables import digits, place
from .benchmarks import Result, command, points
from .documents import Document
from .sheet import EMPTY, Grid, Sheet
from .sources import Sources
from .wanted import Config, lacks, measurements

HEADER = ["row", "k", "nk + m log k", "of mn", "MFLOP", "of dense", "BP (ms)", "of dense", "MiB", "of dense"]
MEASURED = ("mflop", "bp_ms", "mib")
LETTERS = {"k": "r", "hidden": "width"}
NOTES = (
    "nk + m log k: operations of the hidden layers for one example, in thousands, a gradient by weights and "
    "one by inputs; MSBP has m more for its memory; the dense output layer counts as it is. The paper prints "
    "mk + n log k, with m and n exchanged.",
    "MFLOP: the products of one step as torch counts them, without the selection. BP (ms): the pass of "
    "one step. MiB: what building the row and its first steps add to resident memory.",
)


def document(config: Config, sources: Sources) -> Document:
    """A block for each sweep of the benchmark that the config lists."""
    text, numbers = Sheet(config["name"], config["caption"]), []
    found = {(result["case"], result["sweep"]): result for result in sources.benchmarks}
    places = []
    for asked, wanted in zip(config["benchmarks"], measurements(config, sources), strict=True):
        head = f"by {asked['sweep']}: {LETTERS[asked['sweep']]}"
        result = found.get((asked["case"], asked["sweep"]))
        rows = list(costs(result, config["inputs"], config["outputs"])) if result else []
        if result is None or not rows:
            blank = ["not measured yet", *[EMPTY] * len(HEADER)]
            text.grids.append(Grid([head, *HEADER], [blank], [wanted.command]))
            continue
        numbers += rows
        commands = [command(result), *[""] * (len(rows) - 1)]
        text.grids.append(Grid([head, *HEADER], [_cells(row) for row in rows], commands))
        places.append(place(result))
    text.below += [*NOTES, *(f"Measured on {where}." for where in dict.fromkeys(places))]
    missing = lacks(config, sources)
    return Document(config["name"], config["caption"], [text], numbers, lacks=missing, measured=bool(numbers))


def costs(result: Result, inputs: int, outputs: int) -> Iterator[Mapping[str, Any]]:
    """What SBP and MSBP cost at every point of a sweep, and what share of the dense row's that is.

    None is what rows that were not measured leave open.
    """
    for point in points(result):
        rows = {row["name"]: row for row in point["rows"]}
        widths = kept(rows.get("dense"))
        for name in filter(rows.__contains__, ("sbp", "msbp")):
            now, dense = (cost_of(rows.get(row), widths, inputs, outputs) for row in (name, "dense"))
            about = {"case": result["case"], "sweep": result["sweep"], "value": point["value"]}
            about |= {"row": name, "k": max(kept(rows[name]), default=None)}
            about |= {"width": max(widths, default=None)}
            shares = {f"{cost}_share": _share(now[cost], dense[cost]) for cost in now}
            every = {**now, **{f"dense_{cost}": value for cost, value in dense.items()}, **shares}
            yield about | {key: None if value is None else round(value, 6) for key, value in every.items()}


def kept(row: Mapping[str, Any] | None) -> list[int]:
    """The k of each layer; of the dense row the widths."""
    return list(row["k_per_layer"].values()) if row else []


def cost_of(row: Mapping[str, Any] | None, widths: list[int], inputs: int, outputs: int) -> dict[str, Any]:
    """A row's operations in theory, where its layers' widths are known, and what was measured of it."""
    if row is None:
        return dict.fromkeys(("theory", *MEASURED))
    ks, known = kept(row), widths and len(kept(row)) == len(widths)
    theory = operations(widths, ks, inputs, outputs, row["name"] == "msbp") if known else None
    return {"theory": theory, **measured(row)}


def operations(widths: list[int], ks: list[int], inputs: int, outputs: int, memory: bool) -> float:
    """Multiplications of one example's backward pass, with the comparisons of its selections.

    The first layer has no gradient by its inputs, for they are data.
    """
    total = 2.0 * widths[-1] * outputs
    for layer, (n, m) in enumerate(pairwise([inputs, *widths])):
        k = ks[layer]
        selecting = 0.0 if k == m else m * log2(max(k, 2)) + m * memory
        total += n * k * (2 if layer else 1) + selecting
    return total


def measured(row: Mapping[str, Any]) -> dict[str, float | None]:
    """MFLOP, milliseconds and MiB of a row; by rule 1 of timing, bp_gflops is per a time of its own."""
    values = row["bp_gflops"] * row.get("bp_materialised_ms", row["bp_ms"]), row["bp_ms"], row["peak_mib"]
    return dict(zip(MEASURED, values, strict=True))


def _cells(row: Mapping[str, Any]) -> list[str]:
    cells = [str(row["value"]).removesuffix(".0"), row["row"].upper(), str(row["k"] or EMPTY)]
    for cost in ("theory", *MEASURED):
        value, share = row[cost], row[f"{cost}_share"]
        value = value and value / (1000 if cost == "theory" else 1)
        cells += [EMPTY if value is None else digits(value), EMPTY if share is None else f"{share:.1%}"]
    return cells


def _share(value: float | None, whole: float | None) -> float | None:
    return value / whole if value is not None and whole else None
