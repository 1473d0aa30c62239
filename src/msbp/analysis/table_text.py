"""Filled tables as text: the same cells for every format, so that Markdown, LaTeX and README agree."""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import pandas as pd

from .plan import missing_commands
from .render import EMPTY, Document, Sheet
from .runs import Sources, bleu_rules
from .settings import SECONDS, Config
from .statistics import paired_t
from .tables import DELTAS, OTHER, RATIOS, SHARES, Table, fill, numbers
from .translations import bootstrap_notes

HEADERS = {
    "bp_s": "BP (s)", "bp_update_s": "BP + update (s)", "total_s": "Total (s)", "dev": "Dev BLEU",
    "dropped_entries": "Dropped entries (%)", "dropped_norm": "Dropped norm² (%)",
}  # fmt: skip
MATTERS = 0.1  # points of score: the practical margin of the claims


def document(config: Config, sources: Sources) -> Document:
    """Return the table that a file of conf/table lists row by row."""
    table = fill(config, sources)
    notes = [*config.get("notes", ()), *bootstrap_notes(table)]
    return document_of(table, missing_commands(config, sources), notes)


def document_of(table: Table, missing: Sequence[str] = (), below: Sequence[str] = ()) -> Document:
    """Return any filled table as text and numbers; below: sentences that follow its own."""
    has_runs = table.rows.groupby("block").n.sum() > 0
    titles = table.rows.groupby("block").title.first()
    shown = table.rows[table.rows.block.isin(has_runs.index[has_runs])]
    return Document(
        table.name, table.caption, [sheet(table, table.rows, below)], numbers(table),
        used=table.runs, missing=list(missing), blank=list(titles[~has_runs]),
        filled=sheet(table, shown, below) if len(shown) else None,
    )  # fmt: skip


def sheet(table: Table, rows: pd.DataFrame, below: Sequence[str] = ()) -> Sheet:
    """Return the cells of rows: label, our columns, n, and the columns for which the paper prints numbers."""
    text = Sheet(table.name, table.caption)
    columns = table.columns + [column for column in OTHER if table.runs[column].notna().any()]
    papers = [column for column in columns if table.rows.get(f"paper_{column}", pd.Series()).notna().any()]
    for _, block in rows.groupby("block"):
        first = block.iloc[0]
        runs = table.runs[table.runs.row.isin(block.index)]
        other = next(
            (rule for each in runs.metric_signature.dropna() for rule in bleu_rules(each)[1:]), "other rule"
        )
        names = {**HEADERS, "score": first.header, "other_bleu": f"BLEU, {other}"}
        printed = block.reindex(columns=[f"paper_{column}" for column in SECONDS]).stack().dropna()
        decimals = 0 if (printed % 1 == 0).all() else 1
        cells = []
        for row, values in block.iterrows():
            ours = [
                (cell(values, first, column) or EMPTY) + text.mark(table.remarks[row, column])
                for column in columns
            ]
            n = str(values.n) if values.n >= values.seeds else f"{values.n} of {values.seeds}"
            paper = [paper_cell(values, first, column, decimals) for column in papers]
            counted = n + text.mark(table.remarks[row, "n"])
            cells.append([values.label, *ours, counted, *paper, values.get("command", "")])
        header = [first.title, *(names[column] for column in columns), "n"]
        header += [f"paper: {names[column].removesuffix(' (s)').removesuffix(' (%)')}" for column in papers]
        header += ["command"]
        text.blocks.append(pd.DataFrame(cells, columns=header))
    text.below = [*strength(table, rows), *places(table, rows), *devices(table, rows)]
    text.below += paired_notes(table, rows)
    text.below += [*metric_notes(table, rows), *below]
    return text


def cell(row: pd.Series, first: pd.Series, column: str) -> str:
    """Return our number with its speed-up or difference; nothing where there is none."""
    if column in SECONDS:
        return timed_cell(row[column], first[column], row[RATIOS[column]], seconds)
    if column in SHARES:
        return "" if pd.isna(row[column]) else f"{row[column]:.1f}"
    return score_cell(row[f"{column}_mean"], row[f"{column}_sd"], row[DELTAS[column]])


def paper_cell(row: pd.Series, first: pd.Series, column: str, decimals: int) -> str:
    """Return the paper's score with its difference, or its speed-up; of the first row its seconds."""
    value = row[f"paper_{column}"]
    if column in SECONDS:
        ratio = row[f"paper_{RATIOS[column]}"]
        if pd.isna(value):
            return ""
        return f"{value:.{decimals}f} s" if row.name == first.name or pd.isna(ratio) else f"{ratio:.2f}×"
    return score_cell(value, float("nan"), row[f"paper_{DELTAS[column]}"])


def timed_cell(value: float, baseline: float, ratio: float, form: Callable[[float], str]) -> str:
    if pd.isna(value):
        return ""
    speedup = EMPTY if pd.isna(ratio) else f"{ratio:.2f}×"
    return form(value) + ("" if pd.isna(baseline) else f" ({speedup})")


