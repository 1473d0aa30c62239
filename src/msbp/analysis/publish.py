"""Publication of records, their tables and figures, and READMEs that show them.

A record enters as it was measured and is only ever replaced by another run of its signature and seed.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from ..files import Fields, json_text, save
from . import benchmarks, breakdown_tables
from .claims import bullets
from .comparisons import answered
from .render import MARKDOWN, Document, bullet, files, markdown, wrapped
from .report import document
from .runs import ANGLE_KEY, published, read_angles, read_runs
from .settings import CLAIMS, Config, Settle

SHOWN = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
KEY = ["signature", "seed"]
VERDICTS, BEYOND = "verdicts", "beyond"  # the names of the lists of claims and of further answers on a page


@dataclass
class Change:
    """The effect of publishing on the records of some rows: old gives way to new, the others stay.

    replaced has the columns of both, old and new.
    """

    added: pd.DataFrame
    replaced: pd.DataFrame
    kept: pd.DataFrame

    @property
    def mixed(self) -> pd.DataFrame:
        """The replacements by a run of another commit that leave other commits in the row."""
        staying = self.kept.groupby("signature").commit.agg(set)
        others = [staying.get(row, set()) for row in self.replaced.signature]
        mixes = np.array(
            [bool(set(o) - {new}) for o, new in zip(others, self.replaced.commit_new, strict=True)],
            dtype=bool,
        )
        return self.replaced[(self.replaced.commit_old != self.replaced.commit_new) & mixes]

    def lines(self) -> Iterator[str]:
        """Yield the counts, then a line for each replacement."""
        yield f"{len(self.added)} added, {len(self.replaced)} replaced, {len(self.kept)} kept as they were"
        yield from (f"replaced {exchange(row)}" for _, row in self.replaced.iterrows())


def publish(
    documents: Sequence[Document], path: Path, allow_dirty: bool = False, replace: bool = False
) -> Change:
    """Put every record that the documents use into the file at path; ValueError where one must not be.

    allow_dirty: also runs of uncommitted code. replace: also by runs of another commit, though others stay.
    """
    if missing := [each.name for each in documents if each.used.empty]:
        raise ValueError(f"no runs of {', '.join(missing)} on record; python -m src.report lists what to run")
    chosen = pd.concat([each.used for each in documents]).drop_duplicates(KEY)  # rows share runs
    for _, run in chosen.iterrows():
        refuse_unfit(run, allow_dirty)
    chosen["record"] = chosen.record.map(without_paths)
    damaged: list[str] = []
    old = read_runs(path, damaged)
    refuse_damaged(damaged)
    change = change_of(old, chosen)
    if len(change.mixed) and not replace:
        raise ValueError(mixing(change))
    stored = {(run["signature"], run["seed"]): run for run in (*in_file_order(old), *chosen.record)}
    save({path: "".join(map(json_text, stored.values()))})
    return change


def in_file_order(runs: pd.DataFrame) -> list[Fields]:
    """Return stored records by the number at the end of their source."""
    numbers = runs.source.str.extract(r"(\d+)$", expand=False).astype(int)
    return list(runs.record[numbers.sort_values().index])


def change_of(old: pd.DataFrame, chosen: pd.DataFrame) -> Change:
    """Return the change to the rows, known by signature, that the chosen records belong to."""
    rows = old[old.signature.isin(chosen.signature)]
    both = rows.merge(chosen, on=KEY, suffixes=("_old", "_new"))
    differ = np.array([a != b for a, b in zip(both.record_old, both.record_new, strict=True)], dtype=bool)
    replaced = both[differ]
    known = pd.MultiIndex.from_frame(rows[KEY])
    changed = pd.MultiIndex.from_frame(replaced[KEY])
    added = chosen[~pd.MultiIndex.from_frame(chosen[KEY]).isin(known)]
    return Change(added, replaced, rows[~known.isin(changed)])


def publish_angles(document: Document, path: Path) -> int:
    """Put the angles that the document shows into the file at path; return how many they are."""
    damaged: list[str] = []
    kept = read_angles([path], damaged)
    refuse_damaged(damaged)
    angles = pd.concat([kept, document.angles]).drop_duplicates(ANGLE_KEY, keep="last")
    save({path: "".join(map(json_text, angles.record))})
    return len(document.angles)


def refuse_damaged(damaged: Sequence[str]) -> None:
    """Raise ValueError that names the damaged files, if any."""
    if damaged:
        raise ValueError(f"repair what is published first: {'; '.join(damaged)}")


def without_paths(value: object) -> object:
    """Return the value without the paths of one machine: config.paths and absolute ones."""
    if isinstance(value, dict):
        kept = {name: part for name, part in value.items() if name != "paths" and not is_path(part)}
        return {name: without_paths(part) for name, part in kept.items()}
    if isinstance(value, list):
        return [without_paths(part) for part in value if not is_path(part)]
    return value


def is_path(value: object) -> bool:
    return isinstance(value, str) and os.path.isabs(value)


def mixing(change: Change) -> str:
    exchanges = "; ".join(exchange(row) for _, row in change.mixed.iterrows())
    return (
        f"would mix commits within a row, of which other seeds stay: {exchanges}. Run the row's other seeds "
        "with this commit, too, and publish all of it; or replace these all the same with replace=true"
    )


def exchange(row: pd.Series) -> str:
    named = f"{row.task_old} {row.method_old} seed {row.seed} ({row.signature})"
    return f"{named}: commit {row.commit_old[:8]} by {row.commit_new[:8]}"


def refuse_unfit(run: pd.Series, allow_dirty: bool) -> None:
    """Raise ValueError for a run that must not be published."""
    named = f"{run.task} {run.method} seed {run.seed} ({run.signature})"
    if run["sample"] == "tiny":  # run.sample is a method of pandas
        raise ValueError(f"{named} ran on a tiny synthetic sample: trials are never published")
    if (run.dirty or run.commit == "unknown") and not allow_dirty:
        raise ValueError(
            f"{named} ran on uncommitted code, so nobody can repeat it from commit {run.commit[:8]}: "
            "commit and run again with force=true, or publish it all the same with allow_dirty=true"
        )


def contents(
    folder: Path,
    readme: Path,
    configs: Mapping[str, Config],
    settle: Settle,
    new: Iterable[str] = (),
    draw: bool = True,
) -> dict[Path, str | bytes]:
    """Return by file what READMEs, tables and figures should hold; new: names to render for the first time.

    The parts between markers are rendered in the README, and in the one of the folder if it has one.

    draw=False leaves images empty: they look different with every release of matplotlib, and follow from
    their CSV.
    """
    sources = published(folder, settle)
    refuse_damaged(sources.damaged)
    documents: dict[str, Document] = {}

    def render(name: str) -> Document:
        if name not in documents:
            documents[name] = document(configs[name], sources)
        return documents[name]

    rendered = [name for name in configs if name in new or (folder / f"{name}.csv").exists()]
    texts: dict[Path, str | bytes] = {}
    for name in rendered:
        texts |= {folder / f"{name}.{suffix}": text for suffix, text in files(render(name), draw).items()}
    measured = sources.benchmarks
    if measured or sources.breakdowns:
        cases = benchmarks.markdown(measured, rows=None)
        texts[folder / "bench.md"] = cases + breakdown_tables.section(sources.breakdowns)

    def part(name: str, page: Path) -> str:
        if name == "bench":
            alone = (run for run in measured if benchmarks.name(run) == run["case"])
            return benchmarks.summary(alone)
        if name == VERDICTS:
            return bullets(render(CLAIMS).claims)
        if name == BEYOND:
            lines = answered({n: c for n, c in configs.items() if "questions" in c}, sources)
            return "".join(f"{bullet(line)}\n" for line in lines)
        if name not in configs:
            raise ValueError(
                f"{page} shows table: {name}; there are bench, {VERDICTS}, {BEYOND}, {', '.join(configs)}"
            )
        return shown(render(name), os.path.relpath(folder, page.parent))

    pages = [readme, *[page for page in [folder / "README.md"] if page.exists()]]
    refuse_damaged(sources.damaged)  # translations are read where tables need them
    return texts | {page: shown_in(page.read_text("utf-8"), partial(part, page=page)) for page in pages}


def shown(document: Document, folder: str) -> str:
    """Return what a page shows: a table, or a figure with its note, or the commands for what is missing."""
    if document.figure is None:
        return markdown(document.sheets[0])
    if document.figure.empty:
        return (
            f"{document.caption} Not measured yet: {'; '.join(f'`{words}`' for words in document.missing)}\n"
        )
    image = f"![{document.caption}]({'' if folder == '.' else f'{folder}/'}{document.name}.svg)\n"
    note = document.figure.note if folder == "." else ""  # the front page shows the image alone
    return image + (f"\n{wrapped(note.translate(MARKDOWN))}\n" if note else "")


def shown_in(text: str, part: Callable[[str], str]) -> str:
    """Return the text with the part of that name between every `table: NAME` and `end of table`."""
    return SHOWN.sub(lambda match: f"{match[1]}{part(match[2])}{match[3]}", text)


def stale(files: Mapping[Path, str | bytes]) -> list[Path]:
    """Return the files that do not exist, or differ from the text they should have."""
    return [path for path, content in files.items() if not path.exists() or differs(path, content)]


def differs(path: Path, content: str | bytes) -> bool:
    return isinstance(content, str) and path.read_text("utf-8") != content
