"""Runs that no table asks for, such as trials and tiny samples: they get rows of their own."""

from collections import defaultdict
from collections.abc import Iterable

from ..record import signature
from . import rows
from .documents import Document
from .evidence import SECONDS, Evidence, measure
from .runs import Record, Runs
from .settings import Setting
from .tables import Block, Line, Table

HEADERS: dict[str, str] = {"accuracy": "Acc (%)", "uas": "UAS (%)", "bleu": "Test BLEU"}
BASELINE = "baseline"


def other(runs: Runs, documents: Iterable[Document]) -> list[Document]:
    """At most one table: a block for each configuration that methods share, a row for each unused setting."""
    used = {run["signature"] for document in documents for run in document.used}
    shared: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for run in runs.records.values():
        if run["signature"] not in used:
            shared[_but_method(run)][run["signature"]].append(run)
    blocks = sorted(
        (_block(list(settings.values())) for settings in shared.values()), key=lambda block: block.title
    )
    table = Table("other", "Runs of other settings.", [*SECONDS, "score"], blocks)
    return [rows.of(table)] if blocks else []


def _but_method(run: Record) -> str:
    return signature({part: value for part, value in run["config"].items() if part != "method"})


def _block(found: list[list[Record]]) -> Block:
    alike = [row[0]["config"]["method"] for row in found]
    found.sort(key=lambda row: (row[0]["method"] != BASELINE, _label(row[0], alike)))
    run = found[0][0]
    if run["method"] != BASELINE:
        found.insert(0, [])
    lines = [_line(row, ours, alike) for row, ours in zip(found, measure(found), strict=True)]
    return Block(_title(run), run["task"], HEADERS.get(run["metric"]) or run["metric"], lines)


def _line(row: list[Record], ours: Evidence, alike: list[dict]) -> Line:
    if not row:
        ours.remarks["n"].append("not run yet")
        return Line(BASELINE, BASELINE, None, "", ours, Evidence())
    run = row[0]
    setting = Setting(run["signature"], run["r"], run["gamma"], run["hidden"])
    return Line(_label(run, alike), run["method"], setting, "", ours, Evidence())


def _title(run: Record) -> str:
    sample = " on its tiny made-up sample" if run.get("sample") == "tiny" else ""
    return f"{run['task']}{sample} (h={run['hidden']}, {len(run['history'])} epochs)"


def _label(run: Record, alike: list[dict]) -> str:
    """The method with r and γ, and the keys in which it differs from another row of that method."""
    own = run["config"]["method"]
    peers = [method for method in alike if method.get("name") == own.get("name")]
    varied = [key for key in own if any(method.get(key) != own[key] for method in peers)]
    letters = [f"{name}={run[key]:g}" for name, key in (("r", "r"), ("γ", "gamma")) if run[key] is not None]
    words = letters + [f"{key}={own[key]}" for key in varied if key not in ("r", "gamma")]
    return run["method"] + (f" ({', '.join(words)})" if words else "")
