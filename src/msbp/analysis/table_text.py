"""Filled tables as text: the same cells for every format, so that Markdown, LaTeX and README agree.

`document` shows a table row by row, `headline` a line for each task.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations

import pandas as pd

from ..measurements import Result
from .benchmarks import whole_pass
from .render import COMMAND, EMPTY, Document, Sheet
from .runs import Sources, bleu_rules
from .settings import SECONDS, Config
from .significance import bootstrap_notes, paired_t
from .tables import DELTAS, OTHER, RATIOS, SHARES, Table, fill, numbers

HEADERS = {
    "bp_s": "BP (s)", "bp_update_s": "BP + update (s)", "total_s": "Total (s)", "dev": "Dev BLEU",
    "dropped_entries": "Dropped entries (%)", "dropped_norm": "Dropped norm² (%)",
}  # fmt: skip
MATTERS = 0.1  # points of score: the practical margin of the claims
NAMES = {"baseline": "Baseline", "sbp": "SBP", "msbp": "MSBP"}
HEADLINE = ["Task", "BP ×", "total ×", *NAMES.values()]
SHORT_HEADERS = {"Acc (%)": "acc.", "UAS (%)": "UAS", "Test BLEU": "BLEU"}
LICENSED = "Open data in place of licensed corpora"
LEGEND = (
    "BP ×: how many times faster the backward pass of MSBP is than the baseline's, in a benchmarked step "
    "(one benchmark for both parsers, one for both taggers). Total ×: the same for whole runs without "
    f"evaluation, or (*) for the benchmarked step where runs have no comparable times. {EMPTY}: not "
    "measured. Scores: means in percent ± standard deviations over the seeds or folds that the methods share."
)


def document(config: Config, sources: Sources) -> Document:
    """Return the table that a file of conf/table lists row by row."""
    table = fill(config, sources)
    notes = [*config.get("notes", ()), *bootstrap_notes(table, sources.damaged)]
    return document_of(table, sources.missing(config), notes)


def document_of(table: Table, missing: Sequence[str] = (), below: Sequence[str] = ()) -> Document:
    """Return any filled table as text and numbers; below: sentences that follow its own."""
    return tabulated(table, lambda rows: sheet(table, rows, below), numbers(table), missing)


def tabulated(
    table: Table, sheet: Callable[[pd.DataFrame], Sheet], numbers: pd.DataFrame, missing: Sequence[str]
) -> Document:
    """Return the document of a filled table, its sheet made from all rows and from blocks with runs."""
    has_runs = table.rows.groupby("block").n.transform("sum") > 0
    blank = table.rows[~has_runs].groupby("block").title.first()
    return Document(
        table.name, table.caption, [sheet(table.rows)], numbers, used=table.runs, missing=list(missing),
        blank=list(blank), filled=sheet(table.rows[has_runs]) if has_runs.any() else None,
    )  # fmt: skip


def sheet(table: Table, rows: pd.DataFrame, below: Sequence[str] = ()) -> Sheet:
    """Return the cells of rows: label, our columns, n, and the columns for which the paper prints numbers."""
    text = Sheet(table.name, table.caption)
    columns = table.columns + [column for column in OTHER if table.runs[column].notna().any()]
    papers = [column for column in columns if table.rows.get(f"paper_{column}", pd.Series()).notna().any()]
    blocks = [block for _, block in rows.groupby("block")]
    for block in blocks:
        first = block.iloc[0]
        rules = map(bleu_rules, runs_of(table, block).metric_signature.dropna())
        other = next((rule for each in rules for rule in each[1:]), "other tokenization")
        names = {**HEADERS, "score": first.header, "other_bleu": f"BLEU, {other}"}
        printed = block.reindex(columns=[f"paper_{column}" for column in SECONDS]).stack().dropna()
        decimals = 0 if (printed % 1 == 0).all() else 1
        cells = []
        for row, values in block.iterrows():
            ours = [
                (cell(values, first, column) or EMPTY) + text.mark(table.remarks[row, column])
                for column in columns
            ]
            counted = count_cell(values) + text.mark(table.remarks[row, "n"])
            paper = [paper_cell(values, first, column, decimals) for column in papers]
            cells.append([values.label, *ours, counted, *paper, values.get(COMMAND, "")])
        header = [first.title, *(names[column] for column in columns), "n"]
        header += [f"paper: {names[column].removesuffix(' (s)').removesuffix(' (%)')}" for column in papers]
        text.blocks.append(pd.DataFrame(cells, columns=[*header, COMMAND]))
    text.below = [*strengths(table, blocks), *platforms(table, blocks)]
    for note in (devices, paired_tests, metric_rules):
        text.below += [sentence for block in blocks for sentence in note(table, block)]
    text.below += below
    return text


def runs_of(table: Table, block: pd.DataFrame) -> pd.DataFrame:
    return table.runs[table.runs.row.isin(block.index)]


def cell(row: pd.Series, first: pd.Series, column: str) -> str:
    """Return our number with its speed-up or difference; nothing where there is none."""
    if column in SECONDS:
        return timed_cell(row[column], first[column], row[RATIOS[column]])
    if column in SHARES:
        return "" if pd.isna(row[column]) else f"{row[column]:.1f}"
    return score_cell(row[f"{column}_mean"], row[f"{column}_sd"], row[DELTAS[column]])


def count_cell(row: pd.Series) -> str:
    """Return the number of runs, with the number that the table asks for where that is larger."""
    return str(row.n) if row.n >= row.seeds else f"{row.n} of {row.seeds}"


def paper_cell(row: pd.Series, first: pd.Series, column: str, decimals: int) -> str:
    """Return the paper's score with its difference, or its speed-up; of the first row its seconds."""
    value = row[f"paper_{column}"]
    if column in SECONDS:
        ratio = row[f"paper_{RATIOS[column]}"]
        if pd.isna(value):
            return ""
        return f"{value:.{decimals}f} s" if row.name == first.name or pd.isna(ratio) else f"{ratio:.2f}×"
    return score_cell(value, math.nan, row[f"paper_{DELTAS[column]}"])


