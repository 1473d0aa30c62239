"""Train one model and leave its record: python -m src.train task=mnist method=msbp"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from pydoc import locate
from typing import Annotated

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from pydantic import AfterValidator, Field, PositiveInt
from pydantic_core import PydanticCustomError
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from msbp import record
from msbp.cli import report_command, start
from msbp.config import CONF, Name, Options, Paths, build, check
from msbp.files import Fields, json_text, save
from msbp.methods import Method
from msbp.tasks.base import Splits, Task
from msbp.training import locks, machine, progress
from msbp.training.checkpoint import Checkpoint, drop_finished, existing, not_finite, save_weights
from msbp.training.clock import Clock
from msbp.training.loggers import Loggers
from msbp.training.probes import unpropagated_fraction
from msbp.training.state import Diverged
from msbp.training.trainer import Run, Trainer
from msbp.training.trial import try_out

log = logging.getLogger(__name__)
DEV_BATCHES = 10  # for dropped_fraction
PROTOCOLS: dict[str, type] = {"task": Task, "method": Method, "trainer": Trainer}


def _described(node: Fields) -> Fields:
    if "_target_" not in node:
        raise PydanticCustomError("dict_type", "no target")
    return node


Node = Annotated[Fields, AfterValidator(_described), Field(description="leave it out for the task's own")]


class TrainOptions(Options):
    """Options of `python -m src.train`."""

    seed: Annotated[
        int,
        Field(
            ge=0, lt=2**63, description="for several runs use -m, as in: python -m src.train -m seed=0,1,2"
        ),
    ]
    force: bool
    resume: Annotated[Name | None, Field(description="leave it out to start from scratch")]
    paths: Paths
    task: Node
    model: Node
    method: Node
    trainer: Node
    optimizer: Node
    lr_scheduler: Node | None = None
    log_every: PositiveInt
    logger: dict[str, Node] | None = None
    paper: Fields


@dataclass(frozen=True)
class Request:
    """A configuration and the objects that it describes; the model needs the sizes of the data first."""

    cfg: DictConfig
    seed: int
    outputs: Path
    resume: Path | None
    task: Task
    method: Method
    trainer: Trainer
    optimizer: Callable[..., torch.optim.Optimizer]
    lr_scheduler: Callable[..., LRScheduler] | None

    @classmethod
    def of(cls, cfg: DictConfig) -> "Request":
        """Return the request of a configuration; ValueError names wrong keys, before any work."""
        options = TrainOptions.of(cfg)
        for key in not_finite(record.settings(cfg)):
            raise ValueError(f"{key} must be finite, got {OmegaConf.select(cfg, key)}")
        check(cfg.model)
        target = locate(str(cfg.model.get("_target_")))
        if isinstance(target, type) and not issubclass(target, nn.Module):
            raise ValueError(f"model._target_ must be a torch.nn.Module, got {target.__name__}")
        parts = {part: build(cfg[part]) for part in ("task", "method", "trainer", "optimizer")}
        parts["lr_scheduler"] = build(cfg.lr_scheduler) if cfg.get("lr_scheduler") else None
        for part, kind in PROTOCOLS.items():
            if not isinstance(parts[part], kind):
                raise ValueError(
                    f"{part}._target_ must have all attributes of {kind.__module__}.{kind.__name__}, got "
                    f"an object of type {type(parts[part]).__name__}; leave it out for the task's own"
                )
        try_out(parts["optimizer"], parts["lr_scheduler"])
        for part in ("task", "model", "method"):
            if not str(cfg[part].get("name", "")).strip():
                raise ValueError(f"{part}.name must not be empty; leave it out for its own")
        resume = None if options.resume is None else existing(Path(options.resume))
        return cls(cfg, options.seed, Path(options.paths.outputs), resume, **parts)

    @property
    def signature(self) -> str:
        return record.signature(self.cfg)

    @property
    def key(self) -> str:
        """File name that equal requests share."""
        return f"{self.signature}-s{self.seed}"

    def model(self, sizes: Mapping[str, object]) -> nn.Module:
        """Return a model for data of these sizes, whose weights depend on the seed alone."""
        torch.manual_seed(self.seed)
        return build(self.cfg.model, **sizes)


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
    request, files = Request.of(cfg), command_line(cfg, overrides)
    checkpoints = request.outputs / "checkpoints"
    progress.name_job(f"{cfg.task.name} {record.label(record.settings(cfg)['method'])}, seed {request.seed}")
    splits = request.task.splits(request.seed)
    with locks.request(checkpoints, request.key, again=cfg.force) as path:
        known = record.find(request.outputs, request.signature, request.seed, splits.digest)
        if known and not cfg.force:
            given = Checkpoint(path, record.settings(cfg), resume=request.resume, data_digest=splits.digest)
            given.check_resume()
        if known or cfg.force:
            drop_finished(path, request.trainer.epochs)
        if known and not cfg.force:
            log.info(
                "this run was made before, and its record follows; force=true repeats it\n%s",
                record.summary(*known),
            )
            return known[1]
        locks.drop_abandoned(request.outputs, files)
        with locks.run_folder(folder, files), locks.detect_concurrent(checkpoints) as alone:
            return learn(request, splits, folder, path, alone)


def command_line(cfg: DictConfig, overrides: list[str]) -> dict[str, bytes]:
    """Return the files that describe a run, as bytes: a foreign locale's stay as they are."""
    texts = {"config.yaml": OmegaConf.to_yaml(cfg), "overrides.yaml": OmegaConf.to_yaml(overrides)}
    return {name: text.encode("utf-8", "surrogateescape") for name, text in texts.items()}


