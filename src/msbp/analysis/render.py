"""Documents as Markdown, LaTeX, CSV and images; numbers as text. Nothing here knows what they are about."""

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from string import Template
from typing import Any

import numpy as np
import pandas as pd

EMPTY, COMMAND = "–", "command"
IMAGES = ("png", "svg")
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
    | {"°": r"$^\circ$", "ᵀ": r"$^T$", "√": r"$\surd$"}
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
FIGURE = Template(
    r"""% needs \usepackage{graphicx}
\begin{figure}
\centering
\includegraphics[width=\linewidth]{$name.png}
\caption{$caption}
\label{fig:$name}
\end{figure}
"""
)
# Distinct also with few colours; the first is black, for the baseline.
COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
MARKERS = ("D", "o", "s", "^", "v", "P")
STYLE: Any = {
    "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.alpha": 0.3, "legend.frameon": False, "svg.hashsalt": "msbp", "svg.fonttype": "path",
}  # fmt: skip


@dataclass
class Sheet:
    """A table as text: blocks are DataFrames of cells, of which the column `command` is shown as code.

    Remarks of cells are numbered notes; below holds the sentences that follow them. prose: cells are text.
    """

    name: str
    caption: str
    blocks: list[pd.DataFrame] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)
    prose: bool = False

    def mark(self, remarks: Sequence[str]) -> str:
        """Return the raised numbers of these remarks."""
        self.notes += [remark for remark in dict.fromkeys(remarks) if remark not in self.notes]
        return " ".join(str(self.notes.index(remark) + 1) for remark in remarks).translate(RAISED)

    def sentences(self) -> list[str]:
        """Return all that stands below the table, notes after their numbers."""
        return [f"{self.mark([note])} {note}" for note in self.notes] + self.below


@dataclass(frozen=True)
class Series:
    """A line of a figure; colour and marker are the group's, such as k, and 0 is the baseline's."""

    label: str
    points: pd.DataFrame  # columns POINTS
    colour: int = 0
    style: str = "-"
    names: Sequence[str] = ()  # of the points, written beside them


POINTS = ["x", "y", "low", "high", "n"]


@dataclass
class Figure:
    """A pair of axes; log: "x", "y" or "xy"; levels: horizontal lines; note: a sentence below."""

    title: str
    x: str
    y: str
    series: list[Series] = field(default_factory=list)
    levels: list[Series] = field(default_factory=list)
    log: str = ""
    note: str = ""

    @property
    def empty(self) -> bool:
        return all(series.points.empty for series in self.series)

    def numbers(self) -> pd.DataFrame:
        """Return every point; six decimals, for more would differ between machines."""
        every = [*self.series, *self.levels]
        parts = [s.points.assign(series=s.label).round(6) for s in every if not s.points.empty]
        return pd.concat(parts)[["series", *POINTS]] if parts else pd.DataFrame()


@dataclass(frozen=True)
class Forest:
    """Estimates with intervals below each other; rows with an empty `setting` are pooled ones.

    rows: family, setting, estimate, low, high, paper, verdict. edges: of the effects that agree with a claim.
    """

    title: str
    rows: pd.DataFrame
    edges: Sequence[float] = ()
    unit: str = ""


@dataclass
class Document:
    """A table, a figure or the claims: texts, plain numbers, runs, and commands for what is missing.

    sheets: the first is shown in a README; blank: titles of blocks without results; filled: the sheet of the
    other blocks. measured: from benchmarks. claims: the verdicts of a document that has them.
    """

    name: str
    caption: str
    sheets: list[Sheet] = field(default_factory=list)
    numbers: pd.DataFrame = field(default_factory=pd.DataFrame)
    used: pd.DataFrame = field(default_factory=pd.DataFrame)
    angles: pd.DataFrame = field(default_factory=pd.DataFrame)
    missing: list[str] = field(default_factory=list)
    blank: list[str] = field(default_factory=list)
    filled: Sheet | None = None
    figure: Figure | None = None
    measured: bool = False
    claims: Sequence[Any] = ()
    forests: dict[str, Forest] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """True if nothing of it is on record."""
        return self.used.empty and self.angles.empty and not self.measured

    @property
    def has_results(self) -> bool:
        """True if it has something to show: a point, a measured claim, a block with runs."""
        if self.claims:
            return any(claim.measured for claim in self.claims)
        if self.figure:
            return not self.figure.empty
        return bool(self.filled) if self.blank else not self.empty

    @property
    def image_names(self) -> list[str]:
        """The suffixes of its images, `NAME.svg` for the forest plot of a claim."""
        drawn = IMAGES if self.figure and not self.figure.empty else ()
        return [*drawn, *(f"{name}.svg" for name in self.forests)]

    @cached_property
    def images(self) -> dict[str, bytes]:
        """All images by suffix, drawn once."""
        drawn = images(self.figure) if self.figure and not self.figure.empty else {}
        return drawn | {f"{name}.svg": drawn_forest(forest) for name, forest in self.forests.items()}


