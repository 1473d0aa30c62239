"""Adam and AdamW with torch's semantics, row-sparse gradients taken without forming dense ones."""

import math
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw

from ..sparse.buffers import address
from ..sparse.kernels import parallel
from . import kernels
from .fused import Constants, FusedOptimizer, Group, State, mismatch

MAX_AGE = 1 << 20  # steps


@dataclass(slots=True)
class Seen:
    """The tensors of a parameter's state at the last step, to notice a change from outside.

    References are weak, as another tensor may come to lie at a freed one's address.
    """

    last_step: weakref.ref[Tensor]
    first: weakref.ref[Tensor]
    second: weakref.ref[Tensor]
    moments: tuple[int, int, int, int]  # address and version of both
    step: int
    betas: tuple[float, float]


class FusedAdam(FusedOptimizer):
    """Adam's update. The kernel has decoupled weight decay; other options take the dense path.

    A row of a weight that gets no gradient has moments that only decay, so they are left alone and
    `last_step` says how old they are. A state_dict holds them as they are, so that a resumed run goes on
    bit for bit; `settle` brings them up to date, for torch's own Adam to go on with.
    """

    decoupled = False  # whether weight decay is, in all groups
    of_rows = ("last_step",)

    @property
    def _ages(self) -> dict[int, Seen]:
        """Return by the address of its row ages the state that was seen with them."""
        return self.__dict__.setdefault("_known_ages", {})

    def __setstate__(self, state: State) -> None:
        super().__setstate__(state)
        self._ages.clear()

    def settle(self) -> None:
        """Let all moments decay up to the present step."""
        for group in self.param_groups:
            self._settle_group(group)

    def _settle_group(self, group: Group) -> None:
        for p in group["params"]:
            state = self.state.get(p, {})
            if "last_step" in state:
                self._settle_state(p, state, group.get("last_betas", betas_of(group)))

    def _update_group(self, group: Group) -> None:
        if not self._takes_rows(group):
            self._settle_group(group)  # rows that wait have decayed with the betas so far
        super()._update_group(group)
        group["last_betas"] = betas_of(group)

    def _takes_rows(self, group: Group) -> bool:
        """Return False while a schedule changes the betas: each step would have to settle all rows."""
        betas = betas_of(group)
        return group.get("last_betas", betas) == betas

    def load_state_dict(self, state_dict: State) -> None:
        super().load_state_dict(state_dict)
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            for p, index in zip(group["params"], saved["params"], strict=True):
                last_step = state_dict["state"].get(index, {}).get("last_step")
                if last_step is not None:  # torch casts a state to its parameter's type
                    self.state[p]["last_step"] = last_step.to("cpu", torch.int32, copy=True)

    def _moments(self, group: Group) -> tuple[str, ...]:
        return "exp_avg", "exp_avg_sq"

    def _is_decoupled(self, group: Group) -> bool:
        return self.decoupled or bool(group.get("decoupled_weight_decay"))

    def _has_kernel(self, group: Group) -> bool:
        coupled = group["weight_decay"] and not self._is_decoupled(group)
        return not (coupled or group["amsgrad"] or group["maximize"])

    def _last_step(self, state: State, n: int, group: Group) -> Tensor:
        last_step = state.get("last_step")
        if last_step is None:
            last_step = state["last_step"] = torch.full((n,), state["step"], dtype=torch.int32, device="cpu")
        if last_step.shape != (n,):
            raise mismatch("state 'last_step'", last_step.shape, torch.Size((n,)))
        if last_step.dtype is not torch.int32 or not last_step.is_cpu:
            last_step = state["last_step"] = last_step.to("cpu", torch.int32)  # as by a cast of all state
        address(last_step, (n,), "state 'last_step'", torch.int32)
        self._check_row_state(state, group)
        return last_step

    def _check_row_state(self, state: State, group: Group) -> None:
        self._check_moments(state, betas_of(group))

    def _check_moments(self, state: State, betas: tuple[float, float]) -> None:
        """Raise RuntimeError if moments, step or betas were changed while some rows have yet to decay.

        betas: with which the moments of these rows decay up to the present step.
        """
        last_step, m, v, step = state["last_step"], state["exp_avg"], state["exp_avg_sq"], state["step"]
        pointer, now = last_step.data_ptr(), (m.data_ptr(), version(m), v.data_ptr(), version(v))
        known = self._ages.get(pointer)
        if known is None or known.last_step() is not last_step:
            references = weakref.ref(last_step), weakref.ref(m), weakref.ref(v)
            self._ages[pointer] = Seen(*references, now, step, betas)
        elif known.betas != betas:
            raise RuntimeError(
                f"a parameter is in a group with betas {betas}, but moments of some of its rows have yet to "
                f"decay to the present step with betas {known.betas}: call optimizer.settle() before you "
                "move a parameter to another group or replace its group"
            )
        elif (
            known.first() is m and known.second() is v and known.moments == now
            and known.step <= step <= known.step + 1
        ):  # fmt: skip
            known.step = step
        else:
            raise RuntimeError(
                "state 'exp_avg', 'exp_avg_sq' or 'step' was changed while moments of some rows have yet to "
                "decay to the present step (state 'last_step'): call optimizer.settle() before you change "
                "the state"
            )

    def _to_dense(self, p: Tensor, state: State, group: Group) -> None:
        if "last_step" in state:
            self._settle_state(p, state, betas_of(group))

    def _settle_state(self, p: Tensor, state: State, betas: tuple[float, float]) -> None:
        """Let the moments of a parameter's rows without gradient decay up to the present step."""
        last_step = state["last_step"]
        for name, shape in (("last_step", p.shape[:1]), ("exp_avg", p.shape), ("exp_avg_sq", p.shape)):
            if state[name].shape != shape:
                raise mismatch(f"state {name!r}", state[name].shape, shape)
        self._check_moments(state, betas)
        age = state["step"] - last_step.double()
        for name, beta in zip(("exp_avg", "exp_avg_sq"), betas, strict=True):
            moment = state[name]
            moment.mul_((beta**age).to(moment).view(-1, *[1] * (moment.dim() - 1)))
        self._ages.pop(state.pop("last_step").data_ptr(), None)

    def _constants(self, group: Group) -> Constants:
        (beta1, beta2), lr = betas_of(group), float(group["lr"])
        decay = lr * float(group["weight_decay"])
        return lr, decay, beta1, beta2, float(group["eps"]), *powers(beta1, beta2)

    def _call(self, table: int, count: int, constants: Constants) -> None:
        kernels.adam(table, count, *constants, parallel.threads())

    def _update(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        amsgrad, (beta1, beta2) = bool(group["amsgrad"]), betas_of(group)
        for name in ("exp_avg", "exp_avg_sq", *["max_exp_avg_sq"] * amsgrad):
            if state.get(name) is None:
                state[name] = torch.zeros_like(p)
        largest = [state["max_exp_avg_sq"]] if amsgrad else []
        step = torch.tensor(float(state["step"]), dtype=torch.float32, device="cpu")
        (adamw if self._is_decoupled(group) else adam)(
            [p], [grad], [state["exp_avg"]], [state["exp_avg_sq"]], largest,
            [step], foreach=False, fused=False, has_complex=torch.is_complex(p),
            amsgrad=amsgrad, beta1=beta1, beta2=beta2, lr=float(group["lr"]),
            weight_decay=float(group["weight_decay"]), eps=group["eps"], maximize=group["maximize"],
        )  # fmt: skip


class Adam(FusedAdam, torch.optim.Adam):
    """torch.optim.Adam. Without coupled weight decay, amsgrad and maximize, one kernel updates a group."""

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ):
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize,
            capturable=capturable, differentiable=differentiable, fused=fused,
        )  # fmt: skip


