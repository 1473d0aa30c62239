"""A case of the benchmark: its options, and its measurement, alone or at several values of one setting."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal, Self

import torch
from omegaconf import DictConfig, OmegaConf
from pydantic import AfterValidator, BeforeValidator, Field, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from ..config import Name, Options, Paths, build, check, compose
from ..files import Fields, file_name
from ..record import TIMING_RULE
from ..training import machine
from ..training.trial import try_out
from . import breakdown, costs
from .timed_model import Reporter, TimedModel, Timing, interleave

PEAK_STEPS = 2  # whose memory is measured: the second has the optimizer's state and all gradients
PROTOCOL = {"seconds", "cycle", "warmup", "settling", "repetitions", "block", "settle"}
REPORTED = 10  # steps of warm-up after which the progress bar moves
BROKEN_DOWN = "msbp"  # the row whose step is, unless breakdown= names another


def _thread_counts() -> list[int]:
    cores = machine.cores()
    return sorted({count for count in (1, 2, cores) if count <= cores})


OmegaConf.register_new_resolver("thread_counts", _thread_counts, replace=True)


def _available(threads: int) -> int:
    machine.check_threads(threads)
    return threads


def _named_lists(rows: object) -> object:
    if not isinstance(rows, dict) or not rows:
        raise PydanticCustomError("rows", "Input should be a node of lists of overrides by name")
    return rows


Overrides = list[str]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]


class Case(Options):
    """A model and its data, by overrides of the training configuration."""

    name: Name
    overrides: Overrides


class Sweep(Options):
    """Values of one key: of the training configuration, or of the benchmark itself (threads, warmup)."""

    name: Name
    key: Name
    values: Annotated[list[Any], Field(min_length=1)]


class BenchOptions(Options):
    """Options of `python -m src.bench`."""

    format: Literal["table", "json"]
    threads: Annotated[int, AfterValidator(_available)]
    allocator: Literal["keep", "default"]
    seconds: Seconds
    repetitions: PositiveInt
    block: PositiveInt
    settle: Count
    cycle: PositiveInt
    warmup: Count
    settling: dict[str, Count]
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    overrides: Overrides
    only: Annotated[
        Name | Annotated[list[Name], Field(min_length=1)] | None,
        Field(description="leave it out to measure all rows"),
    ]
    breakdown: Annotated[bool | Name, Field(description="true, or a row whose step to break down")]
    case: Case
    sweep: Sweep | None
    rows: Annotated[dict[str, Overrides], BeforeValidator(_named_lists)]
    paths: Paths

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Return the options; ValueError where one contradicts another."""
        if self.block <= self.settle:
            raise ValueError(f"block must be greater than settle={self.settle}, got {self.block}")
        if not self.breakdown and (self.block - self.settle) % self.cycle:
            raise ValueError(
                f"cycle={self.cycle} must divide block - settle, which is {self.block - self.settle}"
            )
        chosen = {"only": self.names, "settling": self.settling, "breakdown": self.broken_down}
        for key, names in chosen.items():
            if unknown := [name for name in names if name not in self.rows]:
                raise ValueError(f"{key}: no row {', '.join(unknown)}; there are {', '.join(self.rows)}")
        if self.sweep and self.breakdown:
            raise ValueError(f"breakdown={self.breakdown} is of a case alone; leave sweep or breakdown out")
        if self.sweep and self.sweep.key == "threads":
            if self.threads != 1:
                raise ValueError(
                    f"threads={self.threads} has no effect where sweep.key=threads; leave it out"
                )
            for value in self.sweep.values:
                machine.check_threads(value, "sweep.values")
        if self.sweep and self.sweep.key == "warmup":
            for value in self.sweep.values:
                if type(value) is not int or value < 0:
                    raise ValueError(
                        f"sweep.values must be numbers of steps where sweep.key=warmup, got {value!r}"
                    )
        return self

    @property
    def idle(self) -> set[str]:
        """Keys that have no effect on what is measured."""
        if self.breakdown:
            return {"only", "repetitions", "block", "settle"}
        return {"warmup", "settling"} if self.sweep and self.sweep.key == "warmup" else set()

    @property
    def names(self) -> list[str]:
        """Names of the rows to measure."""
        return [self.only] if isinstance(self.only, str) else list(self.only or self.rows)

    @property
    def broken_down(self) -> list[str]:
        """Names of the rows whose step to break down: one, or none."""
        return [self.breakdown if isinstance(self.breakdown, str) else BROKEN_DOWN] if self.breakdown else []


