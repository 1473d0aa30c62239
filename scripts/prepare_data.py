"""Fetch and check the data of a task, or of all: python scripts/prepare_data.py [task=parsing_ewt]

What is free and missing is fetched, what is there is kept; what is licensed is said, with where to put it.
The exit code is 1 if any data are not ready.
"""

import sys
from pathlib import Path

from msbp.cli import start
from msbp.config import CONF, build, compose


def main() -> None:
    others = [word for word in sys.argv[1:] if not word.startswith("task=")]
    asked = [word.removeprefix("task=") for word in sys.argv[1:] if word.startswith("task=")]
    every = sorted(path.stem for path in Path(CONF, "task").glob("*.yaml"))
    ready = [prepared(name, others) for name in asked or every]
    sys.exit(0 if all(ready) else 1)


def prepared(name: str, overrides: list[str]) -> bool:
    """Whether a run could read the task's data, said with what is missing or malformed."""
    try:
        cfg = compose([f"task={name}", *overrides])
        splits = build(cfg.task).splits(cfg.seed)
    except (OSError, ValueError) as error:
        print(f"{name}: not ready. {error}", flush=True)
        return False
    print(f"{name}: ready", *splits.notes, sep="\n  ", flush=True)
    return True


if __name__ == "__main__":
    start(main)
