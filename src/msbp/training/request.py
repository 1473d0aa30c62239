"""The request of one run: a checked configuration and the objects that it describes.

Beside `config`, which needs no torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, TypeVar

import torch
from omegaconf import DictConfig, OmegaConf
from pydantic import AfterValidator, Field, PositiveInt
from pydantic_core import PydanticCustomError
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from .. import record
from ..config import Name, Options, Paths, build, check
from ..files import Fields
from ..methods import Method
from ..tasks.base import Task
from .checkpoint import not_finite
from .trainer import Trainer

Part = TypeVar("Part")


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
            ge=0, lt=2**64, description="for several runs use -m, as in: python -m src.train -m seed=0,1,2"
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
    scheduler: Node | None = None
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
    scheduler: Callable[..., LRScheduler] | None

    @classmethod
    def of(cls, cfg: DictConfig) -> "Request":
        """Return the request of a configuration; ValueError names wrong keys, before any work."""
        options = TrainOptions.of(cfg)
        for key in not_finite(record.settings(cfg)):
            raise ValueError(f"{key} must be finite, got {OmegaConf.select(cfg, key)}")
        check(cfg.model)
        parts = {part: build(cfg[part]) for part in ("task", "method", "trainer", "optimizer")}
        parts["scheduler"] = build(cfg.scheduler) if cfg.get("scheduler") else None
        _try_out(parts["optimizer"], parts["scheduler"])
        for part in ("task", "model", "method"):
            if not str(cfg[part].get("name", "")).strip():
                raise ValueError(f"{part}.name must not be empty; leave it out for its own")
        resume = None if options.resume is None else Path(options.resume)
        return cls(cfg, options.seed, Path(options.paths.outputs), resume, **parts)

    @cached_property
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


def _try_out(make_optimizer: Callable[..., object], make_scheduler: Callable[..., object] | None) -> None:
    """Raise ValueError unless these return an optimizer that can make a step, and a scheduler of it."""
    parameter = nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    optimizer = _returned("optimizer", torch.optim.Optimizer, make_optimizer, [parameter])
    try:
        optimizer.step()
    except Exception as error:
        raise ValueError(f"optimizer: {error}") from error
    if make_scheduler:
        _returned("scheduler", LRScheduler, make_scheduler, optimizer)


def _returned(key: str, kind: type[Part], make: Callable[..., object], argument: object) -> Part:
    """Return what make returns for the argument; ValueError unless that is of this kind."""
    try:
        part = make(argument)
    except Exception as error:  # options of any class that a user may name
        raise ValueError(f"{key}: {error}") from error
    if not isinstance(part, kind):
        raise ValueError(f"{key}._target_ must be an {kind.__name__} of torch, got {part!r}")
    return part
