"""The report on the terminal and as one HTML page; runs that are in no table get rows of their own."""

import base64
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from hydra.errors import HydraException
from hydra.utils import get_method

from ..record import counts, different, flat, settings, signature
from . import bounds, table_text
from .claims import Claim
from .render import Document, Sheet, markdown, renderings
from .runs import Sources
from .settings import Compose, Config
from .tables import filled

TEMPLATE = Path(__file__).with_name("page.html")
ROWS = "msbp.analysis.table_text.document"
FIRST = "main"
SCORES = {"accuracy": "Acc (%)", "uas": "UAS (%)", "bleu": "Test BLEU"}
BASELINE = "baseline"
GROUPS = "task", "method", "model"
SHOWN = 6  # keys of a line, for which one of the terminal has room


def document(config: Config, sources: Sources) -> Document:
    """Return what the config's _target_ gives; a table of rows where it names none."""
    make: Callable[[Config, Sources], Document] = get_method(config.get("_target_", ROWS))
    return make(config, sources)


def ordered(documents: Iterable[Document]) -> list[Document]:
    """Return the main table first, then what has results, then the rest."""
    return sorted(documents, key=lambda each: (each.name != FIRST, not each.has_results))


def terminal(documents: Sequence[Document], where: Sequence[str] = ()) -> Iterator[str]:
    """Yield what is measured in full, and a line for each of the others; a single document is always shown.

    where: overrides with which commands leave more here.
    """
    for each in documents:
        if each.has_results or len(documents) == 1:
            yield text_of(each, where)
        else:
            yield f"{each.name}: no runs yet; {reproduce(each, where)}"


def text_of(document: Document, where: Sequence[str]) -> str:
    """Return Markdown: of a table the blocks that have runs, of claims their summary, of others all."""
    if document.claims:
        return (
            f"{titled(document, document.sheets[0])}\nEvery setting of each claim is in {document.name}.md.\n"
        )
    if not document.filled or not document.blank:
        return renderings(document)["md"]
    blank = f"{', '.join(document.blank)}: no runs yet; {reproduce(document, where)}"
    return f"{titled(document, document.filled)}\n{blank}\n"


def titled(document: Document, sheet: Sheet) -> str:
    return f"# {document.caption}\n\n{markdown(sheet)}"


def reproduce(document: Document, where: Sequence[str]) -> str:
    """Return the command that runs what the document lacks."""
    if document.missing == [bounds.RUN]:
        return bounds.RUN
    kind = "all" if document.claims else f"{'figure' if document.figure else 'table'}={document.name}"
    return shlex.join(["python", "scripts/reproduce.py", kind, *where])


def page(documents: Iterable[Document], sources: Sources) -> str:
    """Return the page, which needs no network: figures are within, tables have the cells of Markdown."""
    every = list(documents)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"image": image, "measured": measured, "compact": compact, "forest": forest}
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    runs = sources.runs
    places = runs.cpu + ", torch " + runs.torch + ", commit " + runs.commit.str[:8] if len(runs) else []
    return template.render(
        claims=next((each for each in every if each.claims), None),
        tables=[each for each in every if each.sheets and not each.claims],
        figures=[each for each in every if each.figure],
        runs=len(runs),
        places=sorted(set(places)),
    )


def image(document: Document) -> str:
    """Return the figure as an address that holds all of it."""
    return address(document.images["svg"])


def measured(block: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of families and of settings that were measured."""
    return block[block.verdict != "not measured"]


def address(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def forest(document: Document, claim: Claim) -> str:
    """Return the forest plot of a claim as an address that holds all of it."""
    return address(document.images[f"{claim.name}.svg"])


def compact(block: pd.DataFrame) -> pd.DataFrame:
    """Return the block without commands and empty columns."""
    cells = block.iloc[:, :-1]
    return cells.loc[:, (cells != "").any().to_numpy()]


def unused(runs: pd.DataFrame, documents: Iterable[Document]) -> pd.DataFrame:
    """Return the runs that none of the documents shows."""
    used = {signature for each in documents if len(each.used) for signature in each.used.signature}
    return runs[~runs.signature.isin(used)]


def other(runs: pd.DataFrame, documents: Iterable[Document]) -> list[Document]:
    """Return at most one table: a block for each configuration that methods share, a row for each setting."""
    rest = unused(runs, documents)
    if rest.empty:
        return []
    shared = rest.config.map(lambda config: signature({k: v for k, v in config.items() if k != "method"}))
    titles = block_titles(rest, shared)
    rows = [row for key in sorted(titles, key=lambda key: titles[key]) for row in
            block_rows(rest[shared == key], titles[key])]  # fmt: skip
    numbered = {title: number for number, title in enumerate(sorted(titles.values()))}
    rows = pd.DataFrame([{**row, "block": numbered[row["title"]]} for row in rows])
    table = filled("other", "Runs of other settings.", [*table_text.SECONDS, "score"], rows, rest)
    return [table_text.document_of(table)]


def block_rows(runs: pd.DataFrame, title: str) -> list[dict[str, Any]]:
    """Return a row for each setting, the baseline first, and empty where there is none."""
    first = [part.iloc[0] for _, part in runs.groupby("signature", sort=False)]
    alike = [run.config["method"] for run in first]
    first.sort(key=lambda run: (run.method != BASELINE, label(run, alike)))
    about = {"title": title, "task": first[0].task, "seeds": 1}
    about["header"] = SCORES.get(first[0].metric) or first[0].metric
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
    bare, configs = (
        {k: title(run) for k, run in first.items()},
        {k: dict(flat(r.config)) for k, r in first.items()},
    )
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


def default_settings(choice: Sequence[str], compose: Compose) -> dict[str, Any] | None:
    """Return the configuration of a task and a method as written; None where they do not exist any more."""
    try:
        return settings(compose([f"{group}={name}" for group, name in zip(GROUPS, choice, strict=False)]))
    except HydraException:
        return None


def overrides(run: pd.Series, usual: dict[str, Any] | None) -> list[str]:
    if usual is None:
        return [f"signature {run.signature}"]
    values = dict(flat(run.config))
    keys = [line.partition(":")[0] for line in different(usual, run.config)]
    return [f"{key}={values.get(key)}" for key in keys[:SHOWN]] + ["…"] * (len(keys) > SHOWN)