def refuse_idle(options: BenchOptions, words: Sequence[str]) -> None:
    """Raise ValueError where words of a command set what has no effect; a file of conf/case may."""
    if idle := [word for word in words if re.split("[.=]", word.lstrip("+~"))[0] in options.idle]:
        where = "on a breakdown" if options.breakdown else "where sweep.key=warmup"
        raise ValueError(f"{' '.join(idle)} has no effect {where}; leave it out")


def measure(options: BenchOptions, reporter: Reporter) -> Fields:
    """Return where a case was measured and its rows; of a sweep the rows of every point.

    With breakdown, the parts of one row's step in place of rows. A sweep that is interrupted has the points
    that were timed before, if any.
    """
    device, sweep = torch.device("cpu"), options.sweep
    kept = machine.set_up(options.threads, device, keep_memory=options.allocator == "keep")
    result: Fields = {"case": file_name(options.case.name), "sweep": sweep and file_name(sweep.name)}
    result |= machine.describe(device) | {"allocator": "keep" if kept else "default"}
    result |= {"started_at": datetime.now(UTC).isoformat(timespec="seconds"), "seed": options.seed}
    protocol = options.model_dump(include=PROTOCOL - options.idle)
    result |= {"timing_rule": TIMING_RULE, "protocol": protocol}
    # all before the first is timed: a value that cannot be trained with is refused at once
    points = [(chosen, setting, configurations(chosen, setting)) for chosen, setting in points_of(options)]
    if not sweep:
        ((_, setting, cfgs),) = points
        if options.breakdown:
            return result | step_parts(options, cfgs, reporter)
        return result | point(options, setting, cfgs, reporter)
    rows: list[Fields] = []
    try:
        for value, (chosen, setting, cfgs) in zip(sweep.values, points, strict=True):
            reporter.line(f"{sweep.key}={value}")
            machine.set_up(chosen.threads, device, keep_memory=options.allocator == "keep")
            timed = point(chosen, setting, cfgs, reporter)
            rows.append({"value": value} | timed)
            times = [f"{row['name']} {row['bp_ms']:.3g} of {row['total_ms']:.3g} ms" for row in timed["rows"]]
            reporter.line(f"{sweep.key}={value}: BP {', '.join(times)}")
    except KeyboardInterrupt:
        if not rows:
            raise
    return result | {"key": sweep.key, "points": rows}


def points_of(options: BenchOptions) -> list[tuple[BenchOptions, list[str]]]:
    """Return the options and more overrides of training at each value of the sweep, or of the case alone."""
    sweep = options.sweep
    if sweep is None:
        return [(options, [])]
    if sweep.key == "threads":
        return [(options.model_copy(update={"threads": value}), []) for value in sweep.values]
    if sweep.key == "warmup":
        return [(options.model_copy(update={"warmup": value, "settling": {}}), []) for value in sweep.values]
    return [(options, [f"{sweep.key}={value}"]) for value in sweep.values]


def configurations(options: BenchOptions, setting: Sequence[str]) -> dict[str, DictConfig]:
    """Return the training configuration of each row, and of torch's; ValueError for one that is refused."""
    names = options.broken_down or dict.fromkeys(["torch", *options.names])
    cfgs = {name: configuration(options, setting, name) for name in names}
    for name, cfg in cfgs.items():
        for key, value in (word.split("=", 1) for word in setting):
            used = OmegaConf.select(cfg, key.lstrip("+"))
            if str(used) != value:
                raise ValueError(
                    f"sweep.key={key}: row {name} has {used} in place of {value}; leave it out of overrides "
                    "and rows (the benchmark itself sets seed, threads and paths)"
                )
        check(cfg.model)
        for part in ("task", "method", "trainer"):
            build(cfg[part])
        try_out(build(cfg.optimizer))
    return cfgs


