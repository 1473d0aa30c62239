"""What a report says on the terminal: what was measured in full, what was not in a line each."""

import shlex
from collections.abc import Iterable, Iterator, Sequence

from .documents import Document
from .formats import markdown, renderings
from .sheet import Sheet

FIRST = "main"


def ordered(documents: Iterable[Document]) -> list[Document]:
    """The main table first, then what has something on record, then the rest."""
    return sorted(documents, key=lambda made: (made.name != FIRST, not made.on_record))


def said(documents: Sequence[Document], where: Sequence[str] = ()) -> Iterator[str]:
    """Texts in the order of the documents; a single document without any record is shown all the same.

    where: overrides with which commands leave more here.
    """
    for made in documents:
        if made.on_record or len(documents) == 1:
            yield text_of(made, where)
        else:
            yield f"{made.name}: no runs yet; {reproduce(made, where)}"


def text_of(made: Document, where: Sequence[str]) -> str:
    """Markdown: of a table the blocks that have runs, of claims their summary, of others all."""
    if made.claims:
        return f"{titled(made, made.sheets[0])}\nEvery setting of each claim is in {made.name}.md.\n"
    if not made.filled or not made.blank:
        return renderings(made)["md"]
    blank = f"{', '.join(made.blank)}: no runs yet; {reproduce(made, where)}"
    return f"{titled(made, made.filled)}\n{blank}\n"


def titled(made: Document, sheet: Sheet) -> str:
    return f"# {made.caption}\n\n{markdown(sheet)}"


def reproduce(made: Document, where: Sequence[str]) -> str:
    """The command that runs what the document lacks."""
    kind = "all" if made.claims else f"{'figure' if made.figure else 'table'}={made.name}"
    return shlex.join(["python", "scripts/reproduce.py", kind, *where])
