"""Rows of translation compared sentence by sentence, where their runs left what they translated."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

from ..record import HYPOTHESES
from .pairs import bare
from .runs import Runs
from .tables import Block, Line

SAMPLES = 1000


def notes(blocks: Sequence[Block], runs: Runs) -> list[str]:
    """A sentence for each block with two rows that left translations for equal seeds."""
    return [text for block in blocks if (text := note(block, runs))]


def note(block: Block, runs: Runs) -> str:
    """Every two rows of the block, seed by seed; empty where no two can be paired."""
    left = [folders(line, runs) for line in block.lines]
    parts = []
    for one, two in combinations(range(len(left)), 2):
        found = list(_compared(left[one], left[two]))
        if found:
            names = f"{bare(block.lines[two])} against {bare(block.lines[one])}"
            parts.append(f"{names} {', '.join(found)}")
    return f"Paired bootstrap of {block.title}, {SAMPLES} samples: {'; '.join(parts)}." if parts else ""


def folders(line: Line, runs: Runs) -> dict[int, Path]:
    """By seed, where the row's runs left their translations."""
    places = {run["seed"]: runs.folder(run) for run in line.ours.runs}
    return {seed: place for seed, place in places.items() if (place / HYPOTHESES).exists()}


def _compared(first: dict[int, Path], second: dict[int, Path]) -> Iterator[str]:
    for seed in sorted(first.keys() & second.keys()):
        from .bootstrap import paired_bootstrap  # sacreBLEU takes longer to import than most reports take

        try:
            base, other = paired_bootstrap([first[seed], second[seed]], SAMPLES)
        except (OSError, ValueError):  # the table already marks rows that were scored by different rules
            continue
        yield f"{other.bleu - base.bleu + 0.0:+.2f} (p = {other.p:.3f}, seed {seed})"
