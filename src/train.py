"""Train one model and leave its record: python -m src.train task=mnist method=msbp"""

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from msbp import record
from msbp.cli import report_command, start
from msbp.config import CONF
from msbp.files import Fields, json_text, save
from msbp.tasks.base import Splits
from msbp.training import locks, machine, progress
from msbp.training.checkpoint import Checkpoint, drop_finished, save_weights
from msbp.training.clock import Clock
from msbp.training.loggers import Loggers
from msbp.training.probes import unpropagated_fraction
from msbp.training.request import Request
from msbp.training.run import DIVERGED, Diverged, Run

log = logging.getLogger(__name__)
DEV_BATCHES = 10  # for dropped_fraction


@hydra.main(config_path=CONF, config_name="train", version_base="1.3")
def main(cfg: DictConfig) -> float:
    """Return the dev score of the best epoch, which a sweeper may optimize."""
    job = HydraConfig.get()
    folder = Path(job.runtime.output_dir)
    try:
        return train(cfg, folder, job.overrides.task)["dev"]
    finally:
        with suppress(OSError):
            folder.rmdir()  # empty only where no run began


def train(cfg: DictConfig, folder: Path, overrides: list[str]) -> Fields:
    """Return the record of this request: the one that exists for equal data, or that of a new run."""
    ask, files = Request.of(cfg), command_line(cfg, overrides)
    checkpoints = ask.outputs / "checkpoints"
    progress.name_job(f"{cfg.task.name} {record.label(record.settings(cfg)['method'])}, seed {ask.seed}")
    splits = ask.task.splits(ask.seed)
    with locks.request(checkpoints, ask.key, again=cfg.force) as place:
        known = record.find(ask.outputs, ask.signature, ask.seed, splits.digest)
        if known or cfg.force:
            drop_finished(place, ask.trainer.epochs)
        if known and not cfg.force:
            log.info("this request has a record; force=true runs it again\n%s", record.summary(*known))
            return known[1]
        locks.drop_abandoned(ask.outputs, files)
        with locks.run_folder(folder, files), locks.company(checkpoints) as alone:
            return learn(ask, splits, folder, place, alone)


def command_line(cfg: DictConfig, overrides: list[str]) -> dict[str, bytes]:
    """Return the files that describe a run, as bytes: a foreign locale's stay as they are."""
    texts = {"config.yaml": OmegaConf.to_yaml(cfg), "overrides.yaml": OmegaConf.to_yaml(overrides)}
    return {name: text.encode("utf-8", "surrogateescape") for name, text in texts.items()}


def learn(
    ask: Request, splits: Splits, folder: Path, place: Path, alone: Callable[[], bool | None]
) -> Fields:
    """Train, with a checkpoint at place, and write the run's files into folder; the record comes last."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    trainer, device = ask.trainer, machine.device_of(ask.trainer.device)
    allocator = machine.set_up(trainer.threads, device)
    here = machine.describe(device)
    settings, times = record.settings(ask.cfg), machine.timed_under(here)
    checkpoint = Checkpoint(place, settings, lambda: times | {"alone": alone()}, ask.resume, splits.digest)
    loggers = Loggers.of(ask.cfg)
    run, k_per_layer = prepare(ask, splits, device)
    loggers.hyperparameters(settings)
    status = "failed"
    try:
        trainer.fit(run, checkpoint, loggers)
        status = "success"
    except Diverged as error:
        names = {"signature": ask.signature, "seed": ask.seed, "data_digest": splits.digest}
        found = {"epoch": error.epoch, "step": error.step, "reason": error.reason}
        save({folder / DIVERGED: json_text({**names, **found, "started_at": started}, indent=1)})
        raise
    finally:
        loggers.close(status)

    some = islice(ask.task.batches(run.splits.dev, ask.seed, epoch=0), DEV_BATCHES)
    done = record.asked(ask.cfg, ask.method, k_per_layer) | run.measured() | here
    disturbed = [*checkpoint.disturbed(), *run.disturbed()]
    done |= {
        "times_comparable": not disturbed,
        "disturbed": disturbed,
        "allocator_keeps_memory": allocator,
        "dropped_fraction": unpropagated_fraction(run.model, ask.task, some, k_per_layer),
        "notes": list(splits.notes),
        "data_digest": splits.digest or None,
        "started_at": started,
        "config": settings,
    }
    save_weights(run.model, folder / "weights.pt")
    if trainer.keep_checkpoint:
        checkpoint.keep(folder)
    path = record.write(folder, done, run.state.watched, run.texts())
    checkpoint.close()
    log.info("%s\ntables: %s", record.summary(path, done), report_command(ask.cfg.paths.outputs))
    return done


def prepare(ask: Request, splits: Splits, device: torch.device) -> tuple[Run, dict[str, int]]:
    """Return the run, before its first step, and k by layer; the model depends on the seed alone."""
    for note in splits.notes:
        log.info(note)
    model = ask.model(splits.sizes).to(device)
    kept = ask.method.install(model).k_per_layer
    clock = Clock(wait=machine.waiting_for(device))
    return Run(model, ask.optimizer, ask.task, ask.method, splits, ask.seed, device, clock), kept


if __name__ == "__main__":
    start(main, sweeps=True)
