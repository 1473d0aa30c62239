"""Documents as Markdown, LaTeX and CSV; numbers as text. Nothing here knows what they are about."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from string import Template

import numpy as np
import pandas as pd

from .settings import together

EMPTY, COMMAND = "–", "command"
RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
# Letters that a format would take for markup; each cell passes through its table once.
MARKDOWN = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_<>&|~$[]#"})
LATEX = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}", "[": "{[}", "]": "{]}", "*": "{*}"}
    | {"'": r"\textquotesingle{}", "`": r"\textasciigrave{}"}
    | {"γ": r"$\gamma$", "δ": r"$\delta$", "×": r"$\times$", "±": r"$\pm$", "≥": r"$\ge$", "–": "--"}
    | {"ℓ": r"$\ell$", "∂": r"$\partial$", "ρ": r"$\rho$", "θ": r"$\theta$", "μ": r"$\mu$"}
    | {"°": r"$^\circ$", "ᵀ": r"$^T$", "√": r"$\surd$", "·": r"$\cdot$"}
    | {raised: rf"\textsuperscript{{{digit}}}" for digit, raised in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
)
TABLE = Template(
    r"""% needs \usepackage{booktabs,graphicx}
\begin{table*}
\centering
\footnotesize
\setlength{\tabcolsep}{3pt}
\caption{$caption}
\label{tab:$name}
\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%
$tabular}
$notes\end{table*}
"""
)


@dataclass
class Sheet:
    """A table as text: blocks are DataFrames of cells; the commands of their last column stand below.

    Remarks of cells are numbered notes; below holds the sentences that follow them. prose: cells are text.
    above: sentences, and image: the file of an image, before the table.
    """

    name: str
    caption: str
    blocks: list[pd.DataFrame] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)
    prose: bool = False
    above: list[str] = field(default_factory=list)
    image: str = ""

    def mark(self, remarks: Sequence[str]) -> str:
        """Return the raised numbers of these remarks."""
        self.notes += [remark for remark in dict.fromkeys(remarks) if remark not in self.notes]
        return " ".join(str(self.notes.index(remark) + 1) for remark in remarks).translate(RAISED)

    def sentences(self) -> list[str]:
        """Return all that stands below the table, notes after their numbers."""
        return [f"{self.mark([note])} {note}" for note in self.notes] + self.below

    def commands(self) -> list[tuple[str, str]]:
        """Return the commands of all rows, each once and after its block's title; methods of a row in one."""
        titles: dict[str, str] = {}
        for block in self.blocks:
            lines: list[str] = []
            for command in dict.fromkeys(filter(None, block[COMMAND])):
                one = together([lines[-1], command]) if lines and "&&" not in lines[-1] + command else "&&"
                lines = [*lines, command] if "&&" in one else [*lines[:-1], one]
            for line in lines:
                titles.setdefault(line, str(block.columns[0]))
        return [(title, command) for command, title in titles.items()]


@dataclass
class Document:
    """A table as text and plain numbers, with the runs that it shows and the commands for what is missing.

    sheets: the first is shown in a README; blank: titles of blocks without results; filled: the sheet of the
    other blocks. measured: whether its numbers are from benchmarks or checks that are on record.
    """

    name: str
    caption: str
    sheets: list[Sheet] = field(default_factory=list)
    numbers: pd.DataFrame = field(default_factory=pd.DataFrame)
    used: pd.DataFrame = field(default_factory=pd.DataFrame)
    missing: list[str] = field(default_factory=list)
    blank: list[str] = field(default_factory=list)
    filled: Sheet | None = None
    measured: bool = False

    @property
    def empty(self) -> bool:
        """True if nothing of it is on record."""
        return self.used.empty and not self.measured

    @property
    def has_results(self) -> bool:
        """True if it has something to show: a block with runs, or measurements."""
        return bool(self.filled) if self.blank else not self.empty

    def texts(self) -> dict[str, str]:
        """Return the text by file suffix."""
        first, *more = self.sheets
        parts = [f"# {self.caption.translate(MARKDOWN)}\n\n{markdown(first)}"]
        for sheet in more:
            image = [f"![{sheet.caption}]({sheet.image})"] if sheet.image else []
            above = [wrapped(sentence.translate(MARKDOWN)) for sentence in sheet.above]
            title = f"## {sheet.caption.translate(MARKDOWN)}"
            parts.append("\n\n".join([title, *above, *image, markdown(sheet)]))
        tables = "\n".join(map(latex, self.sheets))
        return {"csv": comma_separated(self.numbers), "md": "\n".join(parts), "tex": tables}

    def files(self, draw: bool = True) -> dict[str, str | bytes]:
        """Return the content of every file by suffix; draw=False leaves images empty."""
        return {**self.texts()}


