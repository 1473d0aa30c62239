"""Configuration of tables, figures and claims: the rows that they list, and the settings those rows request.

A setting is what a row requests: its overrides, composed as `python -m src.train` composes them, and known by
their signature. Nothing here looks at results.
"""

import copy
import hashlib
import json
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import hydra
import omegaconf
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, Field

from .. import record
from ..config_files import ConfigFile, checked, read
from ..files import save
from ..record import Gamma, Ordinal, Ratio, signature, validated

VALUE = re.compile(r"\w+(\.\w+)+=")  # of a key, not the choice of a file
SECONDS = ("bp_s", "bp_update_s", "total_s")
CLAIMS = "claims"
Config = Mapping[str, Any]
Compose = Callable[[Sequence[str]], DictConfig]


@dataclass(frozen=True)
class Setting:
    """The signature that selects a row's records, and the paper's letters for it (None where it has none)."""

    signature: str
    r: float | None = None
    gamma: float | None = None
    hidden: int | None = None


Settle = Callable[[Sequence[str]], Setting | None]


class Letters(BaseModel):
    """The paper's letters in a configuration, by their keys on the command line."""

    r: Ratio | None = Field(alias="method.r")
    gamma: Gamma | None = Field(alias="method.gamma")
    hidden: Ordinal | None = Field(alias="model.hidden")


@dataclass(frozen=True)
class Row:
    """Runs of one setting that a table, figure or grid shows; `timed` of its seeds, the first, need times.

    within: the command of a sweep that runs it with its neighbours; empty where it is run by itself. source:
    the file that lists it.
    """

    block: str
    label: str
    overrides: tuple[str, ...]
    seeds: int
    timed: int
    within: str = ""
    source: str = ""

    def command(self, where: Sequence[str] = ()) -> str:
        """Return the command that runs every missing seed; where: overrides that set its folders."""
        if self.within:
            return shlex.join([*shlex.split(self.within), *where])
        task, *rest = self.overrides
        return command([task, *where], rest, range(self.seeds))


class SettingStore:
    """Settings in a file, a line each, so that a later program need not compose them.

    A line begins with the digest of conf and of the code of signatures. Damaged lines and those of another
    digest are not used, and the first setting that is added has the file written without them.
    """

    def __init__(self, path: Path, conf: Path) -> None:
        self.path, self.digest = path, digest_of(conf)
        self.settings: dict[tuple[str, ...], Setting] = {}
        content = b""
        with suppress(OSError):
            content = path.read_bytes()
        for line in content.splitlines():
            with suppress(ValueError, TypeError):
                digest, overrides, setting = json.loads(line)
                if digest == self.digest:
                    self.settings[tuple(overrides)] = Setting(**setting)
        self._whole = content == self._text().encode() != b""  # lines can be appended

    def add(self, overrides: tuple[str, ...], setting: Setting) -> None:
        """Keep a setting, also for later programs where the file can be written."""
        self.settings[overrides] = setting
        with suppress(OSError):
            if self._whole:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(self._line(overrides, setting))
            else:
                save({self.path: self._text()})
                self._whole = True

    def _text(self) -> str:
        return "".join(self._line(*each) for each in self.settings.items())

    def _line(self, overrides: tuple[str, ...], setting: Setting) -> str:
        return json.dumps([self.digest, overrides, asdict(setting)]) + "\n"


def digest_of(conf: Path) -> str:
    """Return 16 hex digits over all that the signature of some overrides depends on."""
    files = [*sorted(conf.rglob("*.yaml")), Path(record.__file__), Path(__file__)]
    parts = [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]
    every = " ".join([hydra.__version__, omegaconf.__version__, *parts])
    return hashlib.sha256(every.encode()).hexdigest()[:16]


