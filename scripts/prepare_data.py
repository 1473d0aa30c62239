"""Fetch and check the data of a task, or of all: python scripts/prepare_data.py [task=parsing_ewt]

What is free and missing is fetched, what is there is kept; what is licensed is said, with where to put it.
"""

import sys
from pathlib import Path

from hydra.utils import instantiate

from msbp.launch import CONF, compose, start


def main() -> None:
    overrides = sys.argv[1:]
    asked = [word.removeprefix("task=") for word in overrides if word.startswith("task=")]
    others = [word for word in overrides if not word.startswith("task=")]
    if asked:
        prepare(asked[-1], others)
        return
    for name in sorted(path.stem for path in Path(CONF, "task").glob("*.yaml")):
        try:
            prepare(name, others)
        except OSError as error:
            print(f"{name}: not ready. {error}", flush=True)


def prepare(name: str, overrides: list[str]) -> None:
    """Read the task's data as a run would. OSError or ValueError name what is missing or malformed."""
    cfg = compose([f"task={name}", *overrides])
    splits = instantiate(cfg.task, _convert_="all").splits(cfg.seed)
    print(f"{name}: ready", *splits.notes, sep="\n  ", flush=True)


if __name__ == "__main__":
    start(main)
