"""Tables of differences: each row of a table minus named others, and the questions that they answer."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import product

import pandas as pd

from .render import COMMAND, EMPTY, Document, Sheet
from .runs import Sources
from .settings import Config
from .significance import mean_interval
from .table_text import HEADERS, cell, count_cell, score_cell, signed, tabulated
from .tables import NOT_RUN, SHARES, Table, fill
from .verdicts import LEAST, Family, Interval, Region, Setting, Verdict, Word, judge

ANSWERS = {Word.REPRODUCED: "yes", Word.NOT: "no", Word.IN_PART: "in part", Word.OPEN: "open"}
QUESTIONS = ["question and differences", "difference (95 % interval)", "n", "answer", COMMAND]
QUESTION_NOTE = (
    "Differences over at least {least} equal seeds. Yes: the interval is on the side of the sentence. No: "
    "it is on the other side by more than the margin, {margins} points. Open: neither. A sentence is "
    "answered with no if one of its differences is, and in part if some are yes. Holm corrects for the "
    "settings of a question."
)
DIFFERENCES = (
    "Minus: mean difference over the seeds that both rows have, with its 95 % interval, not corrected for "
    "the number of rows."
)
DROPPED = (
    "Dropped: the share of the squared norm of the hidden layers' gradients, of examples of the development "
    "set after training, that is not propagated; a memory may propagate it later."
)


def differences(config: Config, sources: Sources) -> Document:
    """Return the table with each row's differences to those that `against` lists, and its questions."""
    table = fill(config, sources)
    shown = tabulated(
        table, lambda rows: difference_sheet(config, table, rows), difference_numbers(config, table),
        sources.missing(config),
    )  # fmt: skip
    shown.sheets += [questions({config["name"]: config}, sources)] if config.get("questions") else []
    return shown


def difference_sheet(config: Config, table: Table, rows: pd.DataFrame) -> Sheet:
    """Return the cells of rows: label, score, differences, shares dropped, n and the command."""
    text, dropped = Sheet(table.name, table.caption), [each for each in table.columns if each in SHARES]
    for number, block in rows.groupby("block"):
        cells = []
        for row, values in block.iterrows():
            gains = [gain_text(table.gains(number, row, label)) for label in config["against"]]
            score = score_cell(values.score_mean, values.score_sd) or EMPTY
            shares = [cell(values, values, column) or EMPTY for column in dropped]
            n = count_cell(values) + text.mark(table.remarks[row, "n"])
            cells.append([values.label, score, *gains, *shares, n, values[COMMAND]])
        first, minus = block.iloc[0], [f"minus {label}" for label in config["against"]]
        header = [first.title, first.header, *minus, *(HEADERS[column] for column in dropped), "n", COMMAND]
        text.blocks.append(pd.DataFrame(cells, columns=header))
    text.below += [DIFFERENCES, *[DROPPED] * bool(dropped), *config.get("notes", ())]
    return text


def gain_text(gains: pd.Series) -> str:
    """Return the mean with its interval, or alone where one seed is common."""
    if not len(gains):
        return EMPTY
    interval = mean_interval(gains)
    edges = f" ({signed(interval.low)} to {signed(interval.high)})" if interval else ""
    return signed(gains.mean()) + edges


def difference_numbers(config: Config, table: Table) -> pd.DataFrame:
    """Return scores and differences with their intervals, rounded to six decimals only."""
    lines = []
    for row, values in table.rows.iterrows():
        line = {"block": values.title, "row": values.label, "n": values.n}
        line |= {"score_mean": values.get("score_mean"), "score_sd": values.get("score_sd")}
        line |= {column: values.get(column) for column in table.columns if column in SHARES}
        for label in config["against"]:
            gains = table.gains(values.block, row, label)
            interval = mean_interval(gains) or Interval(gains.mean(), math.nan, math.nan)
            parts = asdict(interval) | {"n": len(gains)}
            line |= {f"minus {label}: {part}": number for part, number in parts.items()}
        lines.append(line | {"signature": values.signature, COMMAND: values[COMMAND]})
    return pd.DataFrame(lines).round(6)


def questions(configs: Mapping[str, Config], sources: Sources) -> Sheet:
    """Return every question of these tables with its answer, and below it the differences that answer it."""
    margins = {f"{question['margin']:g}" for config in configs.values() for question in config["questions"]}
    note = QUESTION_NOTE.format(least=LEAST, margins=" or ".join(sorted(margins)))
    lines = []
    for config, question, answer in judged(configs, sources):
        rows = list(map(row_of_family, answer.families)) or [[NOT_RUN, EMPTY, "0", EMPTY]]
        run = f"python scripts/reproduce.py table={config['name']}"
        lines.append([question["sentence"], "", "", ANSWERS[answer.word], ""])
        lines += [[f"– {name}", *rest, run] for name, *rest in rows]
    return Sheet("beyond", "Beyond the paper", [pd.DataFrame(lines, columns=QUESTIONS)], below=[note])


def answered(configs: Mapping[str, Config], sources: Sources) -> Iterator[str]:
    """Yield a sentence for every question that is answered, with its differences, and one for all others."""
    left = []
    for _, question, answer in judged(configs, sources):
        if answer.word == Word.OPEN:
            left.append(question["sentence"])
            continue
        counted = [family for family in answer.families if family.effect]
        parts = [f"{name} {gain}, {word}" for name, gain, _, word in map(row_of_family, counted)]
        yield f"**Beyond the paper, {ANSWERS[answer.word]}**: {question['sentence']}. {'; '.join(parts)}."
    if left:
        yield f"**Beyond the paper, open**: {'; '.join(left)}."


def judged(configs: Mapping[str, Config], sources: Sources) -> Iterator[tuple[Config, Config, Verdict]]:
    """Yield each question of these tables after its table, and with its verdict.

    A family is the difference between a row of `more` and one of `less` in one block.
    """
    every = [(config, question) for config in configs.values() for question in config.get("questions", ())]
    for config, question in every:
        table, settings = fill(config, sources), []
        blocks = table.rows.groupby("block")
        for (block, rows), more, less in product(blocks, question["more"], question["less"]):
            gains = table.gains(block, table.labelled(block, more), less)
            name = f"{rows.title.iloc[0]}: {more} minus {less}"
            if len(gains):
                settings.append(Setting(name, name, "", values=gains, n=len(gains)))
        region = Region(question.get("low", -math.inf), question.get("high", math.inf), question["margin"])
        yield config, question, judge(settings, region)


def row_of_family(family: Family) -> list[str]:
    """Return the one setting of a family: its name, its difference, its seeds and its word."""
    (setting,) = family.settings
    assert setting.values is not None
    n = f"{setting.n} of {LEAST}" if setting.n < LEAST else str(setting.n)
    return [family.name, gain_text(setting.values), n, ANSWERS[family.word]]
