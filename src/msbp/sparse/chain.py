"""Chain: a Sequential whose linear layers, with the activations and dropouts behind them, are one node."""

from collections import deque
from collections.abc import Callable, Iterable
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
        modules = list(self._modules.values())
        known = self.__dict__
        if known.get("_modules_seen") != modules:
            known["_modules_seen"], known["_hooks"] = modules, hooks_of(modules)
            known["_found"] = group([(module, True) for module in modules if module is not None])
        if any(known["_hooks"]):
            return group([(module, not any(hooks_of([module]))) for module in modules if module is not None])
        return known["_found"]

    def __getstate__(self) -> dict[str, Any]:
        seen = ("_found", "_hooks", "_modules_seen")
        return {name: value for name, value in self.__dict__.items() if name not in seen}


def group(modules: Iterable[tuple[nn.Module, bool]]) -> list[Step]:
    """Each linear layer with what follows it as a stage, stages in a row as one Run.

    With each module it is said whether it may be taken; others are called as they are.
    """
    found: list[Step] = []
    stages: tuple[Stage, ...] = ()
    waiting = deque(modules)

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


def hooks_of(modules: Iterable[nn.Module | None]) -> list[dict]:
    """Where hooks on these modules, and on all modules, would be."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    own = [getattr(module, kind) for module in modules if module is not None for kind in kinds]
    return [*own, *GLOBAL_HOOKS]
