"""The report: a summary for the terminal, one document in full, and all of them as one HTML page."""

import base64
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import jinja2
import pandas as pd
from hydra.utils import get_method
from rich.console import Console
from rich.progress import track

from . import benchmark_tables, benchmarks, bounds, breakdown_tables
from .claims import Claim
from .forests import forest_rows
from .headline import LEGEND
from .render import Document, markdown, pipe_table, renderings
from .runs import Sources
from .settings import Config
from .verdicts import Word

TEMPLATE = Path(__file__).with_name("page.html")
ROWS = "msbp.analysis.table_text.document"
FIRST, PICTURE = "headline", "tradeoff"
WIDTH, HEIGHT = 100, 30  # of the summary on a terminal
Item = TypeVar("Item")


def document(config: Config, sources: Sources) -> Document:
    """Return what the config's _target_ gives; a table of rows where it names none."""
    make: Callable[[Config, Sources], Document] = get_method(config.get("_target_", ROWS))
    return make(config, sources)


def tracked(items: Sequence[Item], what: str) -> Iterator[Item]:
    """Yield the items, with a bar on stderr where that is a terminal, and a line for each tenth elsewhere."""
    console = Console(stderr=True)
    if console.is_terminal:
        yield from track(items, what, console=console, transient=True)
        return
    for number, item in enumerate(items, 1):
        yield item
        if number * 10 // len(items) > (number - 1) * 10 // len(items):
            print(f"{what}: {number} of {len(items)}", file=sys.stderr)


def ordered(documents: Iterable[Document]) -> list[Document]:
    """Return the table of results first, then what has results, then the rest."""
    return sorted(documents, key=lambda each: (each.name != FIRST, not each.has_results))


def in_full(document: Document, where: Sequence[str]) -> str:
    """Return a document as Markdown: of a table the blocks that have runs, where some have."""
    if not document.filled or not document.blank:
        return renderings(document)["md"]
    blank = f"{', '.join(document.blank)}: no runs yet; {reproduce(document, where)}"
    return f"# {document.caption}\n\n{markdown(document.filled)}\n{blank}\n"


def reproduce(document: Document, where: Sequence[str]) -> str:
    """Return the command that runs what the document lacks."""
    if document.missing == [bounds.RUN]:
        return bounds.RUN
    kind = "figure" if document.figure else "table"
    return shlex.join(["python", "scripts/reproduce.py", f"{kind}={document.name}", *where])


def summary(documents: Sequence[Document], others: Sequence[str], where: Sequence[str] = ()) -> list[str]:
    """Return at most HEIGHT lines of at most WIDTH letters: results, verdicts, and runs that are in no table.

    others: a line for each setting of such runs. where: overrides with which commands leave more here.
    """
    lines = []
    headline = next((each for each in documents if each.name == FIRST), None)
    if headline and headline.filled:
        lines += plain_table(headline.filled.blocks)
        found = [note for note in headline.filled.below if note != LEGEND]
        lines += [line for note in found for line in wrapped(note)] + [""]
    lines += verdict_lines([claim for each in documents for claim in each.claims])
    if lacking := [each.name for each in documents if each.missing and each.name != FIRST]:
        command = shlex.join(["python", "scripts/reproduce.py", "all", *where])
        lines += wrapped(f"incomplete: {', '.join(lacking)}; {command} runs what is missing")
    if others:
        lines += ["", "Runs that are in no table; other.md has their times:"]
        room = HEIGHT - 2 - len(lines)
        shown = others if len(others) <= room else others[: max(room - 1, 1)]
        lines += [textwrap.shorten(line, WIDTH, placeholder=" …") for line in shown]
        lines += [f"and {len(others) - len(shown)} more settings"] if len(shown) < len(others) else []
    return lines


def plain_table(blocks: Sequence[pd.DataFrame]) -> list[str]:
    """Return the lines of one table, in which the first heading of a further block is a line."""
    rows: list[Sequence[str]] = []
    for block in blocks:
        rows += [[f"{block.columns[0]}:", *[""] * (block.shape[1] - 2)]] if block is not blocks[0] else []
        rows += block.iloc[:, :-1].to_numpy().tolist()
    cells = pd.DataFrame(rows, columns=blocks[0].columns[:-1])
    return pipe_table(cells, ["left", *["right"] * (cells.shape[1] - 1)], "plain").splitlines()


def verdict_lines(claims: Sequence[Claim]) -> Iterator[str]:
    """Yield the claims that are decided by their verdicts, and how many are open."""
    for word in Word:
        titles = [claim.config["title"] for claim in claims if claim.word == word]
        if titles and word == Word.OPEN:
            yield f"open: {len(titles)} of {len(claims)} claims"
        elif titles:
            yield from wrapped(f"{word}: {'; '.join(titles)}")


def wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)


def page(documents: Iterable[Document], sources: Sources) -> str:
    """Return the page, which needs no network: figures are within, tables have the cells of Markdown."""
    every = list(documents)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "image": image, "compact": compact, "forest": forest_rows,
    }  # fmt: skip
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    runs = sources.runs
    places = runs.cpu + ", torch " + runs.torch + ", commit " + runs.commit.str[:8] if len(runs) else []
    return template.render(
        headline=next((each for each in every if each.name == FIRST), None),
        picture=next((each for each in every if each.name == PICTURE), None),
        claims=next((each for each in every if each.claims), None),
        tables=[each for each in every if each.sheets and not each.claims],
        figures=[each for each in every if each.figure],
        benchmarks=list(map(benchmark, [*sources.benchmarks, *sources.breakdowns])),
        legend=[*benchmark_tables.LEGEND.splitlines(), *benchmark_tables.rule_notes(sources.benchmarks)],
        runs=len(runs),
        places=sorted(set(places)),
    )


def image(document: Document) -> str:
    """Return the figure as an address that holds all of it."""
    return f"data:image/svg+xml;base64,{base64.b64encode(document.images['svg']).decode()}"


def compact(block: pd.DataFrame) -> pd.DataFrame:
    """Return the block without commands and empty columns."""
    cells = block.drop(columns="command", errors="ignore")
    return cells.loc[:, (cells != "").any().to_numpy()]


def benchmark(result: benchmarks.Result) -> tuple[str, str, pd.DataFrame]:
    """Return name and machine, command and cells of a benchmark."""
    cells = benchmark_tables.sweep_cells if result["sweep"] else benchmark_tables.case_cells
    if benchmarks.breaks_down(result):
        cells = breakdown_tables.cells
    title = f"{benchmarks.name(result)}: {benchmark_tables.place(result)}"
    return title, benchmarks.command(result), cells(result)