def score_cell(mean: float, sd: float, delta: float) -> str:
    if pd.isna(mean):
        return ""
    deviation = "" if pd.isna(sd) else f" ± {sd:.2f}"
    # + 0.0: a rounded -0.001 is 0.00, without a sign.
    return f"{mean:.2f}{deviation}" + ("" if pd.isna(delta) else f" ({round(delta, 2) + 0.0:+.2f})")


def seconds(value: float) -> str:
    return f"{value:.{0 if value >= 1000 else 1 if value >= 10 else 2 if value >= 1 else 3}f}"


def strength(table: Table, rows: pd.DataFrame) -> list[str]:
    """Return a sentence for each block whose baseline scores higher than the paper's by more than MATTERS."""
    sentences = []
    for _, block in rows.groupby("block") if "paper_score" in rows else ():
        ours, papers = block.score_mean, block.paper_score.astype(float)
        apart = ours - papers
        first, *others = block.index
        if not apart[first] > MATTERS or apart[others].isna().all():
            continue
        known = [row for row in others if not pd.isna(apart[row])]
        named = [f"{bare(block.label[row])} {ours[row]:.2f} ({papers[row]:.2f})" for row in known]
        level = "are level with" if (apart[known].abs() <= MATTERS).all() else "are beside"
        sentences.append(
            f"On {block.title[first]} our baseline is stronger than the paper's, {ours[first]:.2f} against "
            f"{papers[first]:.2f}; {' and '.join(named)} {level} the paper's scores (in parentheses)."
        )
        best = known[-1]
        both = table.common(first, best)
        if len(both):
            gain = round((both[best] - both[first]).mean(), 2) + 0.0
            sentences[-1] += (
                f" {bare(block.label[best])} gains {gain:+.2f} over our baseline; the paper's gains "
                f"{papers[best] - papers[first]:+.2f} over its own."
            )
    return sentences


def places(table: Table, rows: pd.DataFrame) -> list[str]:
    """Return on what the times of the blocks were measured."""
    titles: dict[str, list[str]] = {}
    for _, block in rows.groupby("block") if set(SECONDS) & set(table.columns) else ():
        timed = table.runs[table.runs.row.isin(block.index) & table.runs.timed]
        for run in timed[:1].itertuples():
            titles.setdefault(place(run), []).append(block.title.iloc[0])
    return [f"Times of {', '.join(blocks)}: {where}." for where, blocks in titles.items()]


def place(run: Any) -> str:
    threads = f"{run.threads} thread" + ("s" if run.threads > 1 else "")
    where = run.cpu if run.device == "cpu" else f"{run.device}, {run.cpu}"
    return f"{where}, {threads}, torch {run.torch}, commit {run.commit[:8]}"


def devices(table: Table, rows: pd.DataFrame) -> list[str]:
    """Return which runs were made on other devices than the CPU, whose rounding gives other scores."""
    sentences = []
    for _, block in rows.groupby("block"):
        counts = table.runs.device[table.runs.row.isin(block.index)].value_counts(sort=False)
        other = [f"{name}: {count} of {counts.sum()} runs" for name, count in counts.items() if name != "cpu"]
        sentences += [f"Device of {block.title.iloc[0]}: {', '.join(other)}."] if other else []
    return sentences


def metric_notes(table: Table, rows: pd.DataFrame) -> list[str]:
    """Return a sentence with sacreBLEU's signatures and the beams of a block; more where its runs differ."""
    sentences = []
    for _, block in rows.groupby("block"):
        signatures = table.runs.metric_signature[table.runs.row.isin(block.index)].dropna().unique()
        rules = [each.removeprefix("bleu ") for each in signatures if bleu_rules(each)]
        sentences += [f"BLEU of {block.title.iloc[0]}: {rule}." for rule in rules]
    return sentences


def paired_notes(table: Table, rows: pd.DataFrame) -> list[str]:
    """Return a sentence for each block with the paired test of every two rows over their common seeds."""
    sentences = []
    for _, block in rows.groupby("block") if table.paired else ():
        parts = []
        for one, two in combinations(block.index, 2):
            both = table.common(one, two)
            if len(both) > 1:
                test = paired_t(both[one], both[two])
                p = f"p = {test.p:.3f}" if test else "the same gain in every run"
                gain = round((both[two] - both[one]).mean(), 2) + 0.0
                names = f"{bare(block.label[two])} against {bare(block.label[one])}"
                parts.append(f"{names} {gain:+.2f} ({p}, n = {len(both)})")
        title = block.title.iloc[0]
        sentences += [f"Paired t-tests of {title}, two-sided: {'; '.join(parts)}."] if parts else []
    return sentences


def bare(label: str) -> str:
    return label.removeprefix("+ ")
