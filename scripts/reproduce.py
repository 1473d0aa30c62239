"""Run what a table or figure lacks, then render it: python scripts/reproduce.py table=main

figure=NAME, or the word all, instead of table=NAME; dry_run=true shows the commands. What has a record is not
run again, what was stopped or killed goes on with the same command, and several of these programs share the
work of one outputs folder, where what is timed runs alone.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Self

import hydra
import pandas as pd
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from pydantic import PositiveInt, model_validator

from msbp import jobs
from msbp.analysis import theory
from msbp.analysis.runs import Sources, frame, own
from msbp.analysis.settings import Config, chosen, configs, rests_on_theory, settings_from
from msbp.cli import start
from msbp.config import CONF, ROOT, ChoosingOptions, Paths, compose
from msbp.measurements import RECORDS

# commands run in the user's folder, with this code; what cli.start sets in the environment is not theirs
SEARCHED = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
ENVIRONMENT = os.environ | {"PYTHONPATH": SEARCHED}
FOR_RUNS = ("paths.data=", "paths.outputs=", "paths.ptb=", "paths.nist=", "paths.offline=")
FOR_REPORT = ("table=", "figure=", "paths.outputs=", "paths.published=", "hydra.searchpath=")


class ReproduceOptions(ChoosingOptions):
    """Options of this script."""

    all: bool
    only: str | list[str] | None
    jobs: PositiveInt
    dry_run: bool
    paths: Paths

    @model_validator(mode="after")
    def _chooses_once(self) -> Self:
        """Return the options; ValueError for a table or figure besides all of them."""
        if self.all and self.choice:
            raise ValueError(f"all has {self.choice} among others; leave one of the two out")
        return self


@dataclass
class Plan:
    """Jobs that configs still lack whenever it is called.

    read: returns the present measurements. where: overrides for every run. only: names of tasks, None for all
    of them and all that is of no task. without: overrides of data whose runs are left out.
    """

    configs: Sequence[Config]
    read: Callable[[], Sources]
    where: Sequence[str] = ()
    only: Collection[str] | None = None
    without: set[tuple[str, ...]] = field(default_factory=set)

    def __call__(self) -> list[jobs.Job]:
        return [job for job in requested(self.configs, self.read(), self.where) if self._takes(job)]

    def _takes(self, job: jobs.Job) -> bool:
        return (self.only is None or job.task in self.only) and job.data not in self.without


def main() -> None:
    refuse_settings_of_runs(sys.argv[1:])
    reproduce()


@hydra.main(config_path=CONF, config_name="reproduce", version_base="1.3")
def reproduce(cfg: DictConfig) -> None:
    given = HydraConfig.get().overrides
    options = ReproduceOptions.of(cfg)
    outputs, published = Path(cfg.paths.outputs), Path(cfg.paths.published)
    settle, where = settings_from(Path(CONF), compose), [w for w in given.task if w.startswith(FOR_RUNS)]
    plan = Plan(chosen_by(cfg), lambda: own(outputs, published, settle, where), where, tasks_of(options))
    print("looking for runs that have no record yet", file=sys.stderr, flush=True)
    leave_out_what_has_no_data(plan, ("paths.offline=true",) if options.dry_run else ())
    planned = plan()
    if options.dry_run:
        for job in planned:
            print(job.command)
        print(f"{len(planned)} commands{hours(planned, published)}", file=sys.stderr)
        return
    runner = jobs.Runner(outputs / "reproduce", lambda: {job.key: job for job in plan()}, ENVIRONMENT)
    failed = runner.run(planned, options.jobs)
    words = [word for word in (*given.task, *given.hydra) if word.startswith(FOR_REPORT)]
    rendered = subprocess.run([sys.executable, "-m", "src.report", *words], env=ENVIRONMENT)
    print(*failed, sep="\n", file=sys.stderr, end="\n" if failed else "")
    sys.exit(1 if failed else rendered.returncode)


def hours(planned: Sequence[jobs.Job], published: Path) -> str:
    """Return the end of a sentence: how long the steps of published runs took; empty without any of these."""
    trained = frame(published / RECORDS).groupby("signature").total_s.median()
    known = [trained[key] for job in planned if (key := job.key.rpartition("-s")[0]) in trained]
    if not known:
        return ""
    left = len(planned) - len(known)
    steps = f"{sum(known) / 3600:.1f} hours of timed training steps, as published runs did"
    others = f"; {left} have no published run" if left else ""
    return f"; {len(known)} of them would take {steps}; start and evaluation come on top{others}"


def refuse_settings_of_runs(words: Sequence[str]) -> None:
    """ValueError if a word adds a key, or sets one that is none of this script's options."""
    options = sorted(ReproduceOptions.model_fields)
    key = re.compile(rf"(?!-)(?!~*({'|'.join([*options, 'hydra'])})\b).*=")
    if others := [word for word in words if key.match(word)]:
        raise ValueError(
            f"{', '.join(others)}: what tables and figures are made of is fixed, so reproduce.py takes no "
            f"settings of runs; `python -m src.train` does; options of reproduce.py: {', '.join(options)}"
        )


