"""SGD with torch's semantics, row-sparse gradients taken without forming dense ones."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from ..sparse.kernels import parallel
from . import kernels
from .fused import Constants, FusedOptimizer, Group, State


class SGD(FusedOptimizer, torch.optim.SGD):
    """torch.optim.SGD. Without options besides momentum, one kernel updates a group."""

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ):
        super().__init__(
            params, lr, momentum, dampening, weight_decay, nesterov, maximize=maximize, foreach=foreach,
            differentiable=differentiable, fused=fused,
        )  # fmt: skip

    def _moments(self, group: Group) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] else ()

    def _has_kernel(self, group: Group) -> bool:
        return not any(group[name] for name in ("dampening", "weight_decay", "nesterov", "maximize"))

    def _constants(self, group: Group) -> Constants:
        return float(group["lr"]), float(group["momentum"])

    def _call(self, table: int, count: int, constants: Constants) -> None:
        kernels.sgd(table, count, *constants, parallel.threads())

    def _update(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        buffers = [state.get("momentum_buffer")]
        sgd(
            [p], [grad], buffers, foreach=False, fused=False, has_sparse_grad=False, lr=float(group["lr"]),
            momentum=float(group["momentum"]), dampening=float(group["dampening"]),
            weight_decay=float(group["weight_decay"]), nesterov=group["nesterov"],
            maximize=group["maximize"],
        )  # fmt: skip
        if group["momentum"]:
            state["momentum_buffer"] = buffers[0]