def comma_separated(numbers: pd.DataFrame) -> str:
    """Return plain numbers, one row a line; nothing for an empty table."""
    return "" if numbers.empty else numbers.to_csv(index=False, lineterminator="\n")


def markdown(sheet: Sheet) -> str:
    """Return one pipe table, a row in bold where a further block begins, the sentences and the commands."""
    rows, before = [], sheet.blocks[0].columns
    for block in sheet.blocks:
        if block is not sheet.blocks[0]:
            heads = zip(before[:-1], block.columns[:-1], strict=True)
            rows.append([f"**{new.translate(MARKDOWN)}**" if new != old else "" for old, new in heads])
        for *cells, _ in block.itertuples(index=False, name=None):
            rows.append([cell.translate(MARKDOWN) for cell in cells])
        before = block.columns
    text = pd.DataFrame(rows, columns=[head.translate(MARKDOWN) for head in sheet.blocks[0].columns[:-1]])
    text = text.loc[:, (text != "").any().to_numpy()]
    notes = "\n".join(bullet(note.translate(MARKDOWN)) for note in sheet.sentences())
    table = pipe_table(text, text.shape[1] if sheet.prose else 1)
    return "\n\n".join(filter(None, [table, notes, folded(sheet.commands())])) + "\n"


def wrapped(text: str, first: str = "", others: str = "") -> str:
    """Return text in lines that fit a page, which begin with these words."""
    wrap = textwrap.TextWrapper(118, first, others, break_on_hyphens=False, break_long_words=False)
    return wrap.fill(text)


def bullet(text: str) -> str:
    """Return text as an item of a Markdown list, in lines that fit a page."""
    return wrapped(text, "- ", "  ")


def folded(commands: Sequence[tuple[str, str]]) -> str:
    """Return commands, after the titles of their blocks, as a code block that a reader unfolds."""
    lines, last = [], ""
    for title, command in commands:
        lines += [f"# {title}"] * (title != last) + command.split(" && ")
        last = title
    code = "\n".join(lines)
    return f"<details><summary>Commands</summary>\n\n```bash\n{code}\n```\n\n</details>" if code else ""


def pipe_table(text: pd.DataFrame, names: int = 1, style: str = "pipe") -> str:
    """Return cells as they are: columns of names, the first ones, flush left, those of numbers right."""
    sides = ["left"] * names + ["right"] * (text.shape[1] - names)
    return text.to_markdown(index=False, tablefmt=style, colalign=sides, disable_numparse=True)


def latex(sheet: Sheet) -> str:
    """Return one booktabs table with the blocks below each other, scaled to the page where it is wider.

    Commands stand in comments, from where they paste as they are.
    """
    rows = []
    for block in sheet.blocks:
        rule = ""
        if block is not sheet.blocks[0]:
            head, *heads = (head.translate(LATEX) for head in block.columns[:-1])
            rows.append([f"\\midrule\n{head}", *heads])
            rule = "\\midrule\n"
        for *cells, command in block.itertuples(index=False, name=None):
            label, *others = (cell.translate(LATEX) for cell in cells)
            rows.append([rule + (f"% {command}\n" if command else "") + label, *others])
            rule = ""
    text = pd.DataFrame(rows, columns=[head.translate(LATEX) for head in sheet.blocks[0].columns[:-1]])
    columns = "l" + ("l" if sheet.prose else "r") * (text.shape[1] - 1)
    tabular = text.style.hide(axis="index").to_latex(hrules=True, column_format=columns)
    notes = "".join(f"\n{note.translate(LATEX)}\n" for note in sheet.sentences())
    caption = sheet.caption.translate(LATEX)
    return TABLE.substitute(caption=caption, name=sheet.name, tabular=tabular.rstrip(), notes=notes)


def digits(value: float) -> str:
    """Return the value with three significant digits, and no more than three decimals; a dash for nan."""
    if np.isnan(value):
        return EMPTY
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3}f}"


def fixed(value: float | None, decimals: int) -> str:
    """Return the value with so many decimals; a dash for a missing one."""
    return EMPTY if value is None or np.isnan(value) else f"{value:.{decimals}f}"
