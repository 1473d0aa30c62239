"""Trials of an optimizer, a scheduler and clipping on one parameter, before any work is done."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

Part = TypeVar("Part")


def trial_parameter() -> nn.Parameter:
    """Return a parameter with a gradient, on which an optimizer or clipping can be tried out."""
    parameter = nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    return parameter


def try_out(
    make_optimizer: Callable[..., object], make_scheduler: Callable[..., object] | None = None
) -> None:
    """Raise ValueError unless these return an optimizer that can make a step, and a scheduler of it."""
    optimizer = _returned("optimizer", Optimizer, make_optimizer, [trial_parameter()])
    try:
        optimizer.step()
    except Exception as error:
        raise ValueError(f"optimizer: {error}") from error
    if make_scheduler:
        _returned("lr_scheduler", LRScheduler, make_scheduler, optimizer)


def _returned(key: str, kind: type[Part], make: Callable[..., object], argument: object) -> Part:
    """Return what make returns for the argument; ValueError unless that is of this kind."""
    try:
        part = make(argument)
    except Exception as error:  # options of any class that a user may name
        raise ValueError(f"{key}: {error}") from error
    if not isinstance(part, kind):
        raise ValueError(f"{key}._target_ must be an {kind.__name__} of torch, got {part!r}")
    return part