def chosen_by(cfg: DictConfig) -> Sequence[Config]:
    """Return the tables and figures that the user names."""
    every = {group: configs(Path(CONF), group) for group in ("table", "figure")}
    if cfg.all:
        return [config for group in every.values() for config in group.values()]
    selected = chosen(cfg, Path(CONF))
    if not selected:
        names = "; ".join(f"{group}= one of {', '.join(files)}" for group, files in every.items() if files)
        raise ValueError(f"reproduce what? {names}; or all")
    return selected


def tasks_of(options: ReproduceOptions) -> list[str] | None:
    """Return the tasks that the user names, None for all; ValueError if there is no such task."""
    only = [options.only] if isinstance(options.only, str) else options.only
    known = sorted(path.stem for path in Path(CONF, "task").glob("*.yaml"))
    if wrong := set(only or known) - set(known):
        raise ValueError(
            f"only={', '.join(map(str, wrong))}: there is no such task; tasks: {', '.join(known)}"
        )
    return only


def leave_out_what_has_no_data(plan: Plan, also: tuple[str, ...]) -> None:
    """Print in a line which runs have no data and why, and take them out of the plan.

    also: more overrides for reading the data.
    """
    needed = Counter(job.data for job in plan() if job.data)
    reasons = jobs.without_data((*data, *also) for data in needed)
    left_out = "left out, since a dry run downloads nothing" if also else "left out"
    for data, count in needed.items():
        if why := reasons.get((*data, *also)):
            print(f"{data[0]}: {count} runs {left_out}. {why}", file=sys.stderr, flush=True)
            plan.without.add(data)


def requested(configs: Iterable[Config], sources: Sources, where: Sequence[str] = ()) -> list[jobs.Job]:
    """Return the commands that configs lack, each once; where: overrides for every run.

    First those that need the machine to themselves. Seed by seed, so that the rows of a block take turns, and
    what makes the machine slow for a while meets all alike.
    """
    by_key: dict[str, jobs.Job] = {}
    for config in configs:
        for job in (*runs(config, sources, where), *benchmarks(config, sources), *checks(config, sources)):
            if job.key not in by_key or job.alone:
                by_key[job.key] = job
    return sorted(by_key.values(), key=lambda job: not job.alone)


def runs(config: Config, sources: Sources, where: Sequence[str]) -> Iterator[jobs.Job]:
    """Yield the missing runs block by block; a run without the times that its table shows is run again."""
    required = sources.required(config)
    required["block"] = pd.factorize(required.row.map(lambda row: row.block))[0]
    lacking = required[~required.present.astype(bool) | required.untimed.astype(bool)]
    for each in lacking.sort_values(["block", "seed"], kind="stable").itertuples():
        row, setting = each.row, sources.settle(each.row.overrides)
        assert setting is not None  # rows without one require no runs
        (task, *rest), again = row.overrides, ["force=true"] * each.untimed
        words = "-m", "src.train", task, *where, f"seed={each.seed}", *rest, *again
        key = f"{setting.signature}-s{each.seed}"
        yield jobs.Job(key, words, alone=each.seed < row.timed, overrides=(task, *where, *rest))


def benchmarks(config: Config, sources: Sources) -> Iterator[jobs.Job]:
    """Yield the missing benchmarks."""
    for command in sources.missing_benchmarks(config):
        _, *words = shlex.split(command)
        yield jobs.Job("-".join(["bench", *words[2:]]), (*words, *outputs_of(sources)), alone=True)


def checks(config: Config, sources: Sources) -> Iterator[jobs.Job]:
    """Yield the checks of the theory if a config shows them and there are none."""
    if rests_on_theory(config) and sources.theory is None:
        _, *words = shlex.split(theory.RUN)
        yield jobs.Job("theory", (*words, *outputs_of(sources)), alone=False)


def outputs_of(sources: Sources) -> list[str]:
    """Return the override that has a command leave its results where these measurements are, if any."""
    return [word for word in sources.where if word.startswith("paths.outputs=")]


def interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt("the same command resumes where its runs have saved their state")


if __name__ == "__main__":
    sys.argv = ["all=true" if word == "all" else word for word in sys.argv]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # a background job of a script ignores Ctrl-C
            signal.signal(number, interrupt)
    start(main)
