"""The report as one HTML page that opens without a network: claims first, then what they rest on."""

import base64
from collections.abc import Iterable
from pathlib import Path

import jinja2

from .documents import Document
from .drawing import drawn
from .sheet import Grid
from .sources import Sources
from .verdicts import Claim

TEMPLATE = Path(__file__).with_name("page.html")


def page(documents: Iterable[Document], sources: Sources) -> str:
    """The page: figures are drawn into it, tables are the same cells as in Markdown and LaTeX."""
    every = list(documents)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"image": image, "measured": measured, "told": told}
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        claims=next((made for made in every if made.claims), None),
        tables=[made for made in every if made.sheets and not made.claims],
        figures=[made for made in every if made.figure],
        runs=len(sources.runs.records),
        places=places(sources),
    )


def image(document: Document) -> str:
    """The figure as an address that holds all of it."""
    assert document.figure
    return f"data:image/svg+xml;base64,{base64.b64encode(drawn(document.figure)['svg']).decode()}"


def measured(claim: Claim, grid: Grid) -> Grid:
    """The settings that were measured."""
    return Grid(grid.header, [grid.rows[place] for place in claim.rows_measured], [])


def told(grid: Grid) -> Grid:
    """The grid without empty columns."""
    kept = [column for column in range(len(grid.header)) if any(row[column] for row in grid.rows)]
    return Grid([grid.header[i] for i in kept], [[row[i] for i in kept] for row in grid.rows], [])


def places(sources: Sources) -> list[str]:
    """With what the runs were made."""
    runs = sources.runs.records.values()
    return sorted({f"{run['cpu']}, torch {run['torch']}, commit {run['commit'][:8]}" for run in runs})
