"""A table as Markdown, LaTeX and CSV."""

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
from tabulate import tabulate

from ..atomic import written_whole
from .evidence import SCORES, SECONDS, Evidence
from .sheet import Grid, Sheet, sheet
from .tables import Block, Line, Table

# Letters that a format would take for markup; each cell passes through its table once.
MARKDOWN = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_<>&|~$[]#"})
LATEX = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}", "[": "{[}", "]": "{]}", "*": "{*}"}
    | {"'": r"\textquotesingle{}", "`": r"\textasciigrave{}"}
    | {"γ": r"$\gamma$", "×": r"$\times$", "±": r"$\pm$", "–": "--"}
    | {raised: rf"\textsuperscript{{{digit}}}" for digit, raised in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
)

# Commands stand as comments, so that they paste as they are. A table wider than the page is scaled to it.
TEMPLATE = r"""
% needs \usepackage{booktabs,graphicx}
\begin{table*}
\centering
\footnotesize
\setlength{\tabcolsep}{3pt}
\caption{<< sheet.caption|latex >>}
\label{tab:<< sheet.name >>}
\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%
\begin{tabular}{l<< "r" * (sheet.grids[0].header|length - 1) >>}
\toprule
<% for grid in sheet.grids %>
<% if not loop.first %>
\midrule
<% endif %>
<< grid.header|map("latex")|join(" & ") >> \\
\midrule
<% for cells in grid.rows %>
<% if grid.commands[loop.index0] %>
% << grid.commands[loop.index0] >>
<% endif %>
<< cells|map("latex")|join(" & ") >> \\
<% endfor %>
<% endfor %>
\bottomrule
\end{tabular}}
<% for note in sheet.numbered() + sheet.places %>

<< note|latex >>
<% endfor %>
\end{table*}
"""


def renderings(table: Table) -> dict[str, str]:
    """The table's text by file suffix."""
    text = sheet(table)
    heading = f"# {text.caption.translate(MARKDOWN)}\n\n"
    return {"md": heading + markdown(text), "tex": latex(text), "csv": comma_separated(table)}


def save(texts: Mapping[Path, str]) -> None:
    """Write each file whole or not at all, in UTF-8 whatever the locale."""
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as file:
            file.write(text.encode())


def markdown(text: Sheet) -> str:
    """One table, every row with its command, a row in bold where a further block begins; the notes below."""
    sides = ["left", *["right"] * (len(text.grids[0].header) - 1), "left"]
    header, *rows = _pipe_rows(text.grids)
    shown = [i for i in range(len(header)) if any(row[i] for row in rows)]
    table = tabulate(
        [[row[i] for i in shown] for row in rows], [header[i] for i in shown],
        tablefmt="pipe", colalign=[sides[i] for i in shown], disable_numparse=True,
    )  # fmt: skip
    notes = "\n".join(f"- {note.translate(MARKDOWN)}" for note in text.numbered() + text.places)
    return "\n\n".join([table, *filter(None, [notes])]) + "\n"


def latex(text: Sheet) -> str:
    """One booktabs table with the blocks below each other, as the paper has them."""
    syntax = {"block_start_string": "<%", "block_end_string": "%>", "trim_blocks": True}
    variables = {"variable_start_string": "<<", "variable_end_string": ">>", "comment_start_string": "<#"}
    environment = jinja2.Environment(**syntax, **variables, keep_trailing_newline=True)  # type: ignore[arg-type]
    environment.filters["latex"] = lambda text: text.translate(LATEX)
    return environment.from_string(TEMPLATE.lstrip()).render(sheet=text)


def comma_separated(table: Table) -> str:
    """Plain numbers (seconds, percent, ratios to six decimals), one row a line; empty where there is none."""
    rows = [_numbers(table, block, line) for block in table.blocks for line in block.lines]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _pipe_rows(grids: list[Grid]) -> Iterator[list[str]]:
    """The first block's head, then all rows; of another block's head what differs from the one before."""
    yield [*(cell.translate(MARKDOWN) for cell in grids[0].header), "command"]
    for before, grid in zip([grids[0], *grids], grids, strict=False):
        if grid is not before:
            pairs = zip(before.header, grid.header, strict=True)
            yield [*(f"**{new.translate(MARKDOWN)}**" if new != old else "" for old, new in pairs), ""]
        for row, command in zip(grid.rows, grid.commands, strict=True):
            yield [*(cell.translate(MARKDOWN) for cell in row), _code(command)]


def _code(command: str) -> str:
    return f"`{command}`".replace("|", "\\|") if command else ""


def _numbers(table: Table, block: Block, line: Line) -> dict[str, Any]:
    setting, ours, paper, first = line.setting, line.ours, line.paper, block.lines[0]
    row: dict[str, Any] = {"block": block.title, "row": line.label, "task": block.task, "method": line.method}
    row |= {letter: getattr(setting, letter, None) for letter in ("r", "gamma", "hidden")}
    row |= {"n": len(ours.runs), "seeds": table.seeds}
    for column in SCORES:
        row |= {f"{column}_mean": ours.mean(column), f"{column}_sd": ours.sd(column)}
    row |= {column: ours.mean(column) for column in SECONDS} | _compared("", ours, first.ours)
    row |= {f"paper_{column}": paper.mean(column) for column in [*SCORES, *SECONDS]}
    row |= _compared("paper_", paper, first.paper)
    row |= {"signature": getattr(setting, "signature", None), "command": line.command}
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()}


def _compared(prefix: str, evidence: Evidence, baseline: Evidence) -> dict[str, float | None]:
    ratios = {column.removesuffix("_s") + "_ratio": evidence.against(baseline, column) for column in SECONDS}
    deltas = {f"{column}_delta": evidence.against(baseline, column) for column in SCORES}
    return {prefix + name: value for name, value in (ratios | deltas).items()}
