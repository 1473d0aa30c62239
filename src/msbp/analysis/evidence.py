"""What the runs of a block's rows say, column by column, and the remark that a number or its absence needs.

Seconds are compared only within one machine, thread count, torch and commit; scores need no such care.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .bleus import other_bleu
from .runs import Record
from .statistics import Summary, delta, speedup, summarize

# What a column is in a record: seconds of the run's training steps, or percent.
SECONDS: dict[str, Callable[[Record], float]] = {
    "bp_s": lambda run: run["bp_s"],
    "bp_update_s": lambda run: run["bp_s"] + run["update_s"],
    "total_s": lambda run: run["total_s"],
}
SCORES: dict[str, Callable[[Record], float]] = {
    "score": lambda run: run["test"],
    "dev": lambda run: run["dev"],
}

# Percent of what the layers' gradients held after training and did not propagate, the mean over layers.
SHARES: dict[str, Callable[[Record], float]] = {
    "dropped_entries": lambda run: _dropped(run, "entries"),
    "dropped_norm": lambda run: _dropped(run, "squared_norm"),
}

# Percent by the other rule of a task that counts by two.
OTHER: dict[str, Callable[[Record], Any]] = {"other_bleu": other_bleu}

NO_BASELINE = "not compared: the first row has no runs yet"
NO_TIMES = "no speed-up: the first row has no times to compare with"
# What times depend on besides the row, by its name in a record.
PLACE = {
    "machine": "machine", "device": "device", "threads": "thread count", "commit": "commit",
    "dirty": "state of the code", "torch": "torch",
}  # fmt: skip
DIRTY = "includes runs of uncommitted code"
RULES = "the scores of these rows follow more than one metric rule"


@dataclass
class Evidence:
    """Summaries by column, ours or the paper's; remarks by column tell what is missing or special."""

    runs: list[Record] = field(default_factory=list)
    timed: list[Record] = field(default_factory=list)
    summary: dict[str, Summary] = field(default_factory=dict)
    remarks: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def mean(self, column: str) -> float | None:
        return self.summary[column].mean if column in self.summary else None

    def sd(self, column: str) -> float | None:
        return self.summary[column].sd if column in self.summary else None

    def against(self, baseline: "Evidence", column: str) -> float | None:
        """The speed-up of a time or the difference of a score; None where there is none."""
        if column not in self.summary or column not in baseline.summary:
            return None
        compare = speedup if column in SECONDS else delta
        return compare(baseline.summary[column], self.summary[column])


def measure(rows: Sequence[list[Record]]) -> list[Evidence]:
    """Evidence of each row of a block; the first row is the baseline."""
    place = common_place(rows)
    gathered = [Evidence(runs, [run for run in _timed(runs) if place_of(run) == place]) for runs in rows]
    rules = {run.get("metric_signature") for runs in rows for run in runs}
    for evidence in gathered:
        _summarize(evidence)
        _remark(evidence, gathered[0], place)
        if len(rules) > 1 and evidence.runs:
            evidence.remarks["score"].append(RULES)
    return gathered


def place_of(run: Record) -> tuple:
    """Where and with what a run was timed: seconds compare only within one place."""
    return tuple(run[name] for name in PLACE)


def common_place(rows: Sequence[list[Record]]) -> tuple | None:
    """The place that times most of a block: the baseline above all, then rows, then runs, then the newest."""
    timed = [_timed(runs) for runs in rows]

    def worth(place: tuple) -> tuple:
        there = [[run["started_at"] for run in runs if place_of(run) == place] for runs in timed]
        return bool(there[0]), sum(map(bool, there)), sum(map(len, there)), max(map(max, filter(None, there)))

    return max({place_of(run) for runs in timed for run in runs}, key=worth, default=None)


def _timed(runs: list[Record]) -> list[Record]:
    return [run for run in runs if run["times_comparable"]]


def _dropped(run: Record, share: str) -> float:
    layers = run["dropped_fraction"].values()
    return 100 * sum(layer[share] for layer in layers) / len(layers)


def _summarize(evidence: Evidence) -> None:
    sparse = [run for run in evidence.runs if run.get("dropped_fraction")]
    other = [run for run in evidence.runs if other_bleu(run) is not None]
    kinds = (evidence.timed, SECONDS), (evidence.runs, SCORES), (sparse, SHARES), (other, OTHER)
    for runs, columns in kinds:
        if runs:
            values = {column: [value(run) for run in runs] for column, value in columns.items()}
            evidence.summary |= {column: summarize(values[column]) for column in columns}


def _remark(evidence: Evidence, baseline: Evidence, place: tuple | None) -> None:
    runs, timed, remarks = evidence.runs, evidence.timed, evidence.remarks
    if len(timed) < len(runs):
        have = f"times of {len(timed)} of {len(runs)} runs" if timed else "no times"
        for column in SECONDS:
            remarks[column].append(f"{have}: {_why_untimed(runs, place)}")
    for column in evidence.summary:
        if column not in baseline.summary and column not in SHARES:
            remarks[column].append(NO_TIMES if baseline.runs else NO_BASELINE)
    if any(run["dirty"] for run in runs):
        remarks["n"].append(DIRTY)


def _why_untimed(runs: Sequence[Record], place: tuple | None) -> str:
    """Every reason for which some of the runs give no times, with how many it holds for unless for all."""
    counts = Counter(filter(None, (_reason(run, place) for run in runs)))
    if counts.total() == len(runs) and len(counts) == 1:
        return f"{'all' if len(runs) > 1 else 'it'} {next(iter(counts))}"
    return ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))


def _reason(run: Record, place: tuple | None) -> str:
    """Why a run gives no times that compare; nothing where it does."""
    if not run["times_comparable"]:
        told = run.get("disturbed", ["ran in parallel" + " or resumed elsewhere" * bool(run.get("resumed"))])
        # the share of a processor differs from run to run, and here runs are counted by their reason
        same = (re.sub(r"\d+% of its processor.*", "too little of its processor", reason) for reason in told)
        return " and ".join(reason.removeprefix("it ") for reason in same)
    parts = zip(PLACE, place_of(run), place or (), strict=True)
    differ = [PLACE[name] for name, ours, theirs in parts if ours != theirs]
    return f"ran with another {' and '.join(differ)} than those with times" if differ else ""
