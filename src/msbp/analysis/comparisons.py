"""Tables that compare each row of a block with named ones, and questions that such differences answer.

Differences are over the seeds that both rows have, with Student's 95 % interval. A question is judged as a
claim of the paper is, and answered yes, no or open.
"""

from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np
import pandas as pd

from .plan import missing_commands
from .render import COMMAND, EMPTY, Document, Sheet
from .runs import Sources
from .settings import Config
from .statistics import Interval, mean_interval
from .table_text import count_cell, score_cell, signed, tabulated
from .tables import Table, fill
from .verdicts import LEAST, Family, Region, Setting, Verdict, Word, judge

ANSWERS = {Word.REPRODUCED: "yes", Word.NOT: "no", Word.IN_PART: "in part", Word.OPEN: "open"}
NOT_RUN = ["not run yet", EMPTY, "0", EMPTY]
NOTE = (
    f"Differences over at least {LEAST} equal seeds. Yes: the interval is on the side of the sentence. No: "
    "it is on the other side by more than the margin. Open: neither. Holm corrects for the settings of a "
    "question."
)


def document(config: Config, sources: Sources) -> Document:
    """Return the table and its questions; `against` lists the labels that each row is compared with."""
    table = fill(config, sources)
    missing = missing_commands(config, sources)
    shown = tabulated(table, lambda rows: sheet(config, table, rows), numbers(config, table), missing)
    shown.sheets += [questions({config["name"]: config}, sources)] if config.get("questions") else []
    return shown


def sheet(config: Config, table: Table, rows: pd.DataFrame) -> Sheet:
    """Return the cells of rows: label, score, differences, n and the command."""
    text = Sheet(table.name, table.caption)
    for number, block in rows.groupby("block"):
        cells = []
        for row, values in block.iterrows():
            gains = [gain_text(gain(table, number, row, label)) for label in config["against"]]
            score = score_cell(values.score_mean, values.score_sd) or EMPTY
            n = count_cell(values) + text.mark(table.remarks[row, "n"])
            cells.append([values.label, score, *gains, n, values[COMMAND]])
        first = block.iloc[0]
        header = [first.title, first.header, *(f"minus {label}" for label in config["against"]), "n", COMMAND]
        text.blocks.append(pd.DataFrame(cells, columns=header))
    text.below += config.get("notes", ())
    return text


def gain(table: Table, block: int, row: int, label: str) -> pd.Series:
    """Return a row's scores less those of the block's row with this label, by common seed."""
    other = row_of(table, block, label)
    both = table.common(other, row) if other != row else pd.DataFrame({row: [], other: []})
    return both[row] - both[other]


def row_of(table: Table, block: int, label: str) -> int:
    """Return the row of a block with this label; ValueError if it has none."""
    rows = table.rows.index[(table.rows.block == block) & (table.rows.label == label)]
    if len(rows) != 1:
        raise ValueError(f"table {table.name} has no single row {label!r} in each of its blocks")
    return int(rows[0])


def gain_text(gains: pd.Series) -> str:
    """Return the mean with its interval, or alone where one seed is common."""
    if not len(gains):
        return EMPTY
    interval = mean_interval(gains)
    mean = signed(gains.mean())
    return mean if interval is None else f"{mean} ({signed(interval.low)} to {signed(interval.high)})"


def numbers(config: Config, table: Table) -> pd.DataFrame:
    """Return scores and differences with their intervals, rounded to six decimals only."""
    lines = []
    for row, values in table.rows.iterrows():
        line = {"block": values.title, "row": values.label, "n": values.n}
        line |= {"score_mean": values.get("score_mean"), "score_sd": values.get("score_sd")}
        for label in config["against"]:
            gains = gain(table, values.block, row, label)
            interval = mean_interval(gains) or Interval(gains.mean(), np.nan, np.nan)
            parts = {part: getattr(interval, part) for part in ("estimate", "low", "high")}
            line |= {f"minus {label}: {part}": number for part, number in parts.items()}
            line |= {f"minus {label}: n": len(gains)}
        lines.append(line | {"signature": values.signature, COMMAND: values[COMMAND]})
    return pd.DataFrame(lines).round(6)


def questions(configs: Mapping[str, Config], sources: Sources) -> Sheet:
    """Return a block for every question of these tables, headed by it and its answer."""
    text = Sheet("beyond", "Beyond the paper", below=[NOTE])
    for config, question in every_question(configs):
        answer = verdict(question, fill(config, sources))
        rows = [row for family in answer.families for row in row_of_family(family)] or [NOT_RUN]
        command = f"python scripts/reproduce.py table={config['name']}"
        lines = [[*row, command] for row in rows]
        header = [question["sentence"], "difference (95 % interval)", "n", ANSWERS[answer.word], COMMAND]
        text.blocks.append(pd.DataFrame(lines, columns=header))
    return text


def every_question(configs: Mapping[str, Config]) -> Iterator[tuple[Config, Config]]:
    """Yield the questions of tables, each with its table."""
    for config in configs.values():
        for question in config.get("questions", ()):
            yield config, question


def answered(configs: Mapping[str, Config], sources: Sources) -> Iterator[str]:
    """Yield a sentence for every question that is answered, with its differences."""
    for config, question in every_question(configs):
        answer = verdict(question, fill(config, sources))
        counted = [family for family in answer.families if family.effect]
        parts = [f"{name} {gain}" for family in counted for name, gain, *_ in row_of_family(family)]
        if answer.word != Word.OPEN:
            yield f"**Beyond the paper, {ANSWERS[answer.word]}**: {question['sentence']}. {'; '.join(parts)}."


def region_of(question: Config) -> Region:
    """Return the differences that agree with a question's sentence."""
    return Region(question.get("low", -np.inf), question.get("high", np.inf), question["margin"])


def settings_of(question: Config, table: Table) -> list[Setting]:
    """Return the difference of each row of `more` to each of `less`, a family for each pair and block."""
    settings = []
    for block, rows in table.rows.groupby("block"):
        for more, less in product(question["more"], question["less"]):
            gains = gain(table, block, row_of(table, block, more), less)
            name = f"{rows.title.iloc[0]}: {more} minus {less}"
            settings.append(Setting(name, name, "", values=gains, n=len(gains)))
    return settings


def row_of_family(family: Family) -> Iterator[list[str]]:
    """Yield the one setting of a family: its name, its difference, its seeds and its word, if it has runs."""
    (setting,) = family.settings
    if setting.values is not None and setting.n:
        n = f"{setting.n} of {LEAST}" if setting.n < LEAST else str(setting.n)
        yield [family.name, gain_text(setting.values), n, ANSWERS[family.word]]


def verdict(question: Config, table: Table) -> Verdict:
    """Return the verdict on one question."""
    return judge(settings_of(question, table), region_of(question))
