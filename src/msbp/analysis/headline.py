"""The result in one table: a row a task, with the speed-up of MSBP and the scores of the three methods."""

import math
from collections.abc import Iterator, Sequence
from itertools import repeat

import pandas as pd

from .benchmarks import Result, whole_pass
from .plan import missing_commands
from .render import COMMAND, EMPTY, Document, Sheet
from .runs import Sources
from .settings import Config
from .table_text import score_cell, strength
from .tables import Table, fill, numbers

NAMES = {"baseline": "Baseline", "sbp": "SBP", "msbp": "MSBP"}
HEADER = ["Task", "BP ×", "total ×", *NAMES.values()]
SCORES = {"Acc (%)": "acc.", "UAS (%)": "UAS", "Test BLEU": "BLEU"}
LICENSED = "Open data in place of licensed corpora"
LEGEND = (
    "BP ×, total ×: how many times faster MSBP is than the baseline: in the backward pass of a "
    "benchmarked step (one benchmark for both parsers, one for both taggers), and in whole runs without "
    f"evaluation; {EMPTY}: no comparable times. Scores: means in percent ± standard deviations over "
    "the seeds or folds that the methods share."
)


def document(config: Config, sources: Sources) -> Document:
    """Return the table with a row for each line of the config that has runs, stand-ins after the others."""
    table = fill(config, sources)
    lines = pd.DataFrame(rows(config, table, sources.benchmarks), columns=[*HEADER, COMMAND, "stand_in", "n"])
    return Document(
        config["name"], config["caption"], [sheet(config, table, lines)], numbers(table), used=table.runs,
        missing=missing_commands(config, sources), blank=list(lines.Task[lines.n == 0]),
        filled=sheet(config, table, lines[lines.n > 0]) if lines.n.any() else None,
    )  # fmt: skip


def sheet(config: Config, table: Table, lines: pd.DataFrame) -> Sheet:
    """Return the rows as text, of real data and of stand-ins, and the sentences below them."""
    text = Sheet(config["name"], config["caption"])
    for stand_in, block in lines.groupby("stand_in"):
        head = LICENSED if stand_in else "Task"
        text.blocks.append(block[[*HEADER, COMMAND]].rename(columns={"Task": head}))
    text.below = [*strength(table, table.rows), *config.get("notes", ()), LEGEND]
    return text


def rows(config: Config, table: Table, benchmarks: Sequence[Result]) -> Iterator[list[object]]:
    """Yield the cells of each line, whether it is of a stand-in, and its number of runs."""
    for number, block in enumerate(config["blocks"]):
        found = table.rows[table.rows.block == number].drop_duplicates("method").reset_index()
        found = found.set_index("method").reindex(list(NAMES))
        measured = found.index[found.n > 0]
        scores = table.common(*found["index"][measured]) if len(measured) else pd.DataFrame()
        n = f"{len(scores)} folds" if block.get("folds") else f"n = {len(scores)}"
        task = f"{block['label']} ({SCORES.get(block['score'], block['score'])}, {n})"
        texts = dict(
            zip(measured, map(score_cell, scores.mean(), scores.std(), repeat(math.nan)), strict=True)
        )
        total = found.total_ratio["msbp"]
        speed_ups = [step_speed_up(block["case"], benchmarks), EMPTY if pd.isna(total) else f"{total:.1f}×"]
        cells = [task, *speed_ups, *(texts.get(name) or EMPTY for name in NAMES)]
        yield [*cells, "", block["stand_in"], len(measured)]


def step_speed_up(case: str, benchmarks: Sequence[Result]) -> str:
    """Return how many times faster MSBP's backward pass is than the baseline's, in steps of the benchmark."""
    for result in benchmarks:
        if (result["case"], result["sweep"], result["threads"]) == (case, None, 1) and whole_pass(result):
            by_name = {row["name"]: row["vs_dense"] for row in result["rows"]}
            if by_name.get("msbp"):
                return f"{by_name['msbp']['bp']:.1f}×"
    return EMPTY
