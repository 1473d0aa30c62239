"""The report: a summary for the terminal, one document in full, all of them as one HTML page.

Runs that no table shows have a table of their own, and a line of the summary for each setting.
"""

import base64
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

import jinja2
import pandas as pd
from hydra.errors import HydraException
from hydra.utils import get_method
from rich.console import Console
from rich.progress import track

from ..files import Fields
from ..measurements import Result
from ..record import counts, different, flat, settings, signature
from . import benchmarks, theory
from .claim import Claim
from .claims import Claims, forest_rows
from .figures import Plot
from .render import Document, markdown, pipe_table
from .runs import Sources
from .settings import SECONDS, Compose, Config
from .table_text import LEGEND, document_of
from .tables import filled
from .verdicts import Word

TEMPLATE = Path(__file__).with_name("page.html")
ROWS = "msbp.analysis.table_text.document"
FIRST, PICTURE = "headline", "tradeoff"
WIDTH, HEIGHT = 100, 30  # of the summary on a terminal
METRIC_HEADERS = {"accuracy": "Acc (%)", "uas": "UAS (%)", "bleu": "Test BLEU"}
BASELINE = "baseline"
GROUPS = "task", "method", "model"
SHOWN = 6  # keys of a line, for which one of the terminal has room
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
        return document.texts()["md"]
    blank = f"{', '.join(document.blank)}: no runs yet; {reproduce(document, where)}"
    return f"# {document.caption}\n\n{markdown(document.filled)}\n{blank}\n"


def reproduce(document: Document, where: Sequence[str]) -> str:
    """Return the command that runs what the document lacks."""
    if document.missing == [theory.RUN]:
        return theory.RUN
    kind = "figure" if isinstance(document, Plot) else "table"
    return shlex.join(["python", "scripts/reproduce.py", f"{kind}={document.name}", *where])


def summary(documents: Sequence[Document], others: Sequence[str], where: Sequence[str] = ()) -> list[str]:
    """Return at most HEIGHT lines of at most WIDTH letters: results, verdicts, and runs that are in no table.

    others: a line for each setting of such runs. where: overrides with which commands leave more here.
    """
    lines = []
    headline = next((each for each in documents if each.name == FIRST), None)
    if headline and headline.filled:
        lines += plain_table(headline.filled.blocks)
        notes = [note for note in headline.filled.below if note != LEGEND]
        lines += [line for note in notes for line in wrapped(note)] + [""]
    lines += verdict_lines([claim for each in documents if isinstance(each, Claims) for claim in each.claims])
    if lacking := [each.name for each in documents if each.missing and each.name != FIRST]:
        command = shlex.join(["python", "scripts/reproduce.py", "all", *where])
        lines += wrapped(f"with rows that lack runs: {', '.join(lacking)}; {command} runs them")
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
    return pipe_table(cells, style="plain").splitlines()


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
    environment.filters |= {"image": image, "compact": compact, "forest": forest_rows}
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    runs = sources.runs
    platforms = runs.cpu + ", torch " + runs.torch + ", commit " + runs.commit.str[:8] if len(runs) else []
    return template.render(
        headline=next((each for each in every if each.name == FIRST), None),
        picture=next((each for each in every if each.name == PICTURE), None),
        claims=next((each for each in every if isinstance(each, Claims)), None),
        tables=[each for each in every if not isinstance(each, Claims | Plot)],
        figures=[each for each in every if isinstance(each, Plot)],
        benchmarks=list(map(benchmark, [*sources.benchmarks, *sources.breakdowns])),
        legend=[*benchmarks.LEGEND.splitlines(), *benchmarks.rule_notes(sources.benchmarks)],
        runs=len(runs),
        platforms=sorted(set(platforms)),
    )


def image(document: Plot) -> str:
    """Return the figure as an address that holds all of it."""
    return f"data:image/svg+xml;base64,{base64.b64encode(document.images['svg']).decode()}"


def compact(block: pd.DataFrame) -> pd.DataFrame:
    """Return the block without commands and empty columns."""
    cells = block.drop(columns="command", errors="ignore")
    return cells.loc[:, (cells != "").any().to_numpy()]


def benchmark(result: Result) -> tuple[str, str, pd.DataFrame]:
    """Return name and machine, command and cells of a benchmark."""
    title = f"{benchmarks.name(result)}: {benchmarks.platform(result)}"
    return title, benchmarks.command(result), benchmarks.cells(result)


def unused(runs: pd.DataFrame, documents: Iterable[Document]) -> pd.DataFrame:
    """Return the runs that none of the documents shows."""
    used = {signature for each in documents if len(each.used) for signature in each.used.signature}
    return runs[~runs.signature.isin(used)]