def files(document: Document, draw: bool = True) -> dict[str, str | bytes]:
    """Return all that is written of a document, by file suffix; draw=False leaves images empty."""
    return renderings(document) | (document.images if draw else dict.fromkeys(document.image_names, b""))


def renderings(document: Document) -> dict[str, str]:
    """Return the document's text by file suffix."""
    texts = {"csv": comma_separated(document.numbers)}
    if document.figure:
        return texts | {"md": _figure_in_markdown(document), "tex": _figure_in_latex(document)}
    first, *more = document.sheets
    parts = [f"# {document.caption.translate(MARKDOWN)}\n\n{markdown(first)}"]
    parts += [f"## {sheet.caption.translate(MARKDOWN)}\n\n{markdown(sheet)}" for sheet in more]
    return texts | {"md": "\n".join(parts), "tex": "\n".join(map(latex, document.sheets))}


def comma_separated(numbers: pd.DataFrame) -> str:
    """Return plain numbers, one row a line; nothing for an empty table."""
    return "" if numbers.empty else numbers.to_csv(index=False, lineterminator="\n")


def markdown(sheet: Sheet) -> str:
    """Return one pipe table, a row in bold where a further block begins, and the sentences below it."""
    rows, before = [], sheet.blocks[0].columns
    for block in sheet.blocks:
        if block is not sheet.blocks[0]:
            heads = zip(before[:-1], block.columns[:-1], strict=True)
            rows.append([f"**{new.translate(MARKDOWN)}**" if new != old else "" for old, new in heads] + [""])
        for *cells, command in block.itertuples(index=False, name=None):
            rows.append([*(cell.translate(MARKDOWN) for cell in cells), code(command)])
        before = block.columns
    text = pd.DataFrame(rows, columns=[head.translate(MARKDOWN) for head in sheet.blocks[0].columns])
    sides = ["left", *["left" if sheet.prose else "right"] * (text.shape[1] - 2), "left"]
    shown = np.flatnonzero((text != "").any())
    notes = "\n".join(f"- {note.translate(MARKDOWN)}" for note in sheet.sentences())
    return "\n\n".join([pipe_table(text.iloc[:, shown], [sides[i] for i in shown]), notes]).rstrip() + "\n"


def pipe_table(text: pd.DataFrame, sides: Sequence[str], style: str = "pipe") -> str:
    """Return cells as they are, each column flush left or right."""
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


def code(command: str) -> str:
    """Return a command as code within a Markdown table."""
    return f"`{command}`".replace("|", "\\|") if command else ""


def still_to_run(document: Document) -> str:
    """Return the commands for what is missing as Markdown; nothing where all is there."""
    commands = "\n".join(f"- {code(words)}" for words in document.missing)
    return f"Still to run:\n\n{commands}\n" if commands else ""


def _figure_in_markdown(document: Document) -> str:
    assert document.figure
    image = "" if document.figure.empty else f"![{document.caption}]({document.name}.svg)\n"
    note = document.figure.note and f"{document.figure.note.translate(MARKDOWN)}\n"
    title = f"# {document.caption.translate(MARKDOWN)}\n"
    return "\n".join(filter(None, [title, image, note, still_to_run(document)]))


def _figure_in_latex(document: Document) -> str:
    assert document.figure
    if document.figure.empty:
        return "".join(f"% not drawn, for nothing is measured: {words}\n" for words in document.missing)
    return FIGURE.substitute(name=document.name, caption=document.caption.translate(LATEX))


