"""Tables of the parts of a training step, for a terminal, Markdown and the HTML page."""

from collections.abc import Sequence

import pandas as pd

from .benchmarks import command, name, platform
from .measurements import Result
from .render import EMPTY, digits, pipe_table

TITLE = "Where a step goes"
HEADER = ["phase", "part", "ms", "of the step", "MB", "MFLOP", "GB/s", "GFLOP/s", "of the peak"]
NAMES = 2  # columns of text
LEGEND = """\
Milliseconds are means over steps, without the fastest and slowest tenth. MB and MFLOP: what a part needs at
least, with every operand moved once; operations are those on floats, not comparisons. Of the peak: the larger
share of the machine's rates, of a dense product's operations or of adding vectors as long as all that a step
moves; small operands come from nearer caches and may exceed the rate of bytes. Python between is what is left
of a phase: new tensors, checks, torch's way to its operations and its operations on less than 32 KiB."""


def cells(result: Result) -> pd.DataFrame:
    """Return the parts as text, and the step in the last line."""
    lines = [line(part, result) for part in result["parts"]]
    step = {"phase": "step", "part": "", "ms": result["step_ms"]}
    step |= {unit: sum(part[unit] for part in result["parts"]) for unit in ("bytes", "flops")}
    table = pd.DataFrame([*lines, line(step, result)], columns=HEADER)
    table["phase"] = table.phase.where(table.phase != table.phase.shift(), "")  # once for all of its parts
    return table


def line(part: Result, result: Result) -> list[str]:
    """Return the cells of a part; a dash for what it has none of."""
    rates = {"GB/s": part["bytes"] / part["ms"] / 1e6, "GFLOP/s": part["flops"] / part["ms"] / 1e6}
    peaks = {"GB/s": result["peak_gb_s"], "GFLOP/s": result["peak_gflops"]}
    shares = {unit: rate / peaks[unit] for unit, rate in rates.items()}
    binding = max(shares, key=lambda unit: shares[unit])
    numbers = [part["bytes"] / 1e6, part["flops"] / 1e6, *rates.values()]
    share = f"{shares[binding]:.0%} of {binding}" if shares[binding] else EMPTY
    return [
        part["phase"], part["part"], digits(part["ms"]), f"{part['ms'] / result['step_ms']:.1%}",
        *(digits(number) if number else EMPTY for number in numbers), share,
    ]  # fmt: skip


def section(results: Sequence[Result]) -> str:
    """Return a section with a table for each result; empty if there is none."""
    tables = "".join(f"{markdown(result)}\n\n" for result in results)
    return f"\n## {TITLE}\n\n{tables}{LEGEND}\n" if results else ""


def markdown(result: Result) -> str:
    """Return a pipe table under the case, its command and the machine's rates."""
    return f"**{name(result)}**: `{command(result)}` on {where(result)}\n\n{pipe(result, 'pipe')}"


def table(result: Result) -> str:
    """Return the parts for a terminal."""
    return f"{name(result)}: {where(result)}\n\n{pipe(result, 'simple')}\n\n{LEGEND}"


def pipe(result: Result, style: str) -> str:
    return pipe_table(cells(result), NAMES, style)


def where(result: Result) -> str:
    """Return the machine, with its rates, in words."""
    rates = f"{digits(result['peak_gflops'])} GFLOP/s and {digits(result['peak_gb_s'])} GB/s at most"
    return f"{platform(result)}; {rates}"
