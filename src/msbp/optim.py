"""Adam and SGD with torch's semantics; gradients that wait as factors are taken without forming them.

One kernel call updates all parameters of a group that are float32 on the CPU; others go through plain torch.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.optim.optimizer as torch_hooks
from torch import Tensor

from .sparse.factored import FactoredParameter, Factors
from .sparse.kernels import update
from .sparse.table import Table

__all__ = ["SGD", "Adam", "clip_grad_norm_", "clip_grad_value_"]

Group = dict[str, Any]
State = dict[str, Any]
GLOBAL_HOOKS = torch_hooks._global_optimizer_pre_hooks, torch_hooks._global_optimizer_post_hooks
MAX_AGE = 1 << 20  # steps


class _OneCall(torch.optim.Optimizer):
    """An optimizer that enters all gradients into a table and updates every parameter in one call."""

    _tables: dict[int, Table]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters that have a gradient; return what the closure gave, if there is one."""
        hooks = self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks, *GLOBAL_HOOKS
        if any(hooks) or torch.autograd._profiler_enabled():
            return self._watched_step(closure)
        return self._plain_step(closure)

    step.hooked = True  # type: ignore[attr-defined]  # torch would wrap it for hooks and profiler at every step

    def _plain_step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                self._update_group(group)
        return loss

    _watched_step = torch.optim.Optimizer.profile_hook_step(_plain_step)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all gradients, or set them to zero."""
        if not set_to_none:
            super().zero_grad(set_to_none=False)
            return
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state; the moments of a parameter may come from torch's own optimizer."""
        super().load_state_dict(state_dict)
        self.__dict__.pop("_tables", None)

    def add_param_group(self, param_group: Group) -> None:
        super().add_param_group(param_group)
        self.__dict__.pop("_tables", None)

    def settle(self) -> None:
        """Bring all state up to date, for another optimizer to go on with."""

    def _update_group(self, group: Group) -> None:
        table = self._table(group)
        table.clear()
        for at, p in enumerate(group["params"]):
            gradient = gradient_of(p) if type(p) is FactoredParameter else p.grad
            if gradient is None:
                continue
            state = self._begin(p, group, type(gradient) is Factors)
            if not table.enter(at, gradient, state):
                if p.grad.is_sparse:
                    raise RuntimeError(
                        f"{type(self).__name__} takes no sparse tensors as gradients; make them dense"
                    )
                self._update(p, p.grad, state, group)
        if table.entered:
            self._call(table, group)
            torch.autograd.graph.increment_version(table.entered)  # torch does not see what a kernel writes
            table.clear()

    def _table(self, group: Group) -> Table:
        tables = self.__dict__.setdefault("_tables", {})
        table, moments = tables.get(id(group)), self._moments(group)
        if table is None or len(table.parameters) != len(group["params"]) or table.moments != moments:
            table = tables[id(group)] = Table(group["params"], moments)
        return table

    def _begin(self, p: Tensor, group: Group, factored: bool) -> State:
        """The state of a parameter at the step that begins, with a dense or a factored gradient."""
        state = self.state[p]
        if not state:
            state.update({"step": 0} | {moment: torch.zeros_like(p) for moment in self._moments(group)})
        state["step"] = int(state["step"]) + 1
        return state

    @abstractmethod
    def _moments(self, group: Group) -> tuple[str, ...]:
        """Names of the state tensors."""

    @abstractmethod
    def _call(self, table: Table, group: Group) -> None:
        """Update what has been entered."""

    @abstractmethod
    def _update(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        """Update one parameter in plain torch."""


def gradient_of(p: Tensor) -> Tensor | Factors | None:
    """The gradient of a parameter: as factors if there is nothing else."""
    if type(p) is FactoredParameter and not p.has_dense_grad:
        return p.merged() or p.grad
    return p.grad


class Adam(_OneCall):
    """torch.optim.Adam's update (no weight decay, no amsgrad).

    A row of a weight that gets no gradient has moments that only decay, so they are left alone and `last_step` says
    how old they are. A state_dict holds them as they are, so that a resumed run goes on bit for bit; `settle` brings
    them up to date, for torch's own Adam to go on with.
    """

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
                settle(state, group.get("last_betas", group["betas"]), state["step"])

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

    def _begin(self, p: Tensor, group: Group, factored: bool) -> State:
        state = super()._begin(p, group, factored)
        if factored and "last_step" not in state:
            state["last_step"] = torch.full(p.shape[:1], state["step"] - 1, dtype=torch.int32)
        elif not factored and "last_step" in state:
            settle(state, group["betas"], state["step"] - 1)
        return state

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


class SGD(_OneCall):
    """torch.optim.SGD's update, with and without momentum."""

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


def clip_grad_norm_(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale all gradients so that their common 2-norm is at most max_norm; return the norm they had.

    As torch.nn.utils.clip_grad_norm_, but factored gradients are measured and scaled as factors.
    """
    found = [(p, gradient) for p in _listed(parameters) if (gradient := gradient_of(p)) is not None]
    found = [(p, p.grad if isinstance(g, Factors) and g.limit else g) for p, g in found]
    norms = [g.norm() if isinstance(g, Factors) else torch.linalg.vector_norm(g) for _, g in found]
    total = (
        torch.linalg.vector_norm(torch.stack([norm.to(norms[0]) for norm in norms]))
        if norms
        else torch.zeros(())
    )
    scale = torch.clamp(max_norm / (total + 1e-6), max=1.0)
    for _, gradient in found:
        (gradient.values if isinstance(gradient, Factors) else gradient).mul_(scale)
    return total


def clip_grad_value_(parameters: Iterable[Tensor], clip_value: float) -> None:
    """Hold every entry of every gradient within ±clip_value; factored gradients are clipped as they are formed."""
    if not clip_value > 0:
        raise ValueError(f"clip_value must be positive, got {clip_value}")
    for p in _listed(parameters):
        gradient = gradient_of(p)
        if isinstance(gradient, Factors):
            gradient.limit = min(gradient.limit or math.inf, float(clip_value))
        elif gradient is not None:
            gradient.clamp_(-clip_value, clip_value)


def _listed(parameters: Iterable[Tensor]) -> list[Tensor]:
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)
