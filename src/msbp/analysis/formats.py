"""A document as Markdown, LaTeX and CSV."""

from collections.abc import Iterator

import jinja2
from tabulate import tabulate

from ..files import csv_text
from .documents import Document
from .sheet import Grid, Sheet

# Letters that a format would take for markup; each cell passes through its table once.
MARKDOWN = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_<>&|~$[]#"})
LATEX = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}", "[": "{[}", "]": "{]}", "*": "{*}"}
    | {"'": r"\textquotesingle{}", "`": r"\textasciigrave{}"}
    | {"γ": r"$\gamma$", "δ": r"$\delta$", "×": r"$\times$", "±": r"$\pm$", "≥": r"$\ge$", "–": "--"}
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
<% for note in sheet.numbered() + sheet.below %>

<< note|latex >>
<% endfor %>
\end{table*}
"""

FIGURE = r"""%% needs \usepackage{graphicx}
\begin{figure}
\centering
\includegraphics[width=\linewidth]{%s.png}
\caption{%s}
\label{fig:%s}
\end{figure}
"""


def renderings(document: Document) -> dict[str, str]:
    """The document's text by file suffix."""
    texts = {"csv": csv_text(document.numbers)}
    if document.figure:
        return texts | {"md": _shown(document), "tex": _included(document)}
    first, *more = document.sheets
    parts = [f"# {document.caption.translate(MARKDOWN)}\n\n{markdown(first)}"]
    parts += [f"## {sheet.caption.translate(MARKDOWN)}\n\n{markdown(sheet)}" for sheet in more]
    texts["md"] = "\n".join(parts)
    return texts | {"tex": "\n".join(map(latex, document.sheets))}


def markdown(text: Sheet) -> str:
    """One table, every row with its command, a row in bold where a further block begins; the notes below."""
    sides = ["left", *["right"] * (len(text.grids[0].header) - 1), "left"]
    header, *rows = _pipe_rows(text.grids)
    shown = [i for i in range(len(header)) if any(row[i] for row in rows)]
    table = tabulate(
        [[row[i] for i in shown] for row in rows], [header[i] for i in shown],
        tablefmt="pipe", colalign=[sides[i] for i in shown], disable_numparse=True,
    )  # fmt: skip
    notes = "\n".join(f"- {note.translate(MARKDOWN)}" for note in text.numbered() + text.below)
    return "\n\n".join([table, *filter(None, [notes])]) + "\n"


def latex(text: Sheet) -> str:
    """One booktabs table with the blocks below each other, as the paper has them."""
    syntax = {"block_start_string": "<%", "block_end_string": "%>", "trim_blocks": True}
    variables = {"variable_start_string": "<<", "variable_end_string": ">>", "comment_start_string": "<#"}
    environment = jinja2.Environment(**syntax, **variables, keep_trailing_newline=True)  # type: ignore[arg-type]
    environment.filters["latex"] = lambda text: text.translate(LATEX)
    return environment.from_string(TEMPLATE.lstrip()).render(sheet=text)


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


def missing(document: Document) -> str:
    """What a document lacks, as Markdown; empty where it has all."""
    commands = "\n".join(f"- {_code(words)}" for words in document.lacks)
    return f"Still to run:\n\n{commands}\n" if commands else ""


def _shown(document: Document) -> str:
    assert document.figure
    image = "" if document.figure.empty else f"![{document.caption}]({document.name}.svg)\n"
    note = document.figure.note and f"{document.figure.note.translate(MARKDOWN)}\n"
    title = f"# {document.caption.translate(MARKDOWN)}\n"
    return "\n".join(filter(None, [title, image, note, missing(document)]))


def _included(document: Document) -> str:
    assert document.figure
    if document.figure.empty:
        return "".join(f"% not drawn, for nothing is measured: {words}\n" for words in document.lacks)
    return FIGURE % (document.name, document.caption.translate(LATEX), document.name)
