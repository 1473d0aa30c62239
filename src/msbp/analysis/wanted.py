"""What a table or a figure wants on record, and what of it is there.

`wanted` lists training runs, `measurements` benchmarks; both take a file of conf/table or conf/figure as
`configs` reads it, whatever it shows.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from .evidence import SECONDS
from .settings import command
from .sources import Sources

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Asked:
    """Runs of one setting that a row needs: `timed` of its seeds, the first, alone on the machine.

    within: the command of a sweep that runs it with its neighbours; empty where it is run by itself.
    """

    block: str
    label: str
    overrides: tuple[str, ...]
    seeds: int
    timed: int
    within: str = ""


@dataclass(frozen=True)
class Wanted:
    """What a row asks for beside what is on record; known is False where its task does not exist."""

    asked: Asked
    known: bool
    present: tuple[int, ...] = ()
    with_times: tuple[int, ...] = ()

    @property
    def missing(self) -> tuple[int, ...]:
        """Seeds without a record."""
        return tuple(seed for seed in range(self.asked.seeds) if seed not in self.present)

    @property
    def without_times(self) -> tuple[int, ...]:
        """Seeds whose times are wanted and that have a record without comparable ones."""
        return tuple(s for s in range(self.asked.timed) if s in self.present and s not in self.with_times)

    def command(self, where: Sequence[str] = ()) -> str:
        """What runs all of it, with the overrides that leave it where it is looked for."""
        if self.asked.within:
            return shlex.join([*shlex.split(self.asked.within), *where])
        task, *rest = self.asked.overrides
        return command([task, *where], rest, self.asked.seeds)


def configs(conf: Path, group: str) -> dict[str, Config]:
    """Every file of a group of conf (table, figure, claim) by its name."""
    return {path.stem: plain(OmegaConf.load(path), conf) for path in sorted((conf / group).glob("*.yaml"))}


def plain(config: Any, conf: Path) -> Config:
    """A file as ordinary dicts and lists, with the grid of conf/grid that it names in its place."""
    file = OmegaConf.to_container(config, resolve=True)
    assert isinstance(file, dict)
    if "grid" in file:
        grid = OmegaConf.to_container(OmegaConf.load(conf / "grid" / f"{file['grid']}.yaml"))
        file["grid"] = {"name": file["grid"], **grid}  # type: ignore[dict-item]
    return file  # type: ignore[return-value]


def wanted(config: Config, sources: Sources) -> list[Wanted]:
    """What every row, or every cell of the grid, asks for and has: runs, or runs with angles."""
    return [found(asked, sources, config.get("shows") == "angles") for asked in asked_by(config)]


def found(asked: Asked, sources: Sources, angles: bool = False) -> Wanted:
    setting = sources.settle(asked.overrides)
    if not setting:
        return Wanted(asked, False)
    there = sources.runs.of(setting.signature)
    with_times = [run["seed"] for run in there if run["times_comparable"]]
    present = {run["seed"] for run in there}
    if angles:
        present = {angle["config"]["seed"] for angle in sources.angles_of(asked.overrides)}
    return Wanted(asked, True, tuple(sorted(present)), tuple(with_times))


def asked_by(config: Config) -> Iterator[Asked]:
    """Rows of blocks as listed; of a grid the baseline, then for each k SBP and every γ of MSBP."""
    for block in config.get("blocks", ()):
        for row in block["rows"]:
            yield row_asked(config, block, row)
    if "grid" in config:
        yield from cells(config["grid"]).values()


def row_asked(config: Config, block: Config, row: Config) -> Asked:
    """A block may have fewer seeds than its table, and times of only the first of them."""
    seeds = block.get("seeds", config["seeds"])
    timed = block.get("timed", seeds) if SECONDS.keys() & config["columns"] else 0
    overrides = (f"task={block['task']}", *block.get("overrides", ()), *row["overrides"])
    return Asked(block["title"], row["label"], overrides, seeds, timed, block.get("within", ""))


def cells(grid: Config) -> dict[tuple[int | None, float | None], Asked]:
    """By k and γ: (None, None) is the baseline, (k, 0.0) SBP."""

    def asked(label: str, *overrides: str, within: str = grid["command"]) -> Asked:
        words = (f"task={grid['task']}", *overrides)
        return Asked(f"grid {grid['name']}", label, words, grid["seeds"], 0, within)

    every: dict[tuple[int | None, float | None], Asked] = {}
    every[None, None] = asked("baseline", *grid["baseline"], within="")
    for k, sparse in grid["sparse"].items():
        every[k, 0.0] = asked(f"SBP, k={k}", *grid["sbp"], sparse)
        for gamma in grid["gamma"]:
            overrides = (*grid["msbp"], sparse, f"method.gamma={gamma}")
            every[k, gamma] = asked(f"MSBP, k={k}, γ={gamma}", *overrides)
    return every


@dataclass(frozen=True)
class Measurement:
    """What the command of a benchmark leaves, and whether it is there."""

    command: str
    present: bool


def measurements(config: Config, sources: Sources) -> list[Measurement]:
    """The benchmarks that a file lists as {case, sweep}; partial ones do not count."""
    have = {(result["case"], result["sweep"]) for result in sources.benchmarks if not result.get("settings")}
    return [
        Measurement(
            f"python -m src.bench case={b['case']} sweep={b['sweep']}", (b["case"], b["sweep"]) in have
        )
        for b in config.get("benchmarks", ())
    ]


def lacks(config: Config, sources: Sources) -> list[str]:
    """The commands that fill what is missing, each once."""
    rows = [row.command(sources.where) for row in wanted(config, sources) if row.known and row.missing]
    other = [measured.command for measured in measurements(config, sources) if not measured.present]
    return list(dict.fromkeys(rows + other))