class AdamW(FusedAdam, torch.optim.AdamW):
    """torch.optim.AdamW. Without amsgrad and maximize, one kernel updates a group.

    Weight decay acts in every step on all rows of a parameter that has a gradient, as in torch.
    """

    decoupled = True

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ):
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, foreach=foreach,
            capturable=capturable, differentiable=differentiable, fused=fused,
        )  # fmt: skip


def version(tensor: Tensor) -> int:
    """Return how often torch has written to a tensor; of an inference tensor it does not count."""
    return 0 if tensor.is_inference() else tensor._version


def betas_of(group: Group) -> tuple[float, float]:
    """Return a group's betas as numbers."""
    beta1, beta2 = group["betas"]
    return float(beta1), float(beta2)


@lru_cache(maxsize=8)
def powers(beta1: float, beta2: float) -> tuple[np.ndarray, np.ndarray]:
    """beta to the power of 0, 1, ... up to the age at which an update falls below float32's resolution.

    A row of that age moves by (beta1 / sqrt(beta2)) to the power of its age, times what it moved by at first.
    """
    decay = beta1 / math.sqrt(beta2) if beta2 else 1.0
    age = math.log(2.0**-24) / math.log(decay) if 0 < decay < 1 else (0 if decay == 0 else MAX_AGE)
    ages = np.arange(min(math.ceil(age), MAX_AGE) + 2, dtype=np.float64)
    return beta1**ages, beta2**ages
