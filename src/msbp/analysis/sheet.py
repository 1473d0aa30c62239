"""A filled table as text: one set of cells for every format, so that Markdown, LaTeX and README agree."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from . import pairs
from .bleus import other_view, rules
from .evidence import OTHER, SECONDS, SHARES, Evidence
from .statistics import Summary
from .tables import Line, Table

HEADERS = {
    "bp_s": "BP (s)", "bp_update_s": "BP + update (s)", "total_s": "Total (s)", "dev": "Dev BLEU",
    "dropped_entries": "Dropped entries (%)", "dropped_norm": "Dropped norm² (%)",
}  # fmt: skip
EMPTY = "–"
RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass
class Grid:
    """One block: rows[i] are the cells under header, commands[i] is what fills that row."""

    header: list[str]
    rows: list[list[str]]
    commands: list[str]


@dataclass
class Sheet:
    """All text of a table; remarks of its cells are numbered notes, below holds what follows them."""

    name: str
    caption: str
    grids: list[Grid] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)

    def mark(self, remarks: Sequence[str]) -> str:
        """The raised numbers of these remarks."""
        self.notes += [remark for remark in dict.fromkeys(remarks) if remark not in self.notes]
        return " ".join(str(self.notes.index(remark) + 1) for remark in remarks).translate(RAISED)

    def numbered(self) -> list[str]:
        """The notes, each after its number."""
        return [f"{self.mark([note])} {note}" for note in self.notes]


def sheet(table: Table, notes: Sequence[str] = ()) -> Sheet:
    """The table's cells: label, our columns, n, and the columns for which the paper prints numbers.

    notes: sentences that follow the table's own below it.
    """
    tests = [pairs.note(block) for block in table.blocks] if table.paired else []
    counted = [rule for block in table.blocks for rule in rules(block.title, block.runs)]
    text = Sheet(
        table.name,
        table.caption,
        below=[*_places(table), *_devices(table), *filter(None, tests), *counted, *notes],
    )
    lines = [line for block in table.blocks for line in block.lines]
    columns = table.columns + [column for column in OTHER if table.records(column)]
    papers = [column for column in columns if any(column in line.paper.summary for line in lines)]
    for block in table.blocks:
        names = {**HEADERS, "score": block.score, "other_bleu": f"BLEU, {other_view(block.runs)}"}
        header = [block.title, *(names[column] for column in columns), "n"]
        header += [f"paper: {names[column]}" for column in papers]
        rows = [_row(line, block.lines[0], columns, papers, text) for line in block.lines]
        text.grids.append(Grid(header, rows, [line.command for line in block.lines]))
    return text


def _row(line: Line, first: Line, columns: list[str], papers: list[str], text: Sheet) -> list[str]:
    remarks, n = line.ours.remarks, len(line.ours.runs)
    ours = [
        (_cell(line.ours, first.ours, column, _measured) or EMPTY) + text.mark(remarks[column])
        for column in columns
    ]
    counted = (str(n) if n >= line.seeds else f"{n} of {line.seeds}") + text.mark(remarks["n"])
    return [line.label, *ours, counted, *(_cell(line.paper, first.paper, column, str) for column in papers)]


def _cell(evidence: Evidence, baseline: Evidence, column: str, seconds: Callable[[float], str]) -> str:
    if column not in evidence.summary:
        return ""
    summary, compared = evidence.summary[column], evidence.against(baseline, column)
    if column in SECONDS:
        ratio = EMPTY if compared is None else f"{compared:.2f}×"
        return seconds(summary.mean) + (f" ({ratio})" if column in baseline.summary else "")
    if column in SHARES:
        return f"{summary.mean:.1f}"
    # + 0.0: a rounded -0.001 is 0.00, without a sign.
    return _score(summary) + ("" if compared is None else f" ({round(compared, 2) + 0.0:+.2f})")


def _score(summary: Summary) -> str:
    return f"{summary.mean:.2f}" + ("" if summary.sd is None else f" ± {summary.sd:.2f}")


def _measured(seconds: float) -> str:
    return f"{seconds:.{0 if seconds >= 1000 else 1 if seconds >= 10 else 2 if seconds >= 1 else 3}f}"


def _places(table: Table) -> list[str]:
    titles: dict[str, list[str]] = {}
    for block in table.blocks if SECONDS.keys() & table.columns else ():
        timed = [run for line in block.lines for run in line.ours.timed]
        for run in timed[:1]:
            titles.setdefault(_place(run), []).append(block.title)
    return [f"Times of {', '.join(blocks)}: {place}." for place, blocks in titles.items()]


def _devices(table: Table) -> list[str]:
    """Which runs were made on other devices than the CPU, as rounding there gives other scores."""
    sentences = []
    for block in table.blocks:
        devices = Counter(run["device"] for run in block.runs)
        on = [
            f"{name}: {count} of {devices.total()} runs" for name, count in devices.items() if name != "cpu"
        ]
        sentences += [f"Device of {block.title}: {', '.join(on)}."] if on else []
    return sentences


def _place(run: dict) -> str:
    threads = f"{run['threads']} thread" + ("s" if run["threads"] > 1 else "")
    where = run["cpu"] if run["device"] == "cpu" else f"{run['device']}, {run['cpu']}"
    return f"{where}, {threads}, torch {run['torch']}, commit {run['commit'][:8]}"
