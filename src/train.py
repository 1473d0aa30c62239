"""Train one model and leave its record: python -m src.train task=mnist method=msbp"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from msbp import claims, machine, record
from msbp.checkpoint import Checkpoint, save_weights
from msbp.clock import Clock
from msbp.dropped import dropped_fraction
from msbp.launch import CONF, build, described, report_command, start
from msbp.trainer import Run

log = logging.getLogger(__name__)
DEV_BATCHES = 10  # for dropped_fraction


@hydra.main(config_path=CONF, config_name="train", version_base="1.3")
def main(cfg: DictConfig) -> None:
    job = HydraConfig.get()
    folder = Path(job.runtime.output_dir)
    try:
        train(cfg, folder, job.overrides.task)
    finally:
        with suppress(OSError):
            folder.rmdir()  # empty only where no run began


def train(cfg: DictConfig, folder: Path, overrides: list[str]) -> Mapping[str, Any]:
    """The record of this request: the one that there is, or that of a run in folder."""
    seed, outputs = record.seed_of(cfg), Path(cfg.paths.outputs)
    parts = {part: build(cfg[part]) for part in ("task", "method", "trainer", "optimizer")}
    signature = record.signature(cfg)
    with claims.request(outputs / "checkpoints", f"{signature}-s{seed}", again=cfg.force) as place:
        known = None if cfg.force else record.find(outputs, signature, seed)
        if known:
            log.info("this request has a record; force=true runs it again\n%s", record.summary(*known))
            return known[1]
        company = claims.company(outputs / "checkpoints")
        with claims.run_folder(folder, described(cfg, overrides)), company as alone:
            return learn(cfg, folder, place, alone, **parts)


def learn(cfg: DictConfig, folder: Path, place: Path, alone: Callable[[], bool],
          task: Any, method: Any, trainer: Any, optimizer: Any) -> Mapping[str, Any]:  # fmt: skip
    """Train, with a checkpoint at place, and write what folder keeps; the record comes last."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    device = machine.device_of(trainer.device)
    allocator = machine.set_up(trainer.threads, device)
    here = machine.describe(device)
    timed_under = {key: here[key] for key in ("commit", "machine", "device", "threads")}
    checkpoint = Checkpoint(
        place,
        record.settings(cfg),
        conditions=lambda: timed_under | {"alone": alone()},
        resume=cfg.resume and Path(cfg.resume),
    )
    run, installed = prepare(cfg, task, method, optimizer, device)
    trainer.fit(run, checkpoint)

    some = islice(task.batches(run.splits.dev, cfg.seed, epoch=0), DEV_BATCHES)
    dropped = dropped_fraction(run.model, task, some, installed.k_per_layer)
    save_weights(run.model, folder / "weights.pt")
    done = {
        **record.asked(cfg, method, installed.k_per_layer),
        **run.measured(),
        **here,
        "times_comparable": checkpoint.comparable(),
        "allocator_keeps_memory": allocator,
        "dropped_fraction": dropped,
        "notes": list(run.splits.notes),
        "started_at": started,
        "config": record.settings(cfg),
    }
    texts = {**run.splits.keep, record.HYPOTHESES: run.state.texts}
    path = record.write(folder, done, run.state.watched, texts)
    checkpoint.close(folder if trainer.keep_checkpoint else None)
    log.info("%s\ntables: %s", record.summary(path, done), report_command(cfg.paths.outputs))
    return done


def prepare(cfg: DictConfig, task: Any, method: Any, optimizer: Any, device: torch.device) -> tuple[Run, Any]:
    """Data, then a model that depends on the seed alone, then the method in it."""
    splits = task.splits(cfg.seed)
    for note in splits.notes:
        log.info(note)
    torch.manual_seed(cfg.seed)
    model = build(cfg.model, **splits.sizes).to(device)
    installed = method.install(model)
    clock = Clock(wait=machine.waiting_for(device))
    return Run(model, optimizer, task, method, splits, cfg.seed, device, clock), installed


if __name__ == "__main__":
    start(main)
