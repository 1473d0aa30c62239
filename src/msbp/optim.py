"""Adam and SGD with torch's semantics; gradients that wait as factors are taken without forming them.

One kernel call updates all parameters of a group that are float32 on the CPU; others go through plain torch.
"""

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from .sparse.kernels import update
from .sparse.updates.clipping import clip_grad_norm_, clip_grad_value_
from .sparse.updates.one_call import Group, OneCall, State
from .sparse.updates.table import Table

__all__ = ["SGD", "Adam", "clip_grad_norm_", "clip_grad_value_"]

MAX_AGE = 1 << 20  # steps


class Adam(OneCall):
    """torch.optim.Adam's update (no weight decay, no amsgrad).

    A row of a weight that gets no gradient has moments that only decay, so they are left alone and
    `last_step` says how old they are. A state_dict holds them as they are, so that a resumed run goes on
    bit for bit; `settle` brings them up to date, for torch's own Adam to go on with.
    """

    only: ClassVar = {"weight_decay": 0, "amsgrad": False, "maximize": False}

    def __init__(
        self, params: Iterable, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ):
        if not lr >= 0 or not eps >= 0 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(
                f"Adam needs lr >= 0, eps >= 0 and betas in [0, 1), got lr={lr}, betas={betas}, eps={eps}"
            )
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    def settle(self) -> None:
        """Let all moments decay up to the present step."""
        for group in self.param_groups:
            self._settle_group(group)

    def _settle_group(self, group: Group) -> None:
        for p in group["params"]:
            state = self.state.get(p, {})
            if "last_step" in state:
                betas: Any = group.get("last_betas", group["betas"])
                settle(state, betas, state["step"])

    def _update_group(self, group: Group) -> None:
        if group.get("last_betas", group["betas"]) != group["betas"]:
            self._settle_group(group)  # rows that wait have decayed with the betas so far
        group["last_betas"] = group["betas"]
        super()._update_group(group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        for state in self.state.values():
            if "last_step" in state:  # torch casts a state to its parameter's type
                state["last_step"] = state["last_step"].to(torch.int32)

    def _moments(self, group: Group) -> tuple[str, ...]:
        return "exp_avg", "exp_avg_sq"

    def _turn(self, p: Tensor, state: State, group: Group) -> None:
        if "last_step" in state:
            settle(state, group["betas"], state["step"])
        else:
            state["last_step"] = torch.full(p.shape[:1], state["step"], dtype=torch.int32)

    def _call(self, table: Table, group: Group) -> None:
        beta1, beta2 = group["betas"]
        constants = float(group["lr"]), beta1, beta2, group["eps"]
        update.adam(table.address, len(table.parameters), *constants, *powers(beta1, beta2))

    def _update(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        (beta1, beta2), t = group["betas"], state["step"]
        m = state["exp_avg"].lerp_(grad, 1 - beta1)
        v = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        root = (v.sqrt() / math.sqrt(1 - beta2**t)).add_(group["eps"])
        p.addcdiv_(m, root, value=-float(group["lr"]) / (1 - beta1**t))


def settle(state: State, betas: tuple[float, float], step: int) -> None:
    """Let Adam's moments of rows without gradient decay up to a step."""
    age = step - state.pop("last_step").double()
    for moment, beta in zip(("exp_avg", "exp_avg_sq"), betas, strict=True):
        state[moment].mul_((beta**age).to(state[moment].dtype).view(-1, *[1] * (state[moment].dim() - 1)))


@lru_cache(maxsize=8)
def powers(beta1: float, beta2: float) -> tuple[np.ndarray, np.ndarray]:
    """beta to the power of 0, 1, ... up to the age at which an update falls below float32's resolution.

    A row of that age moves by (beta1 / sqrt(beta2)) to the power of its age, times what it moved by at first.
    """
    decay = beta1 / math.sqrt(beta2) if beta2 else 1.0
    age = math.log(2.0**-24) / math.log(decay) if 0 < decay < 1 else (0 if decay == 0 else MAX_AGE)
    ages = np.arange(min(math.ceil(age), MAX_AGE) + 2, dtype=np.float64)
    return beta1**ages, beta2**ages


class SGD(OneCall):
    """torch.optim.SGD's update, with and without momentum."""

    only: ClassVar = {"dampening": 0, "weight_decay": 0, "nesterov": False, "maximize": False}

    def __init__(self, params: Iterable, lr: float, momentum: float = 0.0):
        if not lr >= 0 or not momentum >= 0:
            raise ValueError(f"SGD needs lr >= 0 and momentum >= 0, got lr={lr}, momentum={momentum}")
        super().__init__(params, {"lr": lr, "momentum": momentum})

    def _moments(self, group: Group) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] else ()

    def _call(self, table: Table, group: Group) -> None:
        update.sgd(table.address, len(table.parameters), float(group["lr"]), group["momentum"])

    def _update(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        if group["momentum"]:
            grad = state["momentum_buffer"].mul_(group["momentum"]).add_(grad)
        p.add_(grad, alpha=-float(group["lr"]))
