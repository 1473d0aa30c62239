"""All runs as one tidy DataFrame, and what else was measured: angles and benchmarks.

    from msbp.analysis.runs import frame
    runs = frame("outputs")                                # the runs of a folder, a row a run
    runs = frame("outputs/published/records.jsonl")        # the runs that the project publishes
    runs.groupby(["task", "method", "r", "gamma"]).test.agg(["mean", "std", "size"])

Columns are the fields of `msbp.record.Record` and, derived from them: `bp_update_s`; `dropped_entries` and
`dropped_norm`, percent of the hidden layers' gradient that was not propagated; `other_bleu`, BLEU by the rule
that does not give the score; `platform`, within which seconds compare; `source`, the file; `record`, all of
the file. Of two runs with one signature and seed the newer counts. A file that is no record is named in one
warning and left out.
"""

import logging
import math
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from ..files import Fields, find_files
from ..measurements import (
    BENCHMARKS,
    RECORDS,
    THEORY,
    Angle,
    DivergedRun,
    Result,
    by_default,
    contents,
    lines,
    read_benchmarks,
    read_theory,
    separated,
    validated_each,
)
from ..record import ANGLES, DIVERGED, NAME, Record
from .settings import Config, Row, Setting, Settle, benchmark_command, cells, rows_of

if TYPE_CHECKING:
    from .tables import Table

log = logging.getLogger(__name__)
# Seconds depend on these besides the setting; the values are their names in remarks.
PLATFORM = {
    "machine": "machine", "device": "device", "threads": "thread count", "commit": "commit",
    "dirty": "state of the code", "torch": "torch", "timing_rule": "timing rule",
}  # fmt: skip
DERIVED = ("bp_update_s", "dropped_entries", "dropped_norm", "other_bleu", "platform", "source", "record")
COLUMNS = (*Record.model_fields, *DERIVED)
FLOATS = (
    *("r", "gamma", "data_s", "forward_s", "bp_s", "update_s", "total_s", "processor_share", "dev", "test"),
    *("test_last", "bp_update_s", "dropped_entries", "dropped_norm", "other_bleu"),
)
DTYPES: dict[str, type] = dict.fromkeys(FLOATS, float)
DTYPES |= {"times_comparable": bool, "dirty": bool, "timing_rule": int}
BASELINE, SBP = -1.0, 0.0  # γ of a grid's baseline, whose k is 0, and of its runs of SBP
ANGLE_KEY = ["signature", "seed", "step"]
ANGLE_COLUMNS = (*ANGLE_KEY, "method", "k", "epoch", "total", "hidden", "record")


