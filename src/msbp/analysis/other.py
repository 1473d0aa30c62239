"""Runs that are in no table: a table of their own, and a line for each of their settings."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import pandas as pd
from hydra.errors import HydraException

from ..files import Fields
from ..record import counts, different, flat, settings, signature
from . import table_text
from .render import Document
from .settings import Compose
from .tables import filled

SCORES = {"accuracy": "Acc (%)", "uas": "UAS (%)", "bleu": "Test BLEU"}
BASELINE = "baseline"
GROUPS = "task", "method", "model"
SHOWN = 6  # keys of a line, for which one of the terminal has room


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


def block_rows(runs: pd.DataFrame, title: str) -> list[Fields]:
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