def other(runs: pd.DataFrame, documents: Iterable[Document]) -> list[Document]:
    """Return at most one table of the runs that no document shows.

    It has a block for each configuration that methods share, and in it a row for each setting.
    """
    rest = unused(runs, documents)
    if rest.empty:
        return []
    shared = rest.config.map(lambda config: signature({k: v for k, v in config.items() if k != "method"}))
    titles = sorted(block_titles(rest, shared).items(), key=lambda item: item[1])
    rows = [
        {**row, "block": number}
        for number, (key, title) in enumerate(titles)
        for row in block_rows(rest[shared == key], title)
    ]
    columns = [*SECONDS, "score"]
    return [document_of(filled("other", "Runs of other settings.", columns, pd.DataFrame(rows), rest))]


def block_rows(runs: pd.DataFrame, title: str) -> list[Fields]:
    """Return a row for each setting, the baseline first, and empty where there is none."""
    first = [part.iloc[0] for _, part in runs.groupby("signature", sort=False)]
    alike = [run.config["method"] for run in first]
    first.sort(key=lambda run: (run.method != BASELINE, label(run, alike)))
    header = METRIC_HEADERS.get(first[0].metric, first[0].metric)
    about = {"title": title, "task": first[0].task, "seeds": 1, "header": header}
    rows = [
        {**about, "label": label(run, alike), **run[["method", "signature", "r", "gamma", "hidden"]]}
        for run in first
    ]
    if rows[0]["method"] != BASELINE:
        rows.insert(0, {**about, "label": BASELINE, "method": BASELINE, "signature": ""})
    return rows


def block_titles(runs: pd.DataFrame, shared: pd.Series) -> dict[str, str]:
    """Return a title for each configuration, with the keys that differ where the rest would be the same."""
    first = {key: part.iloc[0] for key, part in runs.groupby(shared)}
    bare = {key: title(run) for key, run in first.items()}
    configs = {key: dict(flat(run.config)) for key, run in first.items()}
    titles = {}
    for key, own in configs.items():
        alike = [configs[other] for other, name in bare.items() if name == bare[key]]
        keys = [name for name in own if name.split(".")[0] != "method" and counts(name, own[name])]
        apart = [name for name in keys if any(config.get(name) != own[name] for config in alike)]
        titles[key] = ", ".join([bare[key], *(f"{name}={own[name]}" for name in apart)])
    return titles


def title(run: pd.Series) -> str:
    sample = " on its tiny synthetic sample" if run["sample"] == "tiny" else ""
    epochs = len(run.history)
    width = "" if pd.isna(run.hidden) else f"h={int(run.hidden)}, "
    return f"{run.task}{sample} ({width}{epochs} epoch{'s' * (epochs != 1)})"


def label(run: pd.Series, alike: Sequence[dict]) -> str:
    """Return the method with r and γ, and the keys in which it differs from another row of that method."""
    own = run.config["method"]
    same = [method for method in alike if method.get("name") == own.get("name")]
    varied = [key for key in own if any(method.get(key) != own[key] for method in same)]
    letters = [f"{name}={run[key]:g}" for name, key in (("r", "r"), ("γ", "gamma")) if not pd.isna(run[key])]
    words = letters + [f"{key}={own[key]}" for key in varied if key not in ("r", "gamma")]
    return run.method + (f" ({', '.join(words)})" if words else "")


def listed(runs: pd.DataFrame, compose: Compose) -> Iterator[str]:
    """Yield a line for each setting: task, method, the keys off their default, the score, the seeds."""
    usual = cache(lambda *choice: default_settings(choice, compose))
    settings_of = [part for _, part in runs.groupby("signature", sort=False)]
    for part in sorted(settings_of, key=lambda part: (*part.iloc[0][["task", "method", "started_at"]],)):
        run = part.iloc[0]
        choice = run.task, run.method
        model = [run.model] * (usual(*choice) != usual(*choice, run.model))
        differ = [*(f"model={name}" for name in model), *overrides(run, usual(*choice, *model))]
        seeds = ", ".join(map(str, sorted(part.seed)))
        score = f"test {run.metric} {part.test.mean():.2f}"
        yield f"{' '.join([run.task, run.method, *differ])}: {score} (seed {seeds})"


def default_settings(choice: Sequence[str], compose: Compose) -> Fields | None:
    """Return the configuration of a task and a method as written; None where they do not exist any more."""
    try:
        return settings(compose([f"{group}={name}" for group, name in zip(GROUPS, choice, strict=False)]))
    except HydraException:
        return None


def overrides(run: pd.Series, usual: Fields | None) -> list[str]:
    if usual is None:
        return [f"signature {run.signature}"]
    values = dict(flat(run.config))
    keys = [line.partition(":")[0] for line in different(usual, run.config)]
    return [f"{key}={values.get(key)}" for key in keys[:SHOWN]] + ["…"] * (len(keys) > SHOWN)