@dataclass(frozen=True)
class Sources:
    """All measurements, either a user's own or the published ones, never a mixture of both.

    theory: the checks of the paper's bounds, where they were computed. diverged: runs without a record.
    breakdowns: the parts of a step, by benchmark.
    where: overrides with which commands leave more here. damaged: a sentence for each unreadable file.
    """

    runs: pd.DataFrame
    settle: Settle
    benchmarks: Sequence[Result] = ()
    angles: pd.DataFrame = field(default_factory=lambda: angle_frame(()))
    where: Sequence[str] = ()
    damaged: list[str] = field(default_factory=list)
    theory: Fields | None = None
    diverged: pd.DataFrame = field(default_factory=lambda: diverged_frame(()))
    breakdowns: Sequence[Result] = ()
    tables: "dict[str, tuple[Config, Table]]" = field(default_factory=dict)  # filled already, by name

    def setting(self, row: Row) -> Setting | None:
        """Return the setting that a row requests, None for a task without a file.

        ValueError names the row and its file where the overrides compose to no configuration.
        """
        try:
            return self.settle(row.overrides)
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            reason = str(error).partition("\n")[0]
            at = f"{row.source}: block {row.block!r}, row {row.label!r}"
            raise ValueError(f"{at}: cannot compose {shlex.join(row.overrides)}: {reason}") from error

    def runs_of(self, row: Row) -> pd.DataFrame:
        """Return the runs of a row's setting by seed; none for a task without a file."""
        setting = self.setting(row)
        return self.runs[self.runs.signature == (setting and setting.signature)]

    def angles_of(self, row: Row) -> pd.DataFrame:
        """Return the angles measured in runs of a row's setting."""
        setting = self.setting(row)
        return self.angles[self.angles.signature == (setting and setting.signature)]

    def benchmark(self, case: str, sweep: str | None) -> Result | None:
        """Return the result of a case by itself, or of its sweep, with the benchmark's default options."""
        usual = filter(by_default, self.benchmarks)
        return next((each for each in usual if (each["case"], each["sweep"]) == (case, sweep)), None)

    def required(self, config: Config) -> pd.DataFrame:
        """Return the seeds that rows of a config require: present, on record; untimed, without times to show.

        Rows of a task without a file require none. A figure of angles requires runs with angles.
        """
        seeds_of = self.angles_of if config.get("shows") == "angles" else self.runs_of
        seeds = []
        for row in filter(self.setting, rows_of(config)):
            runs = self.runs_of(row)
            present, timed = set(seeds_of(row).seed), set(runs.seed[runs.times_comparable])
            for seed in range(row.seeds):
                seeds.append((row, seed, seed in present, seed < row.timed and seed in present - timed))
        return pd.DataFrame(seeds, columns=["row", "seed", "present", "untimed"])

    def missing(self, config: Config) -> list[str]:
        """Return the commands that fill what is missing of a table or figure, each once."""
        required = self.required(config)
        commands = [row.command(self.where) for row in required.row[~required.present.astype(bool)]]
        return list(dict.fromkeys([*commands, *self.missing_benchmarks(config)]))

    def missing_benchmarks(self, config: Config) -> list[str]:
        """Return the commands of the listed benchmarks without a result by default options."""
        listed = config.get("benchmarks", ())
        return [benchmark_command(**each) for each in listed if self.benchmark(**each) is None]


def gather(grid: Config, sources: Sources) -> pd.DataFrame:
    """Return the runs of a grid of conf/grid with their k and γ; the baseline's are at k = 0, γ = -1."""
    parts = []
    for (k, gamma), row in cells(grid).items():
        key = {"k": 0, "gamma": BASELINE} if k is None else {"k": k, "gamma": gamma}
        parts.append(sources.runs_of(row).assign(**key))
    return pd.concat(parts, ignore_index=True)


def scores(runs: pd.DataFrame, k: int = 0, gamma: float = BASELINE) -> pd.Series:
    """Return the scores at one k and γ by seed."""
    values = runs.test[(runs.k == k) & (runs.gamma == gamma)]
    return values.set_axis(runs.seed[values.index]).sort_index()


def frame(path: Path | str = "outputs") -> pd.DataFrame:
    """Return all runs of a folder, or of a file with a record a line, as a DataFrame with a row a run."""
    damaged: list[str] = []
    runs = read_runs(Path(path), damaged)
    for sentence in damaged:
        log.warning("left out %s", sentence)
    return runs


def own(outputs: Path, published: Path, settle: Settle, where: Sequence[str] = ()) -> Sources:
    """Return what lies below the outputs folder, of angles those of the runs that count."""
    sources = measurements(outputs, outputs / "bench", (), outputs / THEORY, settle)
    beside = [Path(source).with_name(ANGLES) for source in sources.runs.source]
    angles, diverged = read_angles(beside, sources.damaged), read_diverged(outputs, sources.damaged)
    return replace(sources, angles=angles, where=where, diverged=diverged)


def published(folder: Path, settle: Settle) -> Sources:
    """Return what the project publishes."""
    return measurements(folder / RECORDS, folder / BENCHMARKS, [folder / ANGLES], folder / THEORY, settle)


def measurements(
    records: Path, benchmarks: Path, angles: Iterable[Path], theory: Path, settle: Settle
) -> Sources:
    """Return what these files hold."""
    damaged: list[str] = []
    measured, broken_down = separated(read_benchmarks(benchmarks, damaged))
    runs, measured_angles = read_runs(records, damaged), read_angles(angles, damaged)
    checks = read_theory(theory, damaged)
    return Sources(
        runs, settle, measured, measured_angles, damaged=damaged, theory=checks, breakdowns=broken_down
    )


