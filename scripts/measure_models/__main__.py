"""Measure models that others wrote, before and after conversion, and show them in the method card.

    python -m scripts.measure_models            measure all of them; run it alone
    python -m scripts.measure_models --keep     measure what the published file does not have yet
    python -m scripts.measure_models --render   write the published tables into src/msbp/sparse/README.md

The baseline is torch's fused AdamW on the plain model; steps of both are timed in turns. An interrupted
measurement goes on where it stopped. Needs transformers.
"""

import argparse
from pathlib import Path

from .table import FILE, render
from .trainings import TIMES, TRAININGS


def main() -> None:
    """Measure and render, or render alone."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.measure_models",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--render", action="store_true", help="write the published table into the card")
    parser.add_argument("--out", type=Path, default=FILE, help="file of the results (published)")
    parser.add_argument("--rounds", type=int, default=15, help="timed steps of each model (15)")
    parser.add_argument("--steps", type=int, default=500, help="steps of learning (500)")
    parser.add_argument("--seeds", type=int, default=3, help="trainings at each ratio (3)")
    parser.add_argument(
        "--columns", nargs="+", default=[TIMES, *TRAININGS], help="measure these alone, such as speed or 0.1"
    )
    parser.add_argument("--keep", action="store_true", help="keep the results that the file has")
    parser.add_argument(
        "--again", nargs="+", default=[], metavar="COLUMN",
        help="with --keep: columns to measure again, such as speed or 0.1",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="two steps of everything, to see that it works")
    options = parser.parse_args()
    if options.render:
        render(options.out)
        return
    try:
        from .measure import Plan, measure
    except ModuleNotFoundError as error:
        parser.error(f"{error.name} is not installed: pip install -e '.[integrations]', or give --render")

    unknown = {*options.again, *options.columns} - {TIMES, *TRAININGS}
    if unknown:
        parser.error(f"no such columns: {sorted(unknown)}; choose from {[TIMES, *TRAININGS]}")
    if options.again and not options.keep:
        parser.error("--again goes with --keep: without it all columns are measured")
    if options.keep and not options.out.exists():
        parser.error(f"there are no results to keep: {options.out} does not exist")
    plan = Plan(options.rounds, options.steps, tuple(range(options.seeds)))
    if options.quick:
        if options.out == FILE:
            parser.error("--quick measures nothing worth publishing: give --out=FILE")
        plan = Plan(2, 2, (0,))
    try:
        measure(plan, options.out, options.out != FILE, options.keep, options.again, options.columns)
    except ValueError as error:
        parser.error(str(error))
    if options.out == FILE:
        render()


if __name__ == "__main__":
    main()
