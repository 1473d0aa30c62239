"""Adam and SGD with torch's semantics; row-sparse gradients are taken without forming dense ones.

One kernel call updates all parameters of a group that are float32 on the CPU; others go through plain torch.
"""

import math
import weakref
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..sparse.buffers import address
from ..sparse.kernels import update
from .clipping import clip_grad_norm_, clip_grad_value_
from .fused import FusedOptimizer, Group, State, mismatch

__all__ = ["SGD", "Adam", "clip_grad_norm_", "clip_grad_value_"]

MAX_AGE = 1 << 20  # steps


class Adam(FusedOptimizer):
    """torch.optim.Adam's update (no weight decay, no amsgrad: ValueError for other values than in `only`).

    A row of a weight that gets no gradient has moments that only decay, so they are left alone and
    `last_step` says how old they are. A state_dict holds them as they are, so that a resumed run goes on
    bit for bit; `settle` brings them up to date, for torch's own Adam to go on with.
    """

    only: ClassVar = {"weight_decay": 0, "amsgrad": False, "maximize": False}

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        *,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        maximize: bool = False,
    ):
        check_size(lr)
        if not lr >= 0 or not eps >= 0 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(
                f"Adam needs lr >= 0, eps >= 0 and betas in [0, 1), got lr={lr}, betas={betas}, eps={eps}"
            )
        self._ages: dict[int, list[Any]] = {}  # of row ages, by address: the state that they belong to
        options = {"weight_decay": weight_decay, "amsgrad": amsgrad, "maximize": maximize}
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps}, options)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._ages = {}

    def settle(self) -> None:
        """Let all moments decay up to the present step."""
        for group in self.param_groups:
            self._settle_group(group)

    def _settle_group(self, group: Group) -> None:
        for p in group["params"]:
            state = self.state.get(p, {})
            if "last_step" in state:
                betas: Any = group.get("last_betas", group["betas"])
                self._settle_state(p, state, betas)

    def _update_group(self, group: Group) -> None:
        if group.get("last_betas", group["betas"]) != group["betas"]:
            self._settle_group(group)  # rows that wait have decayed with the betas so far
        group["last_betas"] = group["betas"]
        super()._update_group(group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            for p, index in zip(group["params"], saved["params"], strict=True):
                last_step = state_dict["state"].get(index, {}).get("last_step")
                if last_step is not None:  # torch casts a state to its parameter's type
                    self.state[p]["last_step"] = last_step.to("cpu", torch.int32, copy=True)

    def _moments(self, group: Group) -> tuple[str, ...]:
        return "exp_avg", "exp_avg_sq"

    def _last_step(self, state: State, n: int) -> int:
        last_step = state.get("last_step")
        if last_step is None:
            last_step = state["last_step"] = torch.full((n,), state["step"], dtype=torch.int32, device="cpu")
        if last_step.shape != (n,):
            raise mismatch("state 'last_step'", last_step.shape, torch.Size((n,)))
        if last_step.dtype is not torch.int32 or not last_step.is_cpu:
            last_step = state["last_step"] = last_step.to("cpu", torch.int32)  # as by a cast of all state
        pointer = address(last_step, (n,), "state 'last_step'", torch.int32)
        self._check_moments(state, last_step, pointer)
        return pointer

    def _check_moments(self, state: State, last_step: Tensor, pointer: int) -> None:
        """Raise RuntimeError if moments or step were changed from outside while some rows are behind."""
        m, v, step = state["exp_avg"], state["exp_avg_sq"], state["step"]
        now = m.data_ptr(), m._version, v.data_ptr(), v._version
        known = self._ages.get(pointer)
        if known is None or known[0]() is not last_step:
            # references, as another tensor may come to lie at a freed one's address
            self._ages[pointer] = [*map(weakref.ref, (last_step, m, v)), now, step]
        elif known[1]() is m and known[2]() is v and known[3] == now and known[4] <= step <= known[4] + 1:
            known[4] = step
        else:
            raise RuntimeError(
                "state 'exp_avg', 'exp_avg_sq' or 'step' was changed while some rows, by state 'last_step', "
                "are behind the others: call optimizer.settle() before you change the state"
            )

    def _to_dense(self, p: Tensor, state: State, group: Group) -> None:
        if "last_step" in state:
            self._settle_state(p, state, group["betas"])

    def _settle_state(self, p: Tensor, state: State, betas: tuple[float, float]) -> None:
        """Let the moments of a parameter's rows without gradient decay up to the present step."""
        last_step = state["last_step"]
        for name, shape in (("last_step", p.shape[:1]), ("exp_avg", p.shape), ("exp_avg_sq", p.shape)):
            if state[name].shape != shape:
                raise mismatch(f"state {name!r}", state[name].shape, shape)
        self._check_moments(state, last_step, last_step.data_ptr())
        age = state["step"] - last_step.double()
        for name, beta in zip(("exp_avg", "exp_avg_sq"), betas, strict=True):
            moment = state[name]
            moment.mul_((beta**age).to(moment).view(-1, *[1] * (moment.dim() - 1)))
        self._ages.pop(state.pop("last_step").data_ptr(), None)

    def _call(self, table: int, count: int, group: Group) -> None:
        beta1, beta2 = group["betas"]
        constants = float(group["lr"]), beta1, beta2, group["eps"]
        update.adam(table, count, *constants, *powers(beta1, beta2))

    def _update(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        (beta1, beta2), t = group["betas"], state["step"] + 1
        m = state["exp_avg"].lerp_(grad, 1 - beta1)
        v = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        root = (v.sqrt() / math.sqrt(1 - beta2**t)).add_(group["eps"])
        p.addcdiv_(m, root, value=-float(group["lr"]) / (1 - beta1**t))


def check_size(lr: float | Tensor) -> None:
    """Raise ValueError for a learning rate that is more than one number."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError(f"Tensor lr must be 1-element, got one of shape {tuple(lr.shape)}")


@lru_cache(maxsize=8)
def powers(beta1: float, beta2: float) -> tuple[np.ndarray, np.ndarray]:
    """beta to the power of 0, 1, ... up to the age at which an update falls below float32's resolution.

    A row of that age moves by (beta1 / sqrt(beta2)) to the power of its age, times what it moved by at first.
    """
    decay = beta1 / math.sqrt(beta2) if beta2 else 1.0
    age = math.log(2.0**-24) / math.log(decay) if 0 < decay < 1 else (0 if decay == 0 else MAX_AGE)
    ages = np.arange(min(math.ceil(age), MAX_AGE) + 2, dtype=np.float64)
    return beta1**ages, beta2**ages


class SGD(FusedOptimizer):
    """torch.optim.SGD's update, with and without momentum; options that `only` has may be given as there."""

    only: ClassVar = {"dampening": 0, "weight_decay": 0, "nesterov": False, "maximize": False}

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        momentum: float = 0.0,
        *,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        maximize: bool = False,
    ):
        check_size(lr)
        if not lr >= 0 or not momentum >= 0:
            raise ValueError(f"SGD needs lr >= 0 and momentum >= 0, got lr={lr}, momentum={momentum}")
        options = {
            "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, {"lr": lr, "momentum": momentum}, options)

    def _moments(self, group: Group) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] else ()

    def _call(self, table: int, count: int, group: Group) -> None:
        update.sgd(table, count, float(group["lr"]), group["momentum"])

    def _update(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        if group["momentum"]:
            grad = state["momentum_buffer"].mul_(group["momentum"]).add_(grad)
        p.add_(grad, alpha=-float(group["lr"]))
