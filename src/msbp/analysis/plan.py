"""Which commands fill what tables and figures lack, in which order, and how long they may take."""

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from .runs import Coverage, Sources, coverage, measurements
from .settings import Config


@dataclass(frozen=True)
class Job:
    """One command: a run of one seed, or a benchmark. alone: its times count, so nothing else may run.

    key: equal for equal requests. words: what comes after `python`. overrides: the run's, but for its seed;
    none for a benchmark. like: what runs of about the same duration share, the closest kinship first.
    """

    key: str
    words: tuple[str, ...]
    label: str
    alone: bool
    overrides: tuple[str, ...] = ()
    like: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """For a shell, in the project's top folder."""
        return shlex.join(["python", *self.words])

    @property
    def task(self) -> str:
        """The task's name; nothing for a benchmark."""
        return self.overrides[0].removeprefix("task=") if self.overrides else ""

    @property
    def data(self) -> tuple[str, ...]:
        """The overrides that say which data it reads."""
        return tuple(word for word in self.overrides if word.startswith(("task", "experiment=", "paths.")))


@dataclass
class Plan:
    """The jobs that configs still need, by what lies in the outputs folder whenever it is called.

    read: gives what was measured. where: overrides for every run. only: names of tasks, None for all of them
    and benchmarks. without: data whose runs are left out.
    """

    configs: Sequence[Config]
    read: Callable[[], Sources]
    where: Sequence[str] = ()
    only: Collection[str] | None = None
    without: set[tuple[str, ...]] = field(default_factory=set)

    def __call__(self) -> list[Job]:
        measured = self.read()
        self.durations = Durations(measured.runs.to_dict("records"))
        return [job for job in jobs(self.configs, measured, self.where) if self._takes(job)]

    def _takes(self, job: Job) -> bool:
        return (self.only is None or job.task in self.only) and job.data not in self.without


def jobs(configs: Iterable[Config], sources: Sources, where: Sequence[str] = ()) -> list[Job]:
    """What all of configs lack, each once; where: overrides for every run.

    First what needs the machine to itself, then what does not. Seed by seed, so that the rows of a block take
    turns, and what makes the machine slow for a while meets all alike.
    """
    found: dict[str, Job] = {}
    for config in configs:
        for job in (*runs(coverage(config, sources), sources, where), *benchmarks(config, sources)):
            if job.key not in found or job.alone:
                found[job.key] = job
    return sorted(found.values(), key=lambda job: not job.alone)


def runs(rows: Sequence[Coverage], sources: Sources, where: Sequence[str]) -> Iterable[Job]:
    """Block by block; a run that has a score but no times is run again where its times are wanted."""
    for block in dict.fromkeys(row.row.block for row in rows):
        inside = [row for row in rows if row.row.block == block and row.known]
        for seed in range(max((row.row.seeds for row in inside), default=0)):
            for row in inside:
                if seed in row.missing or seed in row.without_times:
                    yield run(row, seed, sources, where)


def run(row: Coverage, seed: int, sources: Sources, where: Sequence[str]) -> Job:
    setting = sources.settle(row.row.overrides)
    assert setting is not None
    (task, *rest), again = row.row.overrides, ["force=true"] * (seed in row.without_times)
    return Job(
        f"{setting.signature}-s{seed}",
        ("-m", "src.train", task, *where, f"seed={seed}", *rest, *again),
        f"{task.removeprefix('task=')} {row.row.label}, seed {seed}",
        alone=seed < row.row.timed,
        overrides=(task, *where, *rest),
        like=(setting.signature, f"{task} {method(rest)}", task),
    )


def method(overrides: Sequence[str]) -> str:
    return next((word for word in overrides if word.startswith("method=")), "")


def benchmarks(config: Config, sources: Sources) -> Iterable[Job]:
    outputs = [word for word in sources.where if word.startswith("paths.outputs=")]
    for measured in measurements(config, sources):
        if not measured.present:
            _, *words = shlex.split(measured.command)
            name = " ".join(words[2:])
            yield Job(f"bench {name}".replace(" ", "-"), (*words, *outputs), f"benchmark {name}", alone=True)


class Durations:
    """How long runs take, by what they are like; seconds of training on record, times what else they need."""

    def __init__(self, records: Iterable[Mapping[str, Any]]):
        self._known: dict[str, list[float]] = {}
        self._measured: list[tuple[float, float]] = []
        for record in records:
            task = f"task={record['task']}"
            for kind in (record["signature"], f"{task} method={record['method']}", task):
                self._known.setdefault(kind, []).append(record["total_s"])

    def training(self, job: Job) -> float | None:
        """Seconds of training of the runs that are most like this one; None where there are none."""
        return next((fmean(self._known[kind]) for kind in job.like if kind in self._known), None)

    def left(
        self, pending: Iterable[Job], running: Mapping[Job, float], more: float, at_once: int
    ) -> float | None:
        """Seconds until all is done, of which running jobs have had some; None if nothing is known of one.

        more: how much longer a run takes than its training, as a factor.
        """
        total = 0.0
        for job in (*pending, *running):
            training = self.training(job)
            if training is None:
                return None
            rest = max(training * more - running.get(job, 0.0), 0.0)
            total += rest if job.alone else rest / at_once
        return total