@contextmanager
def own_style(more: Mapping[str, object] | None = None) -> Iterator[None]:
    """Import matplotlib and draw in STYLE, whatever the user's matplotlibrc and MPLBACKEND say."""
    backend = os.environ.pop("MPLBACKEND", None)  # that of a notebook may be a module which is not installed
    try:
        from matplotlib import rcParams, style  # here: it takes longer to import than a table to render
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    if backend is not None:
        with suppress(ValueError):
            rcParams["backend"] = backend
    with style.context(["default", STYLE | (more or {})]):
        yield


def images(figure: Figure) -> dict[str, bytes]:
    """Return the image by file suffix, the same bytes each time with one release of matplotlib."""
    if figure.empty:
        raise ValueError(f"nothing to draw in figure {figure.title!r}: render only figures with points")
    files = {}
    with own_style():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas

        canvas = Canvas(figsize=(7.2, 4.0), layout="constrained")
        FigureCanvasAgg(canvas)
        _draw(figure, canvas.subplots())
        for suffix in IMAGES:
            file = io.BytesIO()
            canvas.savefig(file, format=suffix, dpi=144, metadata={"Date": None} if suffix == "svg" else None)
            files[suffix] = file.getvalue()
    return files


def _draw(figure: Figure, axes: Any) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    for series in figure.series:
        if not series.points.empty:
            points = series.points
            bars = [(points.y - points.low).abs(), (points.high - points.y).abs()]  # none drawn for nan
            look = {"linestyle": series.style, "marker": MARKERS[series.colour], "markersize": 4}
            look |= {"color": COLOURS[series.colour], "capsize": 2, "linewidth": 1.2}
            axes.errorbar(points.x, points.y, yerr=bars, label=series.label, **look)
            for x, y, name in zip(points.x, points.y, series.names, strict=False):
                axes.annotate(name, (x, y), xytext=(4, -12), textcoords="offset points", color=look["color"])
    for level in figure.levels:
        for y in level.points.y:
            axes.axhline(y, label=level.label, color=COLOURS[level.colour], linestyle=level.style)
    for name in figure.log:
        axes.set(**{f"{name}scale": "log"})
        axis = getattr(axes, f"{name}axis")
        axis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(NullFormatter())
    axes.set(xlabel=figure.x, ylabel=figure.y, title=figure.title)
    axes.figure.legend(loc="outside right upper", fontsize=9)


def drawn_forest(forest: Forest) -> bytes:
    """Return a forest plot as SVG: diamonds are pooled, grey does not count, crosses are the paper's."""
    rows = forest.rows.reset_index(drop=True)
    with own_style({"svg.fonttype": "none"}):
        from matplotlib.figure import Figure as Canvas

        canvas = Canvas(figsize=(7.2, 0.8 + 0.24 * len(rows)), layout="constrained")
        axes = canvas.subplots()
        for place, row in rows.iterrows():
            pooled, counted = row.setting == "", row.verdict != "not counted"
            colour = COLOURS[0] if pooled else COLOURS[1] if counted else "#999999"
            bars = None if pd.isna(row.low) else [[row.estimate - row.low], [row.high - row.estimate]]
            look: Any = {"color": colour, "marker": "D" if pooled else "o", "markersize": 6 if pooled else 4}
            axes.errorbar(row.estimate, place, xerr=bars, capsize=2, linewidth=1.2, **look)
            if not pd.isna(row.paper):
                axes.plot(row.paper, place, marker="x", color=COLOURS[2], markersize=5)
        for edge in forest.edges:
            axes.axvline(edge, color=COLOURS[0], linestyle=":", linewidth=1)
        axes.set(
            yticks=range(len(rows)),
            yticklabels=rows.setting.where(rows.setting != "", rows.family + ", pooled"),
        )
        axes.invert_yaxis()
        axes.set(xlabel=f"{forest.title} ({forest.unit}); cross: the paper")
        file = io.BytesIO()
        canvas.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def digits(value: float) -> str:
    """Return the value with three significant digits, and no more than three decimals."""
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3}f}"


def fixed(value: float | None, decimals: int) -> str:
    """Return the value with so many decimals; a dash for a missing one."""
    return EMPTY if value is None or np.isnan(value) else f"{value:.{decimals}f}"
