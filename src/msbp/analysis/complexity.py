"""The paper's complexity of a backward pass beside operations, milliseconds and bytes of the benchmark.

Letters: k entries kept, m width of a hidden layer, n its inputs. The paper's table exchanges m and n in
mk + n log k: with W of m × n the selection is among the m entries of h, and k of its rows are propagated.
"""

from collections.abc import Iterator
from itertools import pairwise
from math import log2

import pandas as pd

from ..files import Fields
from .benchmark_tables import place, rule_notes
from .benchmarks import Result, command, points, whole_pass
from .plan import measurements, missing_commands
from .render import EMPTY, Document, Sheet, digits
from .runs import Sources
from .settings import Config

HEADER = ["row", "k", "nk + m log k", "of mn", "MFLOP", "of dense", "BP (ms)", "of dense", "MiB", "of dense"]
MEASURED = ("mflop", "bp_ms", "mib")
LETTERS = {"k": "r", "hidden": "width"}
NOTES = (
    "nk + m log k: operations of the backward pass for one example, in thousands, summed over the "
    "gradients by weights and by inputs of all layers; MSBP has m more for its memory, and the output layer "
    "is dense. The paper prints mk + n log k, with m and n exchanged.",
    "MFLOP: the products of one step as torch counts them, without the selection. BP (ms): the pass of "
    "one step. MiB: what building the row and its first steps add to resident memory.",
)


def document(config: Config, sources: Sources) -> Document:
    """Return a block for each sweep of the benchmark that the config lists."""
    text, numbers = Sheet(config["name"], config["caption"]), []
    results = {(result["case"], result["sweep"]): result for result in sources.benchmarks}
    shown = []
    for listed, measured in zip(config["benchmarks"], measurements(config, sources), strict=True):
        header = [f"by {listed['sweep']}: {LETTERS[listed['sweep']]}", *HEADER, "command"]
        result = results.get((listed["case"], listed["sweep"]))
        rows = list(costs(result, config["inputs"], config["outputs"])) if result else []
        if result is None or not rows:
            blank = ["not measured yet", *[EMPTY] * len(HEADER), measured.command]
            text.blocks.append(pd.DataFrame([blank], columns=header))
            continue
        numbers += rows
        commands = [command(result), *[""] * (len(rows) - 1)]
        lines = [[*cells(row), words] for row, words in zip(rows, commands, strict=True)]
        text.blocks.append(pd.DataFrame(lines, columns=header))
        shown.append(result)
    text.below += [*NOTES, *rule_notes(shown)]
    text.below += [f"Measured on {where}." for where in dict.fromkeys(map(place, shown))]
    return Document(
        config["name"], config["caption"], [text], pd.DataFrame(numbers, dtype=object),
        missing=missing_commands(config, sources), measured=bool(numbers),
    )  # fmt: skip


def costs(result: Result, inputs: int, outputs: int) -> Iterator[Result]:
    """Yield the costs of SBP and MSBP at every point of a sweep, and their shares of the dense row's.

    None stands for rows that were not measured, and for times of the earlier rule.
    """
    for point in points(result):
        rows = {row["name"]: row for row in point["rows"]}
        widths = kept(rows.get("dense"))
        for name in filter(rows.__contains__, ("sbp", "msbp")):
            now, dense = (cost_of(rows.get(row), widths, inputs, outputs, result) for row in (name, "dense"))
            about = {"case": result["case"], "sweep": result["sweep"], "value": point["value"]}
            about |= {"row": name, "k": max(kept(rows[name]), default=None)}
            about |= {"width": max(widths, default=None)}
            shares = {f"{cost}_share": share(now[cost], dense[cost]) for cost in now}
            every = {**now, **{f"dense_{cost}": value for cost, value in dense.items()}, **shares}
            yield about | {key: None if value is None else round(value, 6) for key, value in every.items()}


def kept(row: Result | None) -> list[int]:
    """Return the k of each layer; of the dense row the widths."""
    return list(row["k_per_layer"].values()) if row else []


def cost_of(row: Result | None, widths: list[int], inputs: int, outputs: int, result: Result) -> Fields:
    """Return a row's operations in theory, where its layers' widths are known, and its measurements."""
    if row is None:
        return dict.fromkeys(("theory", *MEASURED))
    ks, known = kept(row), widths and len(kept(row)) == len(widths)
    theory = operations(widths, ks, inputs, outputs, row["name"] == "msbp") if known else None
    # by rule 1 of timing, GFLOP/s are per the time of a backward pass that forms every gradient
    mflop = row["bp_gflops"] * (row.get("bp_materialised_ms") or row["bp_ms"])
    bp = row["bp_ms"] if whole_pass(result) else None
    return {"theory": theory, "mflop": mflop, "bp_ms": bp, "mib": row["peak_mib"]}


def operations(widths: list[int], ks: list[int], inputs: int, outputs: int, memory: bool) -> float:
    """Return multiplications of one example's backward pass, with the comparisons of its selections.

    The first layer has no gradient by its inputs, for they are data.
    """
    total = 2.0 * widths[-1] * outputs
    for layer, (n, m) in enumerate(pairwise([inputs, *widths])):
        k = ks[layer]
        selecting = 0.0 if k == m else m * log2(max(k, 2)) + m * memory
        total += n * k * (2 if layer else 1) + selecting
    return total


def share(value: float | None, whole: float | None) -> float | None:
    return value / whole if value is not None and whole else None


def cells(row: Result) -> list[str]:
    line = [str(row["value"]).removesuffix(".0"), row["row"].upper(), str(row["k"] or EMPTY)]
    for cost in ("theory", *MEASURED):
        value, part = row[cost], row[f"{cost}_share"]
        value = value and value / (1000 if cost == "theory" else 1)
        line += [EMPTY if value is None else digits(value), EMPTY if part is None else f"{part:.1%}"]
    return line
