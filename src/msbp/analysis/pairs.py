"""Rows of a block compared run by run of equal seeds, which for cross-validation are equal folds."""

from itertools import combinations

from .statistics import Tested, paired_t
from .tables import Block, Line


def common_scores(first: Line, second: Line) -> tuple[list[float], list[float]]:
    """The scores of the seeds that both rows have, in the order of the seeds."""
    scores = [{run["seed"]: run["test"] for run in line.ours.runs} for line in (first, second)]
    seeds = sorted(scores[0].keys() & scores[1].keys())
    return [scores[0][seed] for seed in seeds], [scores[1][seed] for seed in seeds]


def paired(first: Line, second: Line) -> Tested | None:
    return paired_t(*common_scores(first, second))


def paired_p(block: Block, line: Line) -> dict[str, float | None]:
    """p of the row against the block's first row and against the row before it."""
    place = block.lines.index(line)
    others = {"first": block.lines[0], "before": block.lines[max(place - 1, 0)]}
    tests = {name: paired(other, line) if other is not line else None for name, other in others.items()}
    return {name: test.p if test else None for name, test in tests.items()}


def note(block: Block) -> str | None:
    """One sentence with every two rows of the block; None where no two have runs of equal seeds."""
    parts = []
    for first, second in combinations(block.lines, 2):
        scores = common_scores(first, second)
        if len(scores[0]) > 1:
            gain = sum(scores[1]) / len(scores[1]) - sum(scores[0]) / len(scores[0])
            test = paired(first, second)
            told = f"p = {test.p:.3f}" if test else "the same gain in every run"
            names = f"{bare(second)} against {bare(first)} {gain + 0.0:+.2f}"
            parts.append(f"{names} ({told}, n = {len(scores[0])})")
    return f"Paired t-tests of {block.title}, two-sided: {'; '.join(parts)}." if parts else None


def bare(line: Line) -> str:
    return line.label.removeprefix("+ ")