def settings_from(conf: Path, compose: Compose, store: Path | None = None) -> Settle:
    """Return the function from overrides, task=... first, to their setting; None for a task without a file.

    Composing is slow, and a grid has many cells: files are composed once for all values that follow, and
    settings are kept in the file `store` for later programs.
    """
    composed = cache(compose)
    stored = SettingStore(store, conf) if store else None

    @cache
    def settled(overrides: tuple[str, ...]) -> Setting | None:
        task = overrides[0].removeprefix("task=")
        if not (conf / "task" / f"{task}.yaml").is_file():
            return None
        if stored and overrides in stored.settings:
            return stored.settings[overrides]
        setting = composed_setting(overrides)
        if stored:
            stored.add(overrides, setting)
        return setting

    def composed_setting(overrides: tuple[str, ...]) -> Setting:
        values = [word for word in overrides if VALUE.match(word)]
        cfg = copy.deepcopy(composed(tuple(word for word in overrides if word not in values)))
        for value in OverridesParser.create().parse_overrides(values):
            if value.is_sweep_override():
                raise ValueError(f"{value.input_line} has several values, and a row has one")
            OmegaConf.update(cfg, value.key_or_group, value.value(), merge=True)  # as Hydra does, and last
        letters = {key: OmegaConf.select(cfg, key) for key in ("method.r", "method.gamma", "model.hidden")}
        return Setting(signature(cfg), **validated(Letters, letters).model_dump())

    return lambda overrides: settled(tuple(overrides))


def command(shared: Sequence[str], row: Sequence[str], seeds: Collection[int]) -> str:
    """Return the shell command that runs these seeds; those that are on record are not run again."""
    consecutive = max(seeds, default=-1) < len(seeds)
    named = f"range(0,{len(seeds)})" if consecutive else ",".join(map(str, sorted(seeds)))
    return shlex.join(["python", "-m", "src.train", "-m", *shared, f"seed={named}", *row])


def benchmark_command(case: str, sweep: str) -> str:
    """Return the command of a benchmark that a table or figure lists."""
    return f"python -m src.bench case={case} sweep={sweep}"


def together(commands: Sequence[str]) -> str:
    """Return commands as one sweep if only their methods differ, and one after the other if not."""
    lines = [shlex.split(command) for command in dict.fromkeys(filter(None, commands))]
    methods = [word for line in lines for word in line if word.startswith("method=")]
    parts = [[word for word in line if word not in methods] for line in lines]
    if len(lines) > 1 and all(part == parts[0] for part in parts):
        return shlex.join([*parts[0], "method=" + ",".join(word[len("method=") :] for word in methods)])
    return " && ".join(map(shlex.join, lines))


def catalogue(conf: Path) -> dict[str, Config]:
    """Return all that a report can show by name: every table, every figure, and all claims together."""
    tables, figures, claims = (configs(conf, group) for group in ("table", "figure", "claim"))
    with_rows = [name for name, table in tables.items() if "blocks" in table]
    printed = [name for name, table in tables.items() if "paper" in table]
    for claim in claims.values():
        usable = {
            "tables": ("table with rows", with_rows), "paper_table": ("table with numbers in paper", printed),
            "figures": ("table or figure", [*tables, *figures]),
        }  # fmt: skip
        for key, (kind, names) in usable.items():
            named = claim.get(key, [])
            for name in [named] if isinstance(named, str) else named:
                if name not in names:
                    listed = f"there are {', '.join(names)}" if names else "there is none"
                    raise ValueError(f"{claim.source}: {key}: {name} is no {kind}; {listed}")
    every = {"_target_": "msbp.analysis.claims.document", "name": CLAIMS, "claims": claims}
    return tables | figures | {CLAIMS: every | {"tables": tables, "figures": figures}}


def configs(conf: Path, group: str) -> dict[str, ConfigFile]:
    """Return every file of a group of conf (table, figure, claim) by its name."""
    files = {path.stem: resolved(read(path), conf) for path in sorted((conf / group).glob("*.yaml"))}
    for stem, file in files.items():
        if file.get("name", stem) != stem:
            raise ValueError(f"{file.source}: name must be that of the file, {stem}, got {file['name']}")
    return files


def chosen(cfg: DictConfig, conf: Path) -> list[ConfigFile]:
    """Return the table and the figure that a configuration has chosen, if any."""
    groups = [group for group in ("table", "figure") if group in cfg]
    return [resolved(checked(cfg[group], group, f"{group}={cfg[group].name}"), conf) for group in groups]