def learn(
    request: Request, splits: Splits, folder: Path, path: Path, alone: Callable[[], bool | None]
) -> Fields:
    """Train, with a checkpoint at this path, and write the run's files into folder; the record comes last."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    trainer, device = request.trainer, machine.device_of(request.trainer.device)
    allocator = machine.set_up(trainer.threads, device)
    here = machine.describe(device)
    settings, times = record.settings(request.cfg), machine.timed_under(here)
    checkpoint = Checkpoint(path, settings, lambda: times | {"alone": alone()}, request.resume, splits.digest)
    loggers = Loggers.of(request.cfg)
    run, k_per_layer = prepare(request, splits, device)
    loggers.hyperparameters(settings)
    status = "failed"
    try:
        trainer.fit(run, checkpoint, loggers)
        status = "success"
    except Diverged as error:
        names = {"signature": request.signature, "seed": request.seed, "data_digest": splits.digest}
        at = {"epoch": error.epoch, "step": error.step, "reason": error.reason}
        save({folder / record.DIVERGED: json_text({**names, **at, "started_at": started}, indent=1)})
        raise
    finally:
        loggers.close(status)

    some = islice(request.task.batches(run.splits.dev, request.seed, epoch=0), DEV_BATCHES)
    done = record.requested(request.cfg, request.method, k_per_layer) | run.measured() | here
    disturbed = [*checkpoint.disturbed(), *run.disturbed()]
    done |= {
        "times_comparable": not disturbed,
        "disturbed": disturbed,
        "allocator_keeps_memory": allocator,
        "dropped_fraction": unpropagated_fraction(run.model, request.task, some, k_per_layer),
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
    log.info("%s\ntables: %s", record.summary(path, done), report_command(request.cfg.paths.outputs))
    return done


def prepare(request: Request, splits: Splits, device: torch.device) -> tuple[Run, dict[str, int]]:
    """Return the run, before its first step, and k by layer; the model depends on the seed alone."""
    for note in splits.notes:
        log.info(note)
    model = request.model(splits.sizes).to(device)
    kept = request.method.install(model)
    clock = Clock(wait=machine.waiting_for(device))
    parts = model, request.optimizer, request.task, request.method
    return Run(*parts, splits, request.seed, device, clock, request.lr_scheduler), kept


if __name__ == "__main__":
    start(main, sweeps=True)
