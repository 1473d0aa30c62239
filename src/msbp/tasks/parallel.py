"""Parallel text: line n of one file translates line n of the others, and no line slips."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .invented import WORDS, invented

CONTROLS = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f]")  # all but the line feed


@dataclass(frozen=True)
class ParallelText:
    """Lines of a source, and as many of each reference: a translation, or several by different people."""

    source: Sequence[str]
    references: Sequence[Sequence[str]]

    def __len__(self) -> int:
        return len(self.source)


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file, gzip or plain, their words apart by one space; empty lines stay.

    Only a line feed ends a line: control characters and Unicode's separators count as spaces. ValueError
    names the file, and the line that is no UTF-8.
    """
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not UTF-8 ({error.reason}); convert the file") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is no whole gzip file ({error}): get it anew") from error
    if not text:
        raise ValueError(f"{path} is empty; wanted one sentence a line: get it anew")
    lines = CONTROLS.sub(" ", text).removesuffix("\n").split("\n")
    return [" ".join(line.split()) for line in lines]


def read_parallel(source: Path, *references: Path) -> ParallelText:
    """The lines of files that must have equally many. ValueError names two that have not, and both counts."""
    lines = read_lines(source)
    translations = [read_lines(path) for path in references]
    for path, found in zip(references, translations, strict=True):
        if len(found) != len(lines):
            raise ValueError(
                f"{source} has {len(lines)} lines and {path} has {len(found)}: line n of one must translate "
                "line n of the other; get both files anew, of one edition"
            )
    return ParallelText(lines, translations)


def merged(parts: Sequence[ParallelText]) -> ParallelText:
    """Several texts as one. ValueError unless all have equally many references."""
    counts = [len(part.references) for part in parts]
    if len(set(counts)) > 1:
        raise ValueError(f"texts with {', '.join(map(str, counts))} references cannot be scored as one")
    streams = zip(*(part.references for part in parts), strict=True)
    return ParallelText(
        [line for part in parts for line in part.source],
        [[line for lines in stream for line in lines] for stream in streams],
    )


def made_up(count: int, seed: int) -> ParallelText:
    """Sentences of a toy grammar and their translations: every word backwards, the verb at the end."""
    sentences = [list(sentence.words) for sentence in invented(count, seed)]
    verbs = set(WORDS["VBD"][1])
    translations = [
        [word[::-1] for word in sorted(words[:-1], key=verbs.__contains__)] + words[-1:]
        for words in sentences
    ]
    return ParallelText([" ".join(s) for s in sentences], [[" ".join(t) for t in translations]])
