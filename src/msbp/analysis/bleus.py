"""BLEU by two rules, as runs of translation count it: one gives the score, the other stands beside it."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from .runs import Record


def views(run: Record) -> list[str]:
    """What BLEU counts, tokenised or detokenised, that of the score first; nothing for other metrics."""
    return re.findall(r"(?:^bleu |; )(\w+)\|", run.get("metric_signature") or "")[:2]


def other_bleu(run: Record) -> float | None:
    """Percent on test at the epoch of the score, by the rule that does not give the score."""
    best: Mapping[str, Any] = next(
        (row for row in run["history"] if row.get("epoch") == run["best_epoch"]), {}
    )
    return next((best.get(f"test_bleu_{view}") for view in views(run)[1:]), None)


def other_view(runs: Iterable[Record]) -> str:
    """What the other BLEU of these runs counts."""
    return next((view for run in runs for view in views(run)[1:]), "other rule")


def rules(title: str, runs: Iterable[Record]) -> list[str]:
    """A sentence with sacreBLEU's signatures and the beams of a block; more where its runs differ."""
    found = dict.fromkeys(run["metric_signature"].removeprefix("bleu ") for run in runs if views(run))
    return [f"BLEU of {title}: {rule}." for rule in found]