def timed_cell(value: float, baseline: float, ratio: float) -> str:
    """Return seconds with about three digits, and the speed-up where the baseline has seconds, too."""
    if pd.isna(value):
        return ""
    speedup = EMPTY if pd.isna(ratio) else f"{ratio:.2f}×"
    seconds = f"{value:.{0 if value >= 1000 else 1 if value >= 10 else 2 if value >= 1 else 3}f}"
    return seconds + ("" if pd.isna(baseline) else f" ({speedup})")


def score_cell(mean: float, sd: float, delta: float = math.nan) -> str:
    """Return a mean with its deviation and its difference to the first row, as far as there are such."""
    if pd.isna(mean):
        return ""
    deviation = "" if pd.isna(sd) else f" ± {sd:.2f}"
    return f"{mean:.2f}{deviation}" + ("" if pd.isna(delta) else f" ({signed(delta)})")


def signed(points: float) -> str:
    """Return a difference with its sign and two decimals, in every text alike.

    Nine decimals first: a half is rounded the same way however the difference was summed. + 0.0: a rounded
    -0.001 is 0.00, without a sign.
    """
    return f"{round(round(points, 9), 2) + 0.0:+.2f}"


def strengths(table: Table, blocks: Iterable[pd.DataFrame]) -> Iterator[str]:
    """Yield a sentence for each block whose baseline scores higher than the paper's by more than MATTERS.

    All of its means are over the seeds that the block's rows share.
    """
    for block in blocks if "paper_score" in table.rows else ():
        papers = block.paper_score.astype(float)
        first, *others = block.index
        known = [row for row in others if not pd.isna(block.score_mean[row] - papers[row])]
        shared = table.common(first, *known)
        ours = shared.mean()
        apart = ours - papers
        if not known or not apart[first] > MATTERS:
            continue
        over = f", over the {len(shared)} seeds that its rows share," if block.n.nunique() > 1 else ""
        named = [f"{bare(block.label[row])} {ours[row]:.2f} ({papers[row]:.2f})" for row in known]
        near = [bare(block.label[row]) for row in known if abs(apart[row]) <= MATTERS]
        equal = "all" if len(near) == len(known) else " and ".join(near) or "none"
        sentence = (
            f"On {block.title[first]}{over} our baseline is stronger than the paper's, {ours[first]:.2f} "
            f"against {papers[first]:.2f}. With the paper's scores in parentheses: {', '.join(named)}; "
            f"within {MATTERS:g} points of the paper's: {equal}."
        )
        best = known[-1]
        gains = [signed(scores[best] - scores[first]) for scores in (ours, papers)]
        yield (
            f"{sentence} {bare(block.label[best])} gains {gains[0]} over our baseline; the paper's gains "
            f"{gains[1]} over its own."
        )


def platforms(table: Table, blocks: Iterable[pd.DataFrame]) -> list[str]:
    """Return on what the times of the blocks were measured."""
    titles: dict[str, list[str]] = {}
    for block in blocks if set(SECONDS) & set(table.columns) else ():
        runs = runs_of(table, block)
        for _, run in runs[runs.timed][:1].iterrows():
            titles.setdefault(platform(run), []).append(block.title.iloc[0])
    return [f"Times of {', '.join(names)}: {where}." for where, names in titles.items()]


