"""The theory of the paper beside measurements: complexity of a backward pass, and bounds on angles.

Complexity: a hidden layer of i inputs and n outputs keeps k. The paper's table, with n inputs and m outputs,
exchanges them in mk + n log k: the selection is among the outputs, and k rows of inputs are propagated.
Bounds: the checks of lemmas and theorems that `python -m src.theory` leaves, as a table and a figure.
"""

import math
from collections.abc import Iterator
from itertools import pairwise

import pandas as pd

from ..files import Fields
from ..measurements import Result
from .benchmarks import command, frame, platform, rule_notes
from .figures import POINTS, Figure, Plot, Series
from .render import COMMAND, EMPTY, Document, Sheet, digits, pipe_table
from .runs import Sources
from .settings import Config, benchmark_command

COSTS = ["row", "k", "i·k + n log k", "of i·n", "MFLOP", "of dense", "BP (ms)", "of dense", "MiB", "of dense"]
COMPARED = ("theory", "mflop", "bp_ms", "mib")
LETTERS = {"k": "r", "hidden": "width"}
NOTES = (
    "i·k + n log k, for a layer of i inputs and n outputs that keeps k: operations of the backward pass for "
    "one example, in thousands, summed over the gradients by weights and by inputs of all layers; MSBP has n "
    "more for its memory, and the output layer is dense. The paper prints mk + n log k for n inputs and m "
    "outputs, where the two are exchanged: it selects among the outputs.",
    "MFLOP: the products of one step as torch counts them, without the selection. BP (ms): the pass of "
    "one step. MiB: what building the row and its first steps add to resident memory.",
)
SYMBOLS = (
    "δ: angle between the estimated and the true gradient, by the input x, the pre-activations h or the "
    "parameters w; ρ: square of the condition number of the matrix; μ and L: constants of strong convexity "
    "and smoothness; θ: the angle that the bound is to stay within."
)
RUN = "python -m src.theory"
ROUNDING = 1e-12  # the largest difference, in degrees or of cosines, that rounding alone makes
CHECKS = ["check", "condition", "bound", "measured, worst", "problems", "holds", COMMAND]


def complexity(config: Config, sources: Sources) -> Document:
    """Return a block for each sweep of the benchmark that the config lists."""
    text, numbers, shown = Sheet(config["name"], config["caption"]), [], []
    for listed in config["benchmarks"]:
        header = [f"by {listed['sweep']}: {LETTERS[listed['sweep']]}", *COSTS, COMMAND]
        result = sources.benchmark(**listed)
        rows = costs(result, config["inputs"], config["outputs"]) if result else pd.DataFrame()
        lines = [[*cost_cells(row), ""] for _, row in rows.iterrows()]
        if not lines:
            lines = [["not measured yet", *[EMPTY] * len(COSTS), ""]]
        lines[0][-1] = command(result) if result and len(rows) else benchmark_command(**listed)
        text.blocks.append(pd.DataFrame(lines, columns=header))
        if result and len(rows):
            numbers.append(rows)
            shown.append(result)
    text.below += [*NOTES, *rule_notes(shown)]
    text.below += [f"Measured on {where}." for where in dict.fromkeys(map(platform, shown))]
    return Document(
        config["name"], config["caption"], [text], pd.concat(numbers) if numbers else pd.DataFrame(),
        missing=sources.missing(config), measured=bool(numbers),
    )  # fmt: skip


def costs(result: Result, inputs: int, outputs: int) -> pd.DataFrame:
    """Return the costs of SBP and MSBP at every point of a sweep, and their shares of the dense row's.

    Missing are those of rows that were not measured, and times of the earlier rule.
    """
    rows = frame(result).rename(columns={"name": "row", "peak_mib": "mib"}).set_index("point")
    dense = rows[rows.row == "dense"]
    layers = zip(rows.row, rows.k_per_layer, dense.k_per_layer.reindex(rows.index), strict=True)
    rows["theory"] = [
        operations([*widths.values()], [*ks.values()], inputs, outputs, row == "msbp")
        if isinstance(widths, dict) and len(ks) == len(widths) > 0
        else math.nan
        for row, ks, widths in layers
    ]
    every = rows.assign(case=result["case"], sweep=result["sweep"], width=dense.k)
    every = every.join(rows.loc[rows.row == "dense", [*COMPARED]].add_prefix("dense_"))
    for cost in COMPARED:
        whole = every[f"dense_{cost}"]
        every[f"{cost}_share"] = every[cost] / whole.where(whole != 0)
    sparse = every[every.row.isin(["sbp", "msbp"])].sort_values("row", ascending=False, kind="stable")
    about = ["case", "sweep", "value", "row", "k", "width"]
    costs = [form.format(cost) for form in ("{}", "dense_{}", "{}_share") for cost in COMPARED]
    sparse = sparse.sort_index(kind="stable")[[*about, *costs]].round(6)
    return sparse.astype({"k": "Int64", "width": "Int64"})


def operations(widths: list[int], ks: list[int], inputs: int, outputs: int, memory: bool) -> float:
    """Return multiplications of one example's backward pass, with the comparisons of its selections.

    The first layer has no gradient by its inputs, for they are data.
    """
    total = 2.0 * widths[-1] * outputs
    for layer, (i, n) in enumerate(pairwise([inputs, *widths])):
        k = ks[layer]
        selecting = 0.0 if k == n else n * math.log2(max(k, 2)) + n * memory
        total += i * k * (2 if layer else 1) + selecting
    return total


