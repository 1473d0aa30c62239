"""Run what a table or figure lacks, then render it: python scripts/reproduce.py table=main

figure=NAME, or the word all, instead of table=NAME; dry_run=true shows the commands. What has a record is not
run again, what was stopped or killed goes on with the same command, and several of these programs share the
work of one outputs folder.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from msbp.analysis.plan import Plan
from msbp.analysis.runs import own
from msbp.analysis.settings import Config, configs, plain, settings_from
from msbp.jobs.news import News
from msbp.jobs.ready import unready
from msbp.jobs.workers import Worker, work
from msbp.launch import CONF, ROOT, compose, folder, start

# commands run where the user stands, with this code; what launch.start sets in the environment is not theirs
SEARCHED = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
ENVIRONMENT = os.environ | {"PYTHONPATH": SEARCHED}
FOR_RUNS = ("paths.data=", "paths.outputs=", "paths.ptb=", "paths.nist=", "paths.offline=")
FOR_REPORT = ("table=", "figure=", "paths.outputs=", "paths.published=", "hydra.searchpath=")


@hydra.main(config_path=CONF, config_name="reproduce", version_base="1.3")
def main(cfg: DictConfig) -> None:
    outputs, published = (folder(f"paths.{key}", cfg.paths[key]) for key in ("outputs", "published"))
    settle, given = settings_from(Path(CONF), compose), HydraConfig.get().overrides
    refuse_settings_of_runs(given.task)
    where = [word for word in given.task if word.startswith(FOR_RUNS)]
    plan = Plan(chosen_by(cfg), lambda: own(outputs, published, settle, where), where, tasks_of(cfg))
    leave_out_what_has_no_data(plan, ("paths.offline=true",) if cfg.dry_run else ())
    planned = plan()
    if cfg.dry_run:
        for job in planned:
            print(job.command)
        print(f"{len(planned)} commands", file=sys.stderr)
        return
    with News(plan, len(planned), cfg.jobs) as news:
        failed = work(plan, outputs / "reproduce", cfg.jobs, news, ENVIRONMENT)
    words = [word for word in (*given.task, *given.hydra) if word.startswith(FOR_REPORT)]
    rendered = subprocess.run([sys.executable, "-m", "src.report", *words], env=ENVIRONMENT)
    for worker in failed:
        print(reason(worker), file=sys.stderr)
    sys.exit(1 if failed else rendered.returncode)


def refuse_settings_of_runs(words: Sequence[str]) -> None:
    """ValueError if a word adds a key: Hydra's own message proposes that for any key it does not know."""
    if added := [word for word in words if word.startswith("+")]:
        raise ValueError(
            f"{', '.join(added)}: what tables and figures are made of is fixed, so reproduce.py takes no "
            "settings of runs; `python -m src.train` does"
        )


def chosen_by(cfg: DictConfig) -> list[Config]:
    """The tables and figures that the user names."""
    if not isinstance(cfg.jobs, int) or cfg.jobs < 1:
        raise ValueError(f"jobs must be a whole number of at least 1, got {cfg.jobs!r}")
    every = {group: configs(Path(CONF), group) for group in ("table", "figure")}
    if cfg.all:
        return [config for group in every.values() for config in group.values()]
    chosen = [plain(cfg[group], Path(CONF)) for group in every if group in cfg]
    if not chosen:
        names = "; ".join(f"{group}= one of {', '.join(found)}" for group, found in every.items() if found)
        raise ValueError(f"reproduce what? {names}; or all")
    return chosen


def tasks_of(cfg: DictConfig) -> list[str] | None:
    """The tasks that the user wants alone; ValueError if there is no such task."""
    only = [cfg.only] if isinstance(cfg.only, str) else cfg.only
    known = sorted(path.stem for path in Path(CONF, "task").glob("*.yaml"))
    if wrong := set(only or known) - set(known):
        raise ValueError(
            f"only={', '.join(map(str, wrong))}: there is no such task; tasks: {', '.join(known)}"
        )
    return only and list(only)


def leave_out_what_has_no_data(plan: Plan, also: tuple[str, ...]) -> None:
    """Say in a line which runs cannot begin and why; also: overrides for looking."""
    needed = Counter(job.data for job in plan() if job.data)
    reasons = unready((*data, *also) for data in needed)
    for data, count in needed.items():
        if why := reasons.get((*data, *also)):
            print(f"{data[0]}: {count} runs left out. {why}", file=sys.stderr, flush=True)
            plan.without.add(data)


def reason(worker: Worker) -> str:
    code = worker.process.returncode
    what = f"failed with exit code {code}" if code else "ended well, but its record is not what was wanted"
    return f"{worker.job.command}\n  {what}: {worker.log}\n  {worker.said()}"


def interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt("the same command goes on where its runs have saved themselves")


if __name__ == "__main__":
    sys.argv = ["all=true" if word == "all" else word for word in sys.argv]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # a background job of a script ignores Ctrl-C
            signal.signal(number, interrupt)
    start(main)