def platform(run: pd.Series) -> str:
    """Return the machine and software of a run in words."""
    threads = f"{run.threads} thread" + ("s" if run.threads > 1 else "")
    processor = run.cpu if run.device == "cpu" else f"{run.device}, {run.cpu}"
    return f"{processor}, {threads}, torch {run.torch}, commit {run.commit[:8]}"


def devices(table: Table, block: pd.DataFrame) -> Iterator[str]:
    """Yield which runs of a block were on other devices than the CPU, whose rounding gives other scores."""
    counts = runs_of(table, block).device.value_counts(sort=False)
    other = [f"{name}: {count} of {counts.sum()} runs" for name, count in counts.items() if name != "cpu"]
    if other:
        yield f"Device of {block.title.iloc[0]}: {', '.join(other)}."


def paired_tests(table: Table, block: pd.DataFrame) -> Iterator[str]:
    """Yield the paired test of every two rows of a block over their common seeds."""
    parts = []
    for one, two in combinations(block.index, 2) if table.paired else ():
        both = table.common(one, two)
        if len(both) > 1:
            test = paired_t(both[one], both[two])
            gains = both[two] - both[one]
            same = "the same gain in every run" if gains.any() else "equal scores in every run"
            p = f"p = {test.p:.3f}" if test else same
            names = f"{bare(block.label[two])} against {bare(block.label[one])}"
            parts.append(f"{names} {signed(gains.mean())} ({p}, n = {len(both)})")
    if parts:
        yield f"Paired t-tests of {block.title.iloc[0]}, two-sided: {'; '.join(parts)}."


def metric_rules(table: Table, block: pd.DataFrame) -> Iterator[str]:
    """Yield sacreBLEU's signature and the beam of a block; several where its runs differ."""
    for rule in runs_of(table, block).metric_signature.dropna().unique():
        if bleu_rules(rule):
            yield f"BLEU of {block.title.iloc[0]}: {rule.removeprefix('bleu ')}."


def bare(label: str) -> str:
    return label.removeprefix("+ ")


def headline(config: Config, sources: Sources) -> Document:
    """Return the table with a row for each line of the config that has runs, stand-ins after the others."""
    table = fill(config, sources)
    columns = [*HEADLINE, COMMAND, "stand_in", "n"]
    lines = pd.DataFrame(headline_rows(config, table, sources), columns=columns)
    return Document(
        config["name"], config["caption"], [headline_sheet(config, table, lines)], numbers(table),
        used=table.runs, missing=sources.missing(config), blank=list(lines.Task[lines.n == 0]),
        filled=headline_sheet(config, table, lines[lines.n > 0]) if lines.n.any() else None,
    )  # fmt: skip


def headline_sheet(config: Config, table: Table, lines: pd.DataFrame) -> Sheet:
    """Return the rows as text, of real data and of stand-ins, and the sentences below them."""
    text = Sheet(config["name"], config["caption"])
    for stand_in, block in lines.groupby("stand_in"):
        head = LICENSED if stand_in else "Task"
        text.blocks.append(block[[*HEADLINE, COMMAND]].rename(columns={"Task": head}))
    blocks = (block for _, block in table.rows.groupby("block"))
    text.below = [*strengths(table, blocks), *config.get("notes", ()), LEGEND]
    return text


def headline_rows(config: Config, table: Table, sources: Sources) -> Iterator[list[object]]:
    """Yield the cells of each line, whether it is of a stand-in, and its number of methods with runs."""
    for number, block in enumerate(config["blocks"]):
        rows = table.rows[table.rows.block == number].drop_duplicates("method").reset_index()
        rows = rows.set_index("method").reindex(list(NAMES))
        measured = rows.index[rows.n > 0]
        scores = table.common(*rows["index"][measured]) if len(measured) else pd.DataFrame()
        n = f"{len(scores)} folds" if block.get("folds") else f"n = {len(scores)}"
        task = f"{block['label']} ({SHORT_HEADERS.get(block['score'], block['score'])}, {n})"
        texts = dict(zip(measured, map(score_cell, scores.mean(), scores.std()), strict=True))
        bp, total = step_speed_ups(sources.benchmark(block["case"], None))
        of_runs = rows.total_ratio["msbp"]
        if pd.notna(of_runs):
            total = f"{of_runs:.1f}×"
        elif total != EMPTY:
            total += "*"
        cells = [task, bp, total, *(texts.get(name) or EMPTY for name in NAMES)]
        yield [*cells, "", block["stand_in"], len(measured)]


def step_speed_ups(result: Result | None) -> tuple[str, str]:
    """Return how many times faster than the baseline MSBP is in BP and in total, in benchmarked steps."""
    if result is None or not whole_pass(result):
        return EMPTY, EMPTY
    times = {row["name"]: row["vs_dense"] for row in result["rows"]}.get("msbp")
    return (f"{times['bp']:.1f}×", f"{times['total']:.1f}×") if times else (EMPTY, EMPTY)
