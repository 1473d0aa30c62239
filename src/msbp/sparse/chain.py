"""Chain: a Sequential whose linear layers, with the activations and dropouts behind them, are one node."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.modules.module as torch_hooks
from torch import Tensor, nn

from .activations import ACTIVATIONS, IDENTITY
from .linear import SparseLinear
from .node import Run
from .stage import Stage

Step = Callable[[Tensor], Tensor]
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
        for step in self._steps():
            x = step(x)
        return x

    def _steps(self) -> list[Step]:
        """Runs of stages, and modules that stay what they are; found anew when a module or a hook has come or gone."""
        modules = [module for module in self._modules.values() if module is not None]
        plain = [_plain(module) for module in modules]
        if self.__dict__.get("_seen") != (modules, plain):
            self.__dict__["_found"] = group(modules, plain)
            self.__dict__["_seen"] = modules, plain
        return self._found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_found", "_seen")}


def group(modules: Sequence[nn.Module], plain: Sequence[bool]) -> list[Step]:
    """Each linear layer with what follows it as a stage, stages in a row as one Run; only plain modules are taken."""
    found: list[Step] = []
    stages: tuple[Stage, ...] = ()
    waiting = deque(zip(modules, plain, strict=True))

    def next_is(*types: type[nn.Module]) -> bool:
        return bool(waiting) and waiting[0][1] and type(waiting[0][0]) in types

    while waiting:
        if next_is(SparseLinear, nn.Linear):
            linear: Any = waiting.popleft()[0]
            sparse = linear if type(linear) is SparseLinear else None
            activation = ACTIVATIONS[type(waiting.popleft()[0])] if next_is(*ACTIVATIONS) else IDENTITY
            dropout: Any = waiting.popleft()[0] if next_is(nn.Dropout) else None
            stages = (*stages, Stage(linear, sparse, activation, dropout))
        if stages and not next_is(SparseLinear, nn.Linear):
            found.append(Run(stages))
            stages = ()
        if waiting and not next_is(SparseLinear, nn.Linear):
            found.append(waiting.popleft()[0])
    return found


def _plain(module: nn.Module) -> bool:
    """Whether nobody has put a hook on the module."""
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
        return False
    return not any(GLOBAL_HOOKS)
