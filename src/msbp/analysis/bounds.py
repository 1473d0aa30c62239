"""The checks of the paper's lemmas and theorems as a table and a figure, from `theory.json`; no torch."""

import math
from collections.abc import Iterable, Iterator

import pandas as pd

from ..files import Fields
from .drawing import POINTS, Figure, Series
from .render import COMMAND, EMPTY, Document, Sheet, pipe_table
from .runs import Sources
from .settings import Config

RUN = "python -m src.theory"
HEADER = ["check", "condition", "bound", "measured, worst", "problems", "holds", COMMAND]


def table(config: Config, sources: Sources) -> Document:
    """Return bound and worst measurement of every check."""
    found = sources.theory
    text = Sheet(config["name"], config["caption"])
    rows = list(rows_of(found)) if found else []
    lines = [[*line, ""] for line in lines_of(rows)]
    lines = lines or [["not computed yet", *[EMPTY] * 5, RUN]]
    lines[0][-1] = RUN
    text.blocks.append(pd.DataFrame(lines, columns=HEADER))
    if found:
        text.below += [f"Not met by the paper's own network. {each}" for each in
                       found["broken_by_the_papers_network"]]  # fmt: skip
    numbers = pd.DataFrame(rows).drop(columns=["bound_text", "measured_text"]) if rows else pd.DataFrame()
    missing = [] if found else [RUN]
    return Document(
        config["name"], config["caption"], [text], numbers.round(6), missing=missing, measured=bool(found)
    )


def lines_of(rows: Iterable[Fields]) -> list[list[str]]:
    """Return the cells of checks."""
    texts = "check", "condition", "bound_text", "measured_text"
    return [
        [*(row[text] for text in texts), str(row["problems"]), "yes" if row["holds"] else "no"]
        for row in rows
    ]


def terminal(found: Fields) -> str:
    """Return the checks as a table for a terminal."""
    cells = pd.DataFrame(lines_of(rows_of(found)), columns=HEADER[:-1])
    return pipe_table(cells, ["left", "left", "right", "right", "right", "left"], "simple")


def figure(config: Config, sources: Sources) -> Document:
    """Return the worst measurement of every check as a share of its bound."""
    drawn = Figure("Bounds and measurements", "θ or bound (degrees)", "measured (degrees)")
    rows = list(rows_of(sources.theory)) if sources.theory else []
    angles = [row for row in rows if row["unit"] == "degrees"]
    for colour, name in enumerate(dict.fromkeys(row["check"] for row in angles), 1):
        points = [
            (row["bound"], row["measured"], None, None, row["problems"])
            for row in angles
            if row["check"] == name
        ]
        drawn.series.append(Series(name, pd.DataFrame(points, columns=POINTS).astype(float), colour))
    if angles:
        ends = [(edge, edge, None, None, None) for edge in (0.0, 90.0)]
        drawn.series.append(Series("bound", pd.DataFrame(ends, columns=POINTS).astype(float), 0, ":"))
    missing = [] if angles else [RUN]
    return Document(
        config["name"], config["caption"], numbers=drawn.numbers(), figure=drawn, missing=missing,
        measured=bool(angles),
    )  # fmt: skip


def rows_of(found: Fields) -> Iterator[Fields]:
    """Yield the checks: angles in degrees, factors as they are."""

    def row(check: str, condition: str, bound: float, measured: float, unit: str, **rest: object) -> Fields:
        form = "{:.2f}°" if unit == "degrees" else "{:.4f}"
        texts = {"bound_text": form.format(bound), "measured_text": form.format(round(measured, 4) + 0.0)}
        return (
            {"check": check, "condition": condition, "bound": bound, "measured": measured, "unit": unit}
            | texts
            | rest
        )

    for each in found.get("lemma_2", ()):
        about = {"problems": each["trials"], "holds": each["holds"]}
        yield row(
            "Lemma 2",
            f"ρ = {each['rho']:g}; cosine above its bound by",
            0.0,
            each["least_margin"],
            "",
            **about,
        )
    for each in found["lemma_3"]:
        for part, margin in each["least_margin"].items():
            about = {"problems": each["applies"][part], "holds": each["holds"]}
            if margin is not None:
                name = f"r = {each['r']:g}; δ({part}) below its bound by"
                yield row("Lemma 3", name, 0.0, math.degrees(margin) + 0.0, "", **about)
    for each in found["lemma_4"]:
        if each["applies"]:
            about = {"problems": each["applies"], "holds": each["holds"]}
            least = min(each["r"])
            angle = math.degrees(each["largest_angle"])
            yield row("Lemma 4", f"r ≥ {least:g}", math.degrees(each["theta"]), angle, "degrees", **about)
    for each in found["theorem_1"]:
        if each["applies"]:
            name = f"r = {each['r']:g}, μ/L = {each['mu_over_L']:g}; factor of a step"
            about = {"problems": each["steps"], "holds": each["holds"]}
            yield row("Theorem 1", name, each["sin_theta"], each["largest_factor"], "", **about)
    for each in found.get("theorem_2", ()):
        if each["applies"]:
            name = f"r = {each['r']:g}; data sets of {each['sizes'][0]} to {each['sizes'][-1]}"
            about = {"problems": each["trials"] * len(each["sizes"]), "holds": each["holds"]}
            angle = math.degrees(max(each["largest_angle"]))
            yield row("Theorem 2", name, math.degrees(each["theta"]), angle, "degrees", **about)
