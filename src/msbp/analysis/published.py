"""What the project publishes: records, tables and figures of them, and a README that shows some."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from . import benchmark_tables, benchmarks
from .documents import Document, document
from .drawing import IMAGES, drawn
from .formats import markdown, renderings
from .settings import Settle
from .sources import published
from .wanted import Config

SHOWN = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def contents(
    folder: Path,
    readme: Path,
    configs: Mapping[str, Config],
    settle: Settle,
    new: Iterable[str] = (),
    draw: bool = True,
) -> dict[Path, str | bytes]:
    """By file, what README, tables and figures should hold; new: names of those to render for the first time.

    draw=False leaves images empty: they look different with every release of matplotlib, and follow from
    their CSV.
    """  # fmt: skip
    sources = published(folder, settle)
    if sources.runs.damaged:
        raise ValueError(f"repair what is published first: {'; '.join(sources.runs.damaged)}")
    made = {}

    def make(name: str) -> Document:
        if name not in made:
            made[name] = document(configs[name], sources)
        return made[name]

    rendered = [name for name in configs if name in new or (folder / f"{name}.csv").exists()]
    files: dict[Path, str | bytes] = {}
    for name in rendered:
        files |= {folder / f"{name}.{suffix}": text for suffix, text in files_of(make(name), draw).items()}
    measured = sources.benchmarks
    if measured:
        files[folder / "bench.md"] = benchmark_tables.markdown(measured, rows=None)

    def part(name: str) -> str:
        if name == "bench":
            return benchmark_tables.summary(run for run in measured if benchmarks.name(run) == run["case"])
        if name not in configs:
            raise ValueError(f"{readme} shows table: {name}; there are bench, {', '.join(configs)}")
        return shown(make(name), os.path.relpath(folder, readme.parent))

    return files | {readme: shown_in(readme.read_text(encoding="utf-8"), part)}


def files_of(document: Document, draw: bool = True) -> dict[str, str | bytes]:
    """All that is written of a document, by file suffix."""
    files: dict[str, str | bytes] = {**renderings(document)}
    if document.figure and not document.figure.empty:
        files |= drawn(document.figure) if draw else dict.fromkeys(IMAGES, b"")
    return files


def shown(document: Document, folder: str) -> str:
    """What the README shows: a table, or a figure as a link to its image, or what is missing."""
    if document.figure is None:
        return markdown(document.sheets[0])
    if document.figure.empty:
        return f"{document.caption} Not measured yet: {'; '.join(f'`{words}`' for words in document.lacks)}\n"
    return f"![{document.caption}]({folder}/{document.name}.svg)\n"


def shown_in(text: str, part: Callable[[str], str]) -> str:
    """The text with the part of that name between every `table: NAME` and `end of table`."""
    return SHOWN.sub(lambda found: f"{found[1]}{part(found[2])}{found[3]}", text)


def stale(files: Mapping[Path, str | bytes]) -> list[Path]:
    """The files that are not there, or differ from the text they should have."""
    return [path for path, content in files.items() if not path.exists() or _differs(path, content)]


def _differs(path: Path, content: str | bytes) -> bool:
    return isinstance(content, str) and path.read_text("utf-8") != content