def resolved(file: ConfigFile, conf: Path) -> ConfigFile:
    """Return a file with what it names of conf/grid, conf/table and conf/margin in place of names."""
    if "lines" in file:
        file["blocks"] = [block_of(line, conf, file.source) for line in file["lines"]]
    if "grid" in file:
        grid = read(conf / "grid" / f"{file['grid']}.yaml", file.source)
        file["grid"] = ConfigFile({"name": file["grid"], **grid}, grid.source)
    if isinstance(file.get("margin"), str):
        file.update(read(conf / "margin" / f"{file['margin']}.yaml", file.source))
    return file


def block_of(line: Config, conf: Path, source: object) -> Config:
    """Return the block of a table that a line names, with the line's label, case and kind of data."""
    table = read(conf / "table" / f"{line['table']}.yaml", source)
    block = next((block for block in table["blocks"] if block["title"] == line["block"]), None)
    if block is None:
        raise ValueError(f"{source}: there is no block {line['block']!r} in {table.source}")
    timed = {} if set(SECONDS) & set(table["columns"]) else {"timed": 0}
    return {"seeds": table["seeds"], "case": "", "stand_in": False, **timed, **block, **line}


def rows_of(config: Config) -> Iterator[Row]:
    """Yield the rows of all blocks, and of a grid the baseline, then for each k SBP and every γ of MSBP."""
    for block in config.get("blocks", ()):
        for row in block["rows"]:
            yield row_of(config, block, row)
    if "grid" in config:
        yield from cells(config["grid"]).values()


def rests_on_theory(config: Config) -> bool:
    """Return whether a table or figure shows the checks of the theory: it lists no other measurements."""
    return not {"blocks", "grid", "benchmarks"} & config.keys()


def source_of(config: Config) -> str:
    """Return the file that holds a configuration, empty for one that no file holds."""
    return str(getattr(config, "source", ""))


def row_of(config: Config, block: Config, row: Config) -> Row:
    """Return a row of a block; a block may have fewer seeds than its table, and times of the first only."""
    seeds = block["seeds"] if "seeds" in block else config["seeds"]
    timed = block.get("timed", seeds) if set(SECONDS) & set(config["columns"]) else 0
    overrides = (f"task={block['task']}", *block.get("overrides", ()), *row["overrides"])
    within = block.get("within", "")
    return Row(block["title"], row["label"], overrides, seeds, timed, within, source_of(config))


def cells(grid: Config) -> dict[tuple[int | None, float | None], Row]:
    """Return the rows of a grid by k and γ: (None, None) is the baseline, (k, 0.0) SBP."""

    def row(label: str, seeds: int, *overrides: str, within: str = "") -> Row:
        words = (f"task={grid['task']}", *overrides)
        return Row(f"grid {grid['name']}", label, words, seeds, 0, within, source_of(grid))

    every: dict[tuple[int | None, float | None], Row] = {}
    without_memory = grid.get("seeds_without_memory") or grid["seeds"]
    together = grid["command"] if without_memory == grid["seeds"] else ""  # the command of all cells
    every[None, None] = row("baseline", without_memory, *grid["baseline"])
    for k, sparse in grid["sparse"].items():
        every[k, 0.0] = row(f"SBP, k={k}", without_memory, *grid["sbp"], sparse, within=together)
        for gamma in grid["gamma"]:
            overrides = (*grid["msbp"], sparse, f"method.gamma={gamma}")
            label = f"MSBP, k={k}, γ={gamma}"
            every[k, gamma] = row(label, grid["seeds"], *overrides, within=grid["command"])
    return every


def grid_command(grid: Config, k: int, other: str) -> str:
    """Return the commands of SBP at this k of a grid, and of another method there: baseline or msbp."""
    every = cells(grid)
    others = [every[None, None]] if other == "baseline" else [every[k, gamma] for gamma in grid["gamma"]]
    return together([row.command() for row in (*others, every[k, 0.0])])