def cost_cells(row: pd.Series) -> list[str]:
    line = [str(row.value).removesuffix(".0"), row.row.upper(), EMPTY if pd.isna(row.k) else str(row.k)]
    for cost in COMPARED:
        value, part = row[cost] / (1000 if cost == "theory" else 1), row[f"{cost}_share"]
        line += [digits(value), EMPTY if pd.isna(part) else f"{part:.1%}"]
    return line


def bounds(config: Config, sources: Sources) -> Document:
    """Return bound and worst measurement of every check as a table."""
    theory = sources.theory
    numbers = bound_numbers(theory)
    lines = [[*line, ""] for line in bound_cells(numbers)] or [["not computed yet", *[EMPTY] * 5, ""]]
    lines[0][-1] = RUN
    unmet = theory["broken_by_the_papers_network"] if theory else []
    below = [SYMBOLS, *(f"Not met by the paper's own network: {each}" for each in unmet)]
    sheet = Sheet(config["name"], config["caption"], [pd.DataFrame(lines, columns=CHECKS)], below=below)
    return Document(
        config["name"], config["caption"], [sheet], significant(numbers), missing=[] if theory else [RUN],
        measured=bool(theory),
    )  # fmt: skip


def significant(numbers: pd.DataFrame) -> pd.DataFrame:
    """Return numbers with six significant digits; zero for what rounding alone makes."""
    digits = numbers[["bound", "measured"]].map(lambda value: float(f"{value:.6g}"))
    return numbers.assign(**digits.where(digits.abs() >= ROUNDING, 0.0))


def bounds_figure(config: Config, sources: Sources) -> Plot:
    """Return the worst measurement of every check of an angle by its bound."""
    figure = Figure("Bounds and measurements", "θ or bound (degrees)", "measured (degrees)")
    numbers = bound_numbers(sources.theory)
    angles = numbers[numbers.unit == "degrees"].rename(
        columns={"bound": "x", "measured": "y", "problems": "n"}
    )
    for colour, (name, part) in enumerate(angles.groupby("check", sort=False), 1):
        figure.series.append(Series(str(name), part.reindex(columns=POINTS).astype(float), colour))
    if len(angles):
        ends = pd.DataFrame({"x": [0.0, 90.0], "y": [0.0, 90.0]}).reindex(columns=POINTS)
        figure.series.append(Series("bound", ends, 0, ":"))
    return Plot(
        config["name"], config["caption"], numbers=figure.numbers(), figure=figure,
        missing=[] if len(angles) else [RUN], measured=len(angles) > 0,
    )  # fmt: skip


def terminal(theory: Fields) -> str:
    """Return the checks as a table for a terminal."""
    cells = pd.DataFrame(bound_cells(bound_numbers(theory)), columns=CHECKS[:-1])
    return pipe_table(cells, 2, "simple")


def bound_cells(numbers: pd.DataFrame) -> list[list[str]]:
    """Return the cells of checks: angles with two decimals, other numbers with four significant digits."""
    lines = []
    for row in numbers.itertuples():
        form = "{:.2f}°" if row.unit == "degrees" else "{:.4g}°" if "degrees" in row.unit else "{:.4g}"
        texts = [form.format(0.0 if abs(each) < ROUNDING else each) for each in (row.bound, row.measured)]
        lines.append([row.check, row.condition, *texts, str(row.problems), "yes" if row.holds else "no"])
    return lines


def bound_numbers(theory: Fields | None) -> pd.DataFrame:
    """Return a row for each check that applies: angles in degrees, factors and cosines as they are."""
    columns = ["check", "condition", "bound", "measured", "unit", "problems", "holds"]
    return pd.DataFrame(checks(theory) if theory else [], columns=columns)


def checks(theory: Fields) -> Iterator[tuple[object, ...]]:
    """Yield check, condition, bound, worst measurement, unit, number of problems, and whether it holds."""
    for each in theory.get("lemma_2", ()):
        name = f"ρ = {each['rho']:g}; cosine above its bound by"
        yield "Lemma 2", name, 0.0, each["least_margin"], "margin", each["trials"], each["holds"]
    for each in theory["lemma_3"]:
        for part, margin in each["least_margin"].items():
            if margin is not None:
                name, degrees = f"r = {each['r']:g}; δ({part}) below its bound by", math.degrees(margin) + 0.0
                problems = each["applies"][part]
                yield "Lemma 3", name, 0.0, degrees, "margin in degrees", problems, each["holds"]
    for each in theory["lemma_4"]:
        if each["applies"]:
            theta, angle = (math.degrees(each[name]) for name in ("theta", "largest_angle"))
            name = f"r ≥ {min(each['r']):g}"
            yield "Lemma 4", name, theta, angle, "degrees", each["applies"], each["holds"]
    for each in theory["theorem_1"]:
        if each["applies"]:
            name = f"r = {each['r']:g}, μ/L = {each['mu_over_L']:g}; factor of a step"
            factors = each["sin_theta"], each["largest_factor"]
            yield "Theorem 1", name, *factors, "", each["steps"], each["holds"]
    for each in theory.get("theorem_2", ()):
        if each["applies"]:
            theta, angle = math.degrees(each["theta"]), math.degrees(max(each["largest_angle"]))
            name = f"r = {each['r']:g}; data sets of {each['sizes'][0]} to {each['sizes'][-1]}"
            problems = each["trials"] * len(each["sizes"])
            yield "Theorem 2", name, theta, angle, "degrees", problems, each["holds"]
