"""The runs and benchmarks that tables and figures have and lack, and the commands that fill the gaps."""

import shlex
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import pandas as pd

from .runs import Sources
from .settings import Config, Row, rows_of


@dataclass(frozen=True)
class Coverage:
    """The seeds of a row that are on record; known is False where its task has no file."""

    row: Row
    known: bool
    present: tuple[int, ...] = ()
    with_times: tuple[int, ...] = ()

    @property
    def missing(self) -> tuple[int, ...]:
        """Seeds without a record."""
        return tuple(seed for seed in range(self.row.seeds) if seed not in self.present)

    @property
    def without_times(self) -> tuple[int, ...]:
        """Seeds whose times the row needs and whose record has no comparable ones."""
        return tuple(s for s in range(self.row.timed) if s in self.present and s not in self.with_times)


def coverage(config: Config, sources: Sources) -> list[Coverage]:
    """Return for every row, or every cell of the grid, which runs (or runs with angles) are on record."""
    seeds_of: Callable[[Sequence[str]], pd.DataFrame]
    seeds_of = sources.angles_of if config.get("shows") == "angles" else sources.runs_of
    covered = []
    for row in rows_of(config):
        runs = sources.runs_of(row.overrides)
        present = sorted(set(seeds_of(row.overrides).seed))
        known = sources.settle(row.overrides) is not None
        covered.append(Coverage(row, known, tuple(present), tuple(runs.seed[runs.times_comparable])))
    return covered


@dataclass(frozen=True)
class Measurement:
    """The command of a benchmark, and whether its result is on record."""

    command: str
    present: bool


def measurements(config: Config, sources: Sources) -> list[Measurement]:
    """Return the benchmarks that a file lists as {case, sweep}; partial ones do not count."""
    have = {(result["case"], result["sweep"]) for result in sources.benchmarks if not result.get("settings")}
    return [
        Measurement(
            f"python -m src.bench case={b['case']} sweep={b['sweep']}", (b["case"], b["sweep"]) in have
        )
        for b in config.get("benchmarks", ())
    ]


def missing_commands(config: Config, sources: Sources) -> list[str]:
    """Return the commands that fill what is missing, each once."""
    rows = [c.row.command(sources.where) for c in coverage(config, sources) if c.known and c.missing]
    other = [measured.command for measured in measurements(config, sources) if not measured.present]
    return list(dict.fromkeys(rows + other))


@dataclass(frozen=True)
class Job:
    """One command: a run of one seed, or a benchmark. alone: its times count, so nothing else may run.

    key: equal for equal requests, and a file name. words: what comes after `python`. overrides: the run's,
    but for its seed; none for a benchmark.
    """

    key: str
    words: tuple[str, ...]
    alone: bool
    overrides: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command for a shell, in the project's top folder."""
        return shlex.join(["python", *self.words])

    @property
    def task(self) -> str:
        """Name of the task; empty for a benchmark."""
        return self.overrides[0].removeprefix("task=") if self.overrides else ""

    @property
    def data(self) -> tuple[str, ...]:
        """Overrides that choose the data."""
        return tuple(word for word in self.overrides if word.startswith(("task", "experiment=", "paths.")))


@dataclass
class Plan:
    """Jobs that configs still lack whenever it is called.

    read: returns the present measurements. where: overrides for every run. only: names of tasks, None for all
    of them and benchmarks. without: overrides of data whose runs are left out.
    """

    configs: Sequence[Config]
    read: Callable[[], Sources]
    where: Sequence[str] = ()
    only: Collection[str] | None = None
    without: set[tuple[str, ...]] = field(default_factory=set)

    def __call__(self) -> list[Job]:
        return [job for job in jobs(self.configs, self.read(), self.where) if self._takes(job)]

    def _takes(self, job: Job) -> bool:
        return (self.only is None or job.task in self.only) and job.data not in self.without


def jobs(configs: Iterable[Config], sources: Sources, where: Sequence[str] = ()) -> list[Job]:
    """Return the commands that configs lack, each once; where: overrides for every run.

    First those that need the machine to themselves. Seed by seed, so that the rows of a block take turns, and
    what makes the machine slow for a while meets all alike.
    """
    by_key: dict[str, Job] = {}
    for config in configs:
        for job in (*runs(coverage(config, sources), sources, where), *benchmarks(config, sources)):
            if job.key not in by_key or job.alone:
                by_key[job.key] = job
    return sorted(by_key.values(), key=lambda job: not job.alone)


def runs(rows: Sequence[Coverage], sources: Sources, where: Sequence[str]) -> Iterable[Job]:
    """Yield the missing runs block by block; a run without the times that its table shows is run again."""
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
        alone=seed < row.row.timed,
        overrides=(task, *where, *rest),
    )


def benchmarks(config: Config, sources: Sources) -> Iterable[Job]:
    outputs = [word for word in sources.where if word.startswith("paths.outputs=")]
    for measured in measurements(config, sources):
        if not measured.present:
            _, *words = shlex.split(measured.command)
            yield Job("-".join(["bench", *words[2:]]), (*words, *outputs), alone=True)
