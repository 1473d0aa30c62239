"""Chain: a Sequential whose linear layers, with the activations and dropouts behind them, are one node."""

from collections.abc import Callable, Iterable

import torch.nn.modules.module as torch_hooks
from torch import Tensor, nn

from .activations import ACTIVATIONS, IDENTITY
from .linear import SparseLinear
from .node import Stage, run

GLOBAL_HOOKS = (
    torch_hooks._global_forward_hooks,
    torch_hooks._global_forward_pre_hooks,
    torch_hooks._global_backward_hooks,
    torch_hooks._global_backward_pre_hooks,
)


class Chain(nn.Sequential):
    """A Sequential with the same modules, parameters and keys; `convert` and `fuse` make it in place.

    Modules with hooks, and modules of other kinds, are called as in any Sequential.
    """

    def forward(self, x: Tensor) -> Tensor:
        for step in steps(self._modules.values()):
            x = run(step, x) if isinstance(step, tuple) else step(x)
        return x


def steps(modules: Iterable[nn.Module | None]) -> list[tuple[Stage, ...] | Callable[[Tensor], Tensor]]:
    """Group modules into runs of stages, each a tuple, and single modules that stay what they are."""
    found: list[tuple[Stage, ...] | Callable[[Tensor], Tensor]] = []
    waiting = [module for module in modules if module is not None]
    while waiting:
        module = waiting.pop(0)
        if not _plain(module) or type(module) not in (SparseLinear, nn.Linear):
            found.append(module)
            continue
        activation, dropout = IDENTITY, None
        if waiting and type(waiting[0]) in ACTIVATIONS and _plain(waiting[0]):
            activation = ACTIVATIONS[type(waiting.pop(0))]
        if waiting and type(waiting[0]) is nn.Dropout and _plain(waiting[0]):
            dropout = waiting.pop(0)
        stage = Stage(module, type(module) is SparseLinear, activation, dropout)
        if found and isinstance(found[-1], tuple):
            found[-1] = (*found[-1], stage)
        else:
            found.append((stage,))
    return found


def _plain(module: nn.Module) -> bool:
    """Whether nobody has put a hook on the module."""
    forward = (module._forward_hooks, module._forward_pre_hooks)
    backward = (module._backward_hooks, module._backward_pre_hooks)
    return not any((*forward, *backward, *GLOBAL_HOOKS))
