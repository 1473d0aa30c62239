"""Fetch and check the data of tasks: python scripts/prepare_data.py task=parsing_ewt

Missing files are fetched where they are free, existing ones are kept; for licensed ones it prints where to
put them. The exit code is 1 if the data of a task are not ready.
"""

import argparse
import sys
from pathlib import Path

from msbp.cli import start
from msbp.config import CONF, build, compose


def main() -> None:
    every = sorted(path.stem for path in Path(CONF, "task").glob("*.yaml"))
    words = arguments(every)
    named = ",".join(word.removeprefix("task=") for word in words if word.startswith("task="))
    others = [word for word in words if not word.startswith("task=")]
    ready = [prepare(task, others) for task in (named.split(",") if named else every)]
    sys.exit(0 if all(ready) else 1)


def arguments(tasks: list[str]) -> list[str]:
    """The settings on the command line; exits for --help, and for a word that is none."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"tasks: {', '.join(tasks)}\nsettings: any of src.train, such as paths.data=FOLDER or "
        "paths.offline=true; the data belong into data/, or into MSBP_DATA_DIR (data/README.md)",
    )  # fmt: skip
    parser.add_argument(
        "settings", nargs="*", metavar="KEY=VALUE", help="task=NAME or task=NAME,NAME; all tasks if left out"
    )
    words = parser.parse_args().settings
    for word in words:
        if "=" not in word and not word.startswith("~"):
            meant = f"; was task={word} meant?" if word in tasks else ""
            parser.error(f"{word} is not of the form KEY=VALUE{meant}")
        if word.lstrip("+~").startswith("seed="):
            parser.error(f"{word}: runs of all seeds read the same files; leave it out")
    return words


def prepare(task: str, overrides: list[str]) -> bool:
    """Print whether a run could read the task's data, or what is missing or malformed; return whether."""
    try:
        cfg = compose([f"task={task}", *overrides])
        splits = build(cfg.task).splits(cfg.seed)
    except (OSError, ValueError) as error:
        print(f"{task}: not ready. {error}", flush=True)
        return False
    print(f"{task}: ready", *splits.notes, f"digest {splits.digest}", sep="\n  ", flush=True)
    return True


if __name__ == "__main__":
    start(main)