def warm_up(models: Sequence[TimedModel], options: BenchOptions, reporter: Reporter) -> None:
    """Train each model for the steps before its first timed one."""
    steps = [options.settling.get(model.name, options.warmup) for model in models]
    with reporter.bar(f"warming up {', '.join(model.name for model in models)}") as done:
        completed = 0
        for model, count in zip(models, steps, strict=True):
            for at in range(0, count, REPORTED):
                completed += len(model.steps(min(REPORTED, count - at)).seconds)
                done(completed / sum(steps))


def point(
    options: BenchOptions, setting: Sequence[str], cfgs: Mapping[str, DictConfig], reporter: Reporter
) -> Fields:
    """Return the rows of one setting, over all repetitions, and the medians of each of these."""
    plain = cfgs["torch"]
    task, models = build(plain.task), list[TimedModel]()
    timings, repetitions = list[dict[str, Timing]](), []
    for seed in range(options.seed, options.seed + options.repetitions):
        models.clear()  # before others are built: large ones fit into memory once
        splits = task.splits(seed)
        for cfg in cfgs.values():
            cfg.seed = seed
        make = {name: partial(TimedModel, name, cfgs[name], task, splits) for name in options.names}
        models += [build_model() for build_model in make.values()]
        warm_up(models, options, reporter)
        with reporter.bar(f"timing for {options.seconds:g} s") as done:
            timing, share = interleave(models, options.block, options.settle, options.seconds, done)
        timings.append(timing)
        repetitions.append({"seed": seed, "cpu_share": round(share, 3)} | medians(timing, options.cycle))
    examples = {shapes: batch for model in models for shapes, batch in model.examples.items()}
    reporter.line("counting arithmetic and measuring memory")
    flops = costs.backward_flops(task, build(plain.model, **splits.sizes), examples)
    rows = [
        costs.row(model, [timing[model.name] for timing in timings], flops, options.cycle)
        | {"bp_output_share": costs.output_share(model)}
        | {"peak_mib": costs.peak_mib(model.name, partial(trial, make[model.name]))}
        for model in models
    ]
    return {
        "overrides": [*options.case.overrides, *setting, *options.overrides],
        "cpu_share": min(repetition["cpu_share"] for repetition in repetitions),
        "rows": costs.compared(rows),
        "repetitions": repetitions,
    }


def step_parts(options: BenchOptions, cfgs: Mapping[str, DictConfig], reporter: Reporter) -> Fields:
    """Return the parts of a step of the row that `breakdown` chooses."""
    ((name, cfg),) = cfgs.items()
    task = build(cfg.task)
    model = TimedModel(name, cfg, task, task.splits(options.seed))
    warm_up([model], options, reporter)
    reporter.line(f"timing for {options.seconds:g} s, then counting")
    return {
        "overrides": [*options.case.overrides, *options.overrides],
        "row": name,
        "k_per_layer": model.k_per_layer,
        **breakdown.measure(model, options.seconds, options.cycle),
    }


def configuration(options: BenchOptions, setting: Sequence[str], name: str) -> DictConfig:
    """Return the training configuration of a row, with the seed of the first repetition."""
    cfg = compose([*options.case.overrides, *setting, *options.rows[name], *options.overrides])
    cfg.seed, cfg.trainer.threads = options.seed, options.threads
    cfg.paths = options.paths.model_dump()
    return cfg


def medians(timing: Mapping[str, Timing], cycle: int) -> Fields:
    """Return the median milliseconds of every row of one repetition."""
    seconds = {name: costs.in_cycles(each.seconds, cycle) for name, each in timing.items()}
    return {"rows": [{"name": name, **costs.medians(each)} for name, each in seconds.items()]}


def trial(make: Callable[[], TimedModel]) -> None:
    """Build a model and train it for the steps whose memory is measured."""
    make().steps(PEAK_STEPS)
