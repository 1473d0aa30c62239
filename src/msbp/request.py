"""What one run asks for: checked, and its parts built, before any work."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

from . import record
from .kinds import expect
from .launch import check_keys, folder
from .parts import build, check

GROUPS = "task", "model", "method", "paper"  # what their files add
KINDS: dict[str, Any] = {"force": bool, "resume": str | None, "paths.offline": bool}


@dataclass(frozen=True)
class Request:
    """A configuration and the objects that it describes; the model needs the sizes of the data first."""

    cfg: DictConfig
    seed: int
    outputs: Path
    resume: Path | None
    task: Any
    method: Any
    trainer: Any
    optimizer: Callable[..., torch.optim.Optimizer]

    @cached_property
    def signature(self) -> str:
        return record.signature(self.cfg)

    @property
    def key(self) -> str:
        """What equal requests have in common, as a file name."""
        return f"{self.signature}-s{self.seed}"

    def model(self, sizes: dict[str, Any]) -> nn.Module:
        """A model for data of these sizes, which depends on the seed alone."""
        torch.manual_seed(self.seed)
        return build(self.cfg.model, **sizes)


def request(cfg: DictConfig) -> Request:
    """The request of a configuration; ValueError says which key is wrong, what it is and has to be."""
    check_keys(cfg, "train", GROUPS)
    for key, kind in KINDS.items():
        expect(key, OmegaConf.select(cfg, key), kind)
    if cfg.resume == "":
        raise ValueError(
            "resume must be the name of a checkpoint file, got ''; leave it out to start from scratch"
        )
    for part in ("task", "method", "model", "trainer", "optimizer"):
        if not OmegaConf.is_dict(cfg[part]) or "_target_" not in cfg[part]:
            raise ValueError(f"{part} must be a node with a _target_, got {cfg[part]!r}; leave {part}= out")
    check(cfg.model)
    parts = {part: build(cfg[part]) for part in ("task", "method", "trainer", "optimizer")}
    try_out(parts["optimizer"])
    resume = None if cfg.resume is None else Path(cfg.resume)
    return Request(cfg, record.seed_of(cfg), folder("paths.outputs", cfg.paths.outputs), resume, **parts)


def try_out(make: Callable[..., Any]) -> None:
    """ValueError unless make takes a parameter, a throw-away one, and gives an optimizer."""
    try:
        made = make([nn.Parameter(torch.zeros(1))])
    except Exception as error:  # options of any class that a user may name
        raise ValueError(f"optimizer: {error}") from error
    if not isinstance(made, torch.optim.Optimizer):
        raise ValueError(f"optimizer._target_ must be a torch.optim.Optimizer, got what makes {made!r}")
