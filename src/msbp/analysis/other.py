"""Runs that no table asks for, such as trials and tiny samples: they get rows of their own."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from statistics import fmean
from typing import Any

from hydra.errors import HydraException

from ..record import counts, different, flat, settings, signature
from . import rows
from .documents import Document
from .evidence import SECONDS, Evidence, measure
from .runs import Record, Runs
from .settings import Compose, Setting
from .tables import Block, Line, Table

HEADERS: dict[str, str] = {"accuracy": "Acc (%)", "uas": "UAS (%)", "bleu": "Test BLEU"}
BASELINE = "baseline"
GROUPS = "task", "method", "model"
SHOWN = 6  # keys of a line, for which one of the terminal has room


def other(runs: Runs, documents: Iterable[Document]) -> list[Document]:
    """At most one table: a block for each configuration that methods share, a row for each unused setting."""
    shared: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for run in unused(runs, documents):
        shared[_but_method(run)][run["signature"]].append(run)
    found = [list(settings.values()) for settings in shared.values()]
    titles = _titles([rows[0][0] for rows in found])
    blocks = sorted(map(_block, found, titles), key=lambda block: block.title)
    table = Table("other", "Runs of other settings.", [*SECONDS, "score"], blocks)
    return [rows.of(table)] if blocks else []


def unused(runs: Runs, documents: Iterable[Document]) -> list[Record]:
    """The runs that none of the documents shows."""
    used = {run["signature"] for document in documents for run in document.used}
    return [run for run in runs.records.values() if run["signature"] not in used]


def listed(runs: Sequence[Record], compose: Compose) -> Iterator[str]:
    """A line for each setting: task, method, what differs from their own values, the score, the seeds."""
    found: dict[str, list[Record]] = defaultdict(list)
    for run in runs:
        found[run["signature"]].append(run)
    usual = cache(lambda *choice: _usual(choice, compose))
    for row in sorted(
        found.values(), key=lambda row: (row[0]["task"], row[0]["method"], row[0]["started_at"])
    ):
        run = row[0]
        choice = run["task"], run["method"]
        model = [run["model"]] * (usual(*choice) != usual(*choice, run["model"]))
        differ = [*(f"model={name}" for name in model), *_overrides(run, usual(*choice, *model))]
        seeds = ", ".join(str(run["seed"]) for run in sorted(row, key=lambda run: run["seed"]))
        score = f"test {run['metric']} {fmean(run['test'] for run in row):.2f}"
        yield f"{' '.join([run['task'], run['method'], *differ])}: {score} (seed {seeds})"


def _usual(choice: Sequence[str], compose: Compose) -> dict[str, Any] | None:
    """The configuration of a task and a method as written; None where they are not there any more."""
    try:
        return settings(compose([f"{group}={name}" for group, name in zip(GROUPS, choice, strict=False)]))
    except HydraException:
        return None


def _overrides(run: Record, usual: dict[str, Any] | None) -> list[str]:
    if usual is None:
        return [f"signature {run['signature']}"]
    values = dict(flat(run["config"]))
    keys = [line.partition(":")[0] for line in different(usual, run["config"])]
    return [f"{key}={values.get(key)}" for key in keys[:SHOWN]] + ["…"] * (len(keys) > SHOWN)


def _but_method(run: Record) -> str:
    return signature({part: value for part, value in run["config"].items() if part != "method"})


def _block(found: list[list[Record]], title: str) -> Block:
    alike = [row[0]["config"]["method"] for row in found]
    found.sort(key=lambda row: (row[0]["method"] != BASELINE, _label(row[0], alike)))
    run = found[0][0]
    if run["method"] != BASELINE:
        found.insert(0, [])
    lines = [_line(row, ours, alike) for row, ours in zip(found, measure(found), strict=True)]
    return Block(title, run["task"], HEADERS.get(run["metric"]) or run["metric"], lines)


def _line(row: list[Record], ours: Evidence, alike: list[dict]) -> Line:
    if not row:
        ours.remarks["n"].append("not run yet")
        return Line(BASELINE, BASELINE, None, "", ours, Evidence())
    run = row[0]
    setting = Setting(run["signature"], run["r"], run["gamma"], run.get("hidden"))
    return Line(_label(run, alike), run["method"], setting, "", ours, Evidence())


def _titles(runs: list[Record]) -> list[str]:
    """What the runs of a block are, one of each given, and where that is the same, the keys that differ."""
    bare, configs = [_title(run) for run in runs], [dict(flat(run["config"])) for run in runs]
    titles = []
    for title, own in zip(bare, configs, strict=True):
        alike = [other for other, name in zip(configs, bare, strict=True) if name == title]
        keys = [key for key in own if key.split(".")[0] != "method" and counts(key, own[key])]
        apart = [key for key in keys if any(other.get(key) != own[key] for other in alike)]
        titles.append(", ".join([title, *(f"{key}={own[key]}" for key in apart)]))
    return titles


def _title(run: Record) -> str:
    sample = " on its tiny made-up sample" if run.get("sample") == "tiny" else ""
    epochs = len(run["history"])
    width = "" if run.get("hidden") is None else f"h={run['hidden']}, "
    return f"{run['task']}{sample} ({width}{epochs} epoch{'s' * (epochs != 1)})"


def _label(run: Record, alike: list[dict]) -> str:
    """The method with r and γ, and the keys in which it differs from another row of that method."""
    own = run["config"]["method"]
    peers = [method for method in alike if method.get("name") == own.get("name")]
    varied = [key for key in own if any(method.get(key) != own[key] for method in peers)]
    letters = [f"{name}={run[key]:g}" for name, key in (("r", "r"), ("γ", "gamma")) if run[key] is not None]
    words = letters + [f"{key}={own[key]}" for key in varied if key not in ("r", "gamma")]
    return run["method"] + (f" ({', '.join(words)})" if words else "")
