"""Adam and SGD with torch's semantics."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn


class Adam(torch.optim.Optimizer):
    """torch.optim.Adam's update (no weight decay, no amsgrad)."""

    def __init__(
        self, params: Iterable, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ):
        if not lr >= 0 or not eps >= 0 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(
                f"Adam needs lr >= 0, eps >= 0 and betas in [0, 1), got lr={lr}, betas={betas}, eps={eps}"
            )
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, p.grad, group["lr"], *group["betas"], group["eps"])
        return loss

    def _update(self, p: Tensor, grad: Tensor, lr: float, beta1: float, beta2: float, eps: float) -> None:
        state = self.state[p]
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
        state["step"] += 1
        t = state["step"]
        m = state["exp_avg"].lerp_(grad, 1 - beta1)
        v = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        p.addcdiv_(m, (v.sqrt() / (1 - beta2**t) ** 0.5).add_(eps), value=-lr / (1 - beta1**t))


class SGD(torch.optim.SGD):
    """torch.optim.SGD, with and without momentum."""

    def __init__(self, params: Iterable, lr: float, momentum: float = 0.0):
        super().__init__(params, lr=lr, momentum=momentum)


def clip_grad_norm_(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale all gradients so that their common 2-norm is at most max_norm; return the norm before."""
    return nn.utils.clip_grad_norm_(parameters, max_norm)


def clip_grad_value_(parameters: Iterable[Tensor], clip_value: float) -> None:
    """Clamp every gradient entry to [-clip_value, clip_value]."""
    nn.utils.clip_grad_value_(parameters, clip_value)
