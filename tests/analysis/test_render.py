import csv
import io
import re

import pandas as pd
import pytest

from msbp.analysis.render import LATEX, MARKDOWN, Sheet, latex, markdown, renderings
from msbp.analysis.runs import Sources
from msbp.analysis.table_text import document_of
from msbp.analysis.tables import fill

AWKWARD = r"r=0.05_γ 50%&#1~x^2\|b"
CONFIG = {
    "name": "awkward", "caption": "50% & more", "seeds": 1, "columns": ["bp_s", "score"],
    "blocks": [{
        "title": "A|B_C", "task": "mnist", "score": "Acc (%)",
        "rows": [{"label": AWKWARD, "overrides": ["method=msbp"], "paper": {"score": 98.23}}],
    }],
}  # fmt: skip
IN_LATEX = {
    r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^", r"\textbar{}": "|",
    r"$\gamma$": "γ", r"\%": "%", r"\&": "&", r"\#": "#", r"\_": "_",
}  # fmt: skip


@pytest.fixture
def table(record_of, runs_of, settle):
    runs = runs_of([record_of("task=mnist method=msbp", bp_s=123.456)])
    return document_of(fill(CONFIG, Sources(runs, settle)))


def test_latex_shows_a_label_as_it_was_typed(table):
    label = re.search(r"^r=.*?(?= & )", latex(table.sheets[0]), re.MULTILINE)[0]
    for markup, letter in IN_LATEX.items():
        label = label.replace(markup, letter)
    assert label == AWKWARD


@pytest.mark.parametrize("letter", list("&%$#_{}~^\\|<>[]*'`"))
def test_every_special_character_of_latex_is_escaped(letter):
    bare = letter.translate(LATEX)
    assert bare != letter
    assert bare.startswith(("\\", "{"))


def test_characters_of_the_tables_have_a_form_in_ascii():
    assert "γ × ± – ²".translate(LATEX) == r"$\gamma$ $\times$ $\pm$ -- \textsuperscript{2}"


def test_latex_rows_have_as_many_cells_as_the_head(table):
    body = latex(table.sheets[0])
    counts = {len(re.findall(r"(?<!\\)&", line)) for line in body.splitlines() if line.endswith(r"\\")}
    columns = re.search(r"\\begin{tabular}{(\w+)}", body)[1]
    assert counts == {len(columns) - 1}


def test_markdown_keeps_its_column_count(table):
    lines = [line for line in markdown(table.sheets[0]).splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {6}


def test_commands_stand_below_a_table_each_once_and_methods_in_one():
    lines = ["train task=a method=sbp", "train task=a method=msbp", "", "train task=b method=sbp && bench x"]
    block = pd.DataFrame({"A": list("abcd"), "command": lines})
    sheet = Sheet("s", "S", [block, block.rename(columns={"A": "B"})])
    assert sheet.commands() == [("A", "train task=a method=sbp,msbp"), ("A", lines[3])]
    text = markdown(sheet)
    assert "```bash\n# A\ntrain task=a method=sbp,msbp\ntrain task=b method=sbp\nbench x\n```" in text
    assert not any("train" in line for line in text.splitlines() if line.startswith("|"))


def test_markdown_escapes_are_undone_by_a_reader():
    assert re.sub(r"\\(.)", r"\1", AWKWARD.translate(MARKDOWN)) == AWKWARD


def test_csv_has_the_agreed_columns_and_plain_numbers(table):
    (row,) = csv.DictReader(io.StringIO(renderings(table)["csv"]))
    agreed = (
        "block task method r gamma hidden n score_mean score_sd bp_s bp_update_s total_s bp_ratio "
        "total_ratio paper_score paper_bp_s paper_total_s"
    ).split()
    assert set(agreed) <= row.keys()
    assert row["block"] == "A|B_C"
    assert row["row"] == AWKWARD
    assert float(row["bp_s"]) == 123.456
    assert row["paper_bp_s"] == row["score_sd"] == ""


def test_an_empty_table_still_has_every_column(runs_of, settle):
    (row,) = csv.DictReader(
        io.StringIO(renderings(document_of(fill(CONFIG, Sources(runs_of([]), settle))))["csv"])
    )
    assert row["n"] == "0"
    assert row["bp_s"] == row["bp_ratio"] == ""
