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

from ..files import Fields, json_text
from ..measurements import Result, by_default, packed_file, read_benchmarks, read_translations
from ..record import HYPOTHESES, signature
from . import benchmarks
from .claims import Claims, bullets
from .differences import answered
from .figures import Plot
from .render import MARKDOWN, Document, bullet, markdown, wrapped
from .report import document
from .runs import ANGLE_KEY, published, read_angles, read_runs
from .settings import CLAIMS, Config, Settle

SHOWN = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
MARKS = re.compile(r"<!-- (table): \w+ -->\n|<!-- (end) of table -->")
KEY = ["signature", "seed"]
VERDICTS, BEYOND = "verdicts", "beyond"  # the names of the lists of claims and of further answers on a page


@dataclass
class Change:
    """The effect of publishing on the records of some rows: old gives way to new, the others stay.

    Columns of a stored record end in _old, of a new one in _new. text: the file of records with the change.
    """

    added: pd.DataFrame
    replaced: pd.DataFrame
    kept: pd.DataFrame
    text: str = ""

    @property
    def mixed(self) -> pd.DataFrame:
        """The replacements by a run of another commit that leave other commits in the row."""
        staying = self.kept.groupby("signature").commit_old.agg(set)
        others = (staying.get(row, set()) for row in self.replaced.signature)
        mixes = [bool(o - {new}) for o, new in zip(others, self.replaced.commit_new, strict=True)]
        return self.replaced[(self.replaced.commit_old != self.replaced.commit_new) & np.array(mixes, bool)]

    def lines(self) -> Iterator[str]:
        """Yield the counts, then a line for each replacement."""
        yield f"{len(self.added)} added, {len(self.replaced)} replaced, {len(self.kept)} kept as they were"
        yield from (f"replaced {exchange(row)}" for _, row in self.replaced.iterrows())


