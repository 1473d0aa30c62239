"""A case of the benchmark, alone or at several values of one setting."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from ..config import build, compose
from ..kinds import expect
from ..training import machine
from .flops import Flops, backward_flops
from .memory import peak_mib
from .output import output_share
from .progress import Voice
from .rounds import interleave
from .rows import Row
from .summary import compared, numbers

FORMED_PART = 0.25  # of the seconds: for backward passes that form every gradient
FLOP_BATCHES = 3
PEAK_STEPS = 2  # in which memory is watched: the second has the optimizer's state and all gradients
PROTOCOL = ["seconds", "block", "settle", "warmup", "settling"]  # what a result tells of how it was measured


def measure(cfg: DictConfig, voice: Voice) -> dict[str, Any]:
    """The result of a case: where it was measured, and its rows; of a sweep: the rows of every point."""
    check(cfg)
    device = torch.device("cpu")
    kept = machine.set_up(cfg.threads, device, keep_memory=cfg.allocator == "keep")
    result = {"case": cfg.case.name, "sweep": cfg.sweep.name if cfg.sweep else None, "threads": cfg.threads}
    result |= machine.describe(device) | {"allocator": "keep" if kept else "default"}
    result |= {"started_at": datetime.now(UTC).isoformat(timespec="seconds"), "seed": cfg.seed}
    result |= {"protocol": OmegaConf.to_container(OmegaConf.masked_copy(cfg, PROTOCOL))}
    if not cfg.sweep:
        return result | point(cfg, [], voice)
    points = []
    for value in cfg.sweep["values"]:
        setting = f"{cfg.sweep.key}={value}"
        voice.say(setting)
        points.append({"value": value} | point(cfg, [setting], voice))
    return result | {"key": cfg.sweep.key, "points": points}


def check(cfg: DictConfig) -> None:
    """ValueError before any work for a setting that cannot be."""
    for key, choices in {"format": ("table", "json"), "allocator": ("keep", "default")}.items():
        if cfg[key] not in choices:
            raise ValueError(f"{key} must be one of {', '.join(choices)}, got {cfg[key]!r}")
    for key in ("seconds", "settle", "warmup"):
        if not isinstance(cfg[key], int | float) or cfg[key] < 0:
            raise ValueError(f"{key} must be a number of at least 0, got {cfg[key]!r}")
    if not isinstance(cfg.block, int) or cfg.block <= cfg.settle:
        raise ValueError(f"block must be a whole number above settle={cfg.settle}, got {cfg.block!r}")
    machine.check_threads(cfg.threads)
    for name, overrides in cfg.rows.items():
        expect(f"rows.{name}", overrides, list[str])
    expect("only", cfg.only, str | list[str] | None)
    if unknown := [str(name) for name in chosen(cfg) if name not in cfg.rows]:
        raise ValueError(f"only: no row {', '.join(unknown)}; there are {', '.join(cfg.rows)}")


def chosen(cfg: DictConfig) -> list[str]:
    """The names of the rows to measure."""
    return [cfg.only] if isinstance(cfg.only, str) else list(cfg.only or cfg.rows)


def configuration(cfg: DictConfig, setting: Sequence[str], name: str) -> DictConfig:
    """The training configuration of a row."""
    row = compose([*cfg.case.overrides, *setting, *cfg.rows[name], *cfg.overrides])
    row.seed, row.trainer.threads = cfg.seed, cfg.threads
    row.paths = OmegaConf.to_container(cfg.paths, resolve=True)
    return row


def point(cfg: DictConfig, setting: Sequence[str], voice: Voice) -> dict[str, Any]:
    """The rows of one setting, timed in turns."""
    rows, flops = prepared(cfg, setting, voice)
    in_turns = partial(interleave, rows, cfg.block, cfg.settle)
    with voice.bar(f"timing for {cfg.seconds} s") as done:
        seconds, share = in_turns(cfg.seconds, done)
    with voice.bar(f"timing with every gradient formed for {FORMED_PART * cfg.seconds} s") as done:
        formed, _ = in_turns(FORMED_PART * cfg.seconds, done, form_gradients=True)
    for row in rows:
        row.output_share = output_share(row)
    described = [numbers(row, seconds[row.name], formed[row.name], flops) for row in rows]
    overrides = [*cfg.case.overrides, *setting, *cfg.overrides]
    return {"overrides": overrides, "cpu_share": round(share, 3), "rows": compared(described)}


def prepared(cfg: DictConfig, setting: Sequence[str], voice: Voice) -> tuple[list[Row], Flops]:
    """The rows past their first steps, and the arithmetic of their dense backward pass."""
    plain = configuration(cfg, setting, "torch")
    task = build(plain.task)
    splits = task.splits(cfg.seed)
    make = {n: partial(Row, n, configuration(cfg, setting, n), task, splits) for n in chosen(cfg)}
    voice.say(f"warming up {', '.join(make)}")
    rows = [row() for row in make.values()]
    for row in rows:
        row.steps(cfg.settling.get(row.name, cfg.warmup))
    voice.say("watching memory")
    for row in rows:
        row.peak_mib = peak_mib(partial(trial, make[row.name]))
    batches = islice(task.batches(splits.train, cfg.seed, 0), FLOP_BATCHES)
    return rows, backward_flops(task, build(plain.model, **splits.sizes), batches)


def trial(make: Callable[[], Row]) -> None:
    """Build a row and train it a little: what its memory is watched for."""
    make().steps(PEAK_STEPS)