def read_runs(path: Path, damaged: list[str]) -> pd.DataFrame:
    """Return the runs of a folder or file; a sentence for each unreadable record is added to damaged."""
    texts = list(contents(sorted(find_files(path, NAME)), damaged)) if path.is_dir() else lines(path, damaged)
    return run_frame(validated_each(Record, texts, damaged))


def read_diverged(folder: Path, damaged: list[str]) -> pd.DataFrame:
    """Return the diverged runs of a folder; a sentence for each unreadable file is added to damaged."""
    texts = contents(sorted(find_files(folder, DIVERGED)), damaged)
    return diverged_frame(run for *_, run in validated_each(DivergedRun, texts, damaged))


def diverged_frame(runs: Iterable[DivergedRun]) -> pd.DataFrame:
    """Return diverged runs, a row for each signature and seed."""
    rows = pd.DataFrame([run.model_dump() for run in runs], columns=list(DivergedRun.model_fields))
    return rows.drop_duplicates(["signature", "seed"], keep="last")


def read_angles(paths: Iterable[Path], damaged: list[str]) -> pd.DataFrame:
    """Return the angles in these files; of one run and step the last that was read counts."""
    return angle_frame(
        value
        for path in paths
        for _, value, _ in validated_each(Angle, lines(path, damaged), damaged, "no angle: ")
    )


def run_frame(records: Iterable[tuple[str, Fields, Record]]) -> pd.DataFrame:
    """Return the DataFrame of records, given with their sources and stored values."""
    rows = [
        record.model_dump() | derived(record) | {"source": source, "record": value}
        for source, value, record in records
    ]
    runs = pd.DataFrame(rows, columns=list(COLUMNS)).astype(DTYPES)
    newest = runs.sort_values("started_at", ascending=False, kind="stable")
    newest = newest.drop_duplicates(["signature", "seed"])  # the first read of equally new ones
    sorted_ = newest.sort_values(["signature", "seed"], kind="stable", ignore_index=True)
    return sorted_.copy()  # as few blocks of memory: selecting rows is then several times faster


def derived(record: Record) -> Fields:
    """Return the columns that follow from a record's fields."""
    layers = record.dropped_fraction.values()
    n = len(layers) or math.nan
    return {
        "bp_update_s": record.bp_s + record.update_s,
        "dropped_entries": 100 * (sum(layer.entries for layer in layers) / n),
        "dropped_norm": 100 * (sum(layer.squared_norm for layer in layers) / n),
        "platform": tuple(getattr(record, name) for name in PLATFORM), "other_bleu": other_bleu(record),
    }  # fmt: skip


def bleu_rules(metric_signature: str | None) -> list[str]:
    """Return what BLEU counts, tokenised or detokenised, that of the score first; none for other metrics."""
    return re.findall(r"(?:^bleu |; )(\w+)\|", metric_signature or "")[:2]


def other_bleu(record: Record) -> float | None:
    """Return BLEU on test at the epoch of the score, by the rule that does not give the score."""
    best = next((row for row in record.history if row.get("epoch") == record.best_epoch), {})
    return next((best.get(f"test_bleu_{rule}") for rule in bleu_rules(record.metric_signature)[1:]), None)


def angle_frame(values: Iterable[Fields]) -> pd.DataFrame:
    """Return angles in radians, a row a measurement, in the order of signature, seed and step."""
    rows = [
        {name: value["config"][name] for name in ("signature", "seed", "method")}
        | {name: value[name] for name in ("k", "step", "epoch")}
        | {name: value["angle"][name] for name in ("total", "hidden")}
        | {"record": value}
        for value in values
    ]
    angles = pd.DataFrame(rows, columns=list(ANGLE_COLUMNS)).drop_duplicates(ANGLE_KEY, keep="last")
    return angles.sort_values(ANGLE_KEY, ignore_index=True)