def with_records(
    documents: Sequence[Document], path: Path, allow_dirty: bool = False, replace: bool = False
) -> Change:
    """Return the change to the file at path by the records that the documents use.

    ValueError where a record must not be published.

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
        exchanges = "; ".join(exchange(row) for _, row in change.mixed.iterrows())
        raise ValueError(
            f"would mix commits within a row, of which other seeds stay: {exchanges}. Run the row's other "
            "seeds with this commit, too, and publish all of it; or replace these all the same with "
            "replace=true"
        )
    lines = old.source.str.extract(r"(\d+)$", expand=False).astype(int)  # "PATH line NUMBER"
    every = [*old.record[lines.sort_values().index], *chosen.record]
    stored = {(run["signature"], run["seed"]): run for run in every}
    change.text = "".join(map(json_text, stored.values()))
    return change


def change_of(old: pd.DataFrame, chosen: pd.DataFrame) -> Change:
    """Return the change to the rows, known by signature, that the chosen records belong to."""
    rows = old[old.signature.isin(chosen.signature)]
    every = rows.merge(chosen, "outer", KEY, suffixes=("_old", "_new"), indicator="found")
    added = every.found == "right_only"
    replaced = (every.found == "both") & (every.record_old != every.record_new)
    return Change(every[added], every[replaced], every[~added & ~replaced])


def with_angles(document: Plot, path: Path, change: Change) -> str:
    """Return the file of angles at path with those that the document shows.

    Angles give way to others only where the change replaces the record of their run.
    """
    damaged: list[str] = []
    old = read_angles([path], damaged)
    refuse_damaged(damaged)
    new = pd.concat([change.added, change.replaced]).set_index(KEY).index
    staying = old[~old.set_index(KEY).index.isin(new)]
    angles = pd.concat([staying, document.angles]).drop_duplicates(ANGLE_KEY)
    return "".join(map(json_text, angles.record))


def refuse_damaged(damaged: Sequence[str]) -> None:
    """Raise ValueError that names the damaged files, if any."""
    if damaged:
        raise ValueError(f"repair what is published first: {'; '.join(damaged)}")


def without_paths(value: object) -> object:
    """Return the value without the paths of one machine: config.paths and absolute ones."""

    def is_path(part: object) -> bool:
        return isinstance(part, str) and os.path.isabs(part)

    if isinstance(value, dict):
        kept = {name: part for name, part in value.items() if name != "paths" and not is_path(part)}
        return {name: without_paths(part) for name, part in kept.items()}
    if isinstance(value, list):
        return [without_paths(part) for part in value if not is_path(part)]
    return value


def exchange(row: pd.Series) -> str:
    named = f"{row.task_old} {row.method_old} seed {row.seed} ({row.signature})"
    return f"{named}: commit {row.commit_old[:8]} by {row.commit_new[:8]}"


def refuse_altered(runs: pd.DataFrame) -> None:
    """Raise ValueError for a run whose signature, task or method is not that of its configuration."""
    for _, run in runs.iterrows():
        config = run.config
        described = signature(config), config["task"].get("name"), config["method"].get("name")
        if described != (run.signature, run.task, run.method):
            raise ValueError(
                f"{run.task} {run.method} seed {run.seed} ({run.signature}): its configuration is that of "
                f"{described[1]} {described[2]} ({described[0]}), so the record was altered; run it again"
            )


def uncommitted(measured: pd.Series | Fields) -> bool:
    """Return whether no commit has the code of a measurement, so that nobody can repeat it."""
    return bool(measured["dirty"]) or measured["commit"] == "unknown"


def refuse_unfit(run: pd.Series, allow_dirty: bool) -> None:
    """Raise ValueError for a run that must not be published."""
    named = f"{run.task} {run.method} seed {run.seed} ({run.signature})"
    if run["sample"] == "tiny":  # run.sample is a method of pandas
        raise ValueError(f"{named} ran on a tiny synthetic sample: trials are never published")
    if uncommitted(run) and not allow_dirty:
        raise ValueError(
            f"{named} ran on uncommitted code, so nobody can repeat it from commit {run.commit[:8]}: "
            "commit and run again with force=true, or publish it all the same with allow_dirty=true"
        )


def without_uncommitted(theory: Fields | None, allow_dirty: bool) -> Fields:
    """Return the checks of the theory; ValueError for none, and for those of code that no commit has."""
    if theory is None:
        raise ValueError("the bounds were not checked yet: python -m src.theory")
    if uncommitted(theory) and not allow_dirty:
        raise ValueError(
            "the bounds were checked by uncommitted code: commit and run python -m src.theory again, or "
            "publish them all the same with allow_dirty=true"
        )
    return theory


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
        texts |= {folder / f"{name}.{suffix}": text for suffix, text in render(name).files(draw).items()}
    measured = sources.benchmarks
    if measured or sources.breakdowns:
        cases = benchmarks.markdown(measured, rows=None)
        texts[folder / "bench.md"] = cases + benchmarks.breakdown_section(sources.breakdowns)

    def part(name: str, page: Path) -> str:
        if name == "bench":
            return benchmarks.summary(run for run in measured if by_default(run) and not run["sweep"])
        if name == VERDICTS:
            claims = render(CLAIMS)
            assert isinstance(claims, Claims)
            return bullets(claims.claims)
        if name == BEYOND:
            lines = answered({n: c for n, c in configs.items() if "questions" in c}, sources)
            return "".join(f"{bullet(line)}\n" for line in lines)
        if name not in configs:
            raise ValueError(
                f"{page} shows table: {name}; there are bench, {VERDICTS}, {BEYOND}, {', '.join(configs)}"
            )
        return shown(render(name), os.path.relpath(folder, page.parent))

    pages = [readme, *[page for page in [folder / "README.md"] if page.exists()]]
    texts |= {page: shown_in(text_of(page), partial(part, page=page), page) for page in pages}
    refuse_damaged(sources.damaged)  # translations are read where tables need them
    return texts


def text_of(page: Path) -> str:
    """Return the text of a README; ValueError names it where there is none."""
    try:
        return page.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{page}: cannot read the file whose tables are rendered anew ({error}); paths.readme names it: "
            "leave it out for the project's own"
        ) from error


def shown(document: Document, folder: str) -> str:
    """Return what a page shows: a table, or a figure with its note, or the commands for what is missing."""
    if not isinstance(document, Plot):
        return markdown(document.sheets[0])
    if document.figure.empty:
        return (
            f"{document.caption} Not measured yet: {'; '.join(f'`{words}`' for words in document.missing)}\n"
        )
    image = f"![{document.caption}]({'' if folder == '.' else f'{folder}/'}{document.name}.svg)\n"
    if folder != ".":  # the front page has no notes
        return image
    note = f"{document.figure.note.translate(MARKDOWN)} {document.repeat}"
    return f"{image}\n{wrapped(note.strip())}\n"


def shown_in(text: str, part: Callable[[str], str], page: object = "the text") -> str:
    """Return the text with the part of that name between every `table: NAME` and `end of table`.

    ValueError names the page unless the two markers take turns.
    """
    marks = [match[1] or match[2] for match in MARKS.finditer(text)]
    if marks != ["table", "end"] * (len(marks) // 2):
        names = ", ".join(re.findall(r"<!-- table: (\w+) -->\n", text))
        raise ValueError(
            f"{page}: each <!-- table: NAME --> needs one <!-- end of table --> after it, before the next "
            f"(tables: {names or 'none'}; {marks.count('end')} ends)"
        )
    return SHOWN.sub(lambda match: f"{match[1]}{part(match[2])}{match[3]}", text)


def stale(files: Mapping[Path, str | bytes]) -> list[Path]:
    """Return the files that do not exist, or differ from the text they should have; images may differ."""
    texts = {path: content for path, content in files.items() if isinstance(content, str)}
    missing = [path for path in files if not path.exists()]
    return missing + [path for path in texts if path.exists() and path.read_text("utf-8") != texts[path]]


def with_benchmarks(measured: Path, path: Path, allow_dirty: bool = False) -> list[Result]:
    """Return the results in the file at path with those of a folder, each in place of the one of its name.

    ValueError for those of uncommitted code, which nobody can repeat, unless allow_dirty; for partial ones;
    and where a file of either is damaged.
    """
    damaged: list[str] = []
    new, old = read_benchmarks(measured, damaged), read_benchmarks(path, damaged)
    if damaged:
        raise ValueError(f"repair or remove first: {'; '.join(damaged)}")
    if not new:
        raise ValueError(f"no results in {measured}; python -m src.bench case=mnist leaves one there")
    dirty = [benchmarks.name(result) for result in new if uncommitted(result)]
    if dirty and not allow_dirty:
        raise ValueError(
            f"{', '.join(dirty)}: measured on uncommitted code, so nobody can repeat it; commit and measure "
            "again, or publish it all the same with allow_dirty=true"
        )
    partial = [f"{benchmarks.name(each)} ({each['settings']})" for each in new if each.get("settings")]
    if partial:
        raise ValueError(f"{', '.join(partial)}: only full benchmarks are published; measure without these")
    results = {benchmarks.name(result): result for result in [*old, *new]}
    return [result for _, result in sorted(results.items())]


def translations_of(runs: pd.DataFrame, folder: Path) -> dict[Path, bytes]:
    """Return the translations that runs left, by their files in the folder of what is published."""
    folders = [Path(source).parent for source in runs.source]
    return {
        packed_file(folder, run.signature, run.seed): read_translations(path).packed()
        for path, run in zip(folders, runs.itertuples(), strict=True)
        if (path / HYPOTHESES).exists()
    }
