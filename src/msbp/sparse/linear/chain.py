"""Chain: a Sequential whose linear layers, with the activations and dropouts after them, are one node."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn

from ..torch_compat import MODULE_HOOKS, Converted, eager, eager_forward
from .autograd import StageRun
from .embedding import has_ordinary_rows
from .linear import SparseLinear
from .stage import ACTIVATIONS, IDENTITY, Stage

Step = Callable[[Tensor], Tensor]


class Chain(Converted, nn.Sequential):
    """A Sequential with the same modules, parameters and keys; `convert` and `fuse` make it in place.

    Modules with hooks, and modules of other kinds, are called as in any Sequential.
    """

    plain = nn.Sequential
    own_state = ("_embedded", "_found", "_hooks", "_modules_seen")

    @eager_forward
    def forward(self, x: Tensor) -> Tensor:
        for step in self._steps():
            x = step(x)
        return x

    @eager
    def look_up(self, embedding: nn.Embedding, tokens: Tensor) -> Tensor:
        """Return self(embedding(tokens).flatten(1)), with an ordinary embedding as part of the first node."""
        first, *others = self._steps()
        x = None
        if isinstance(first, StageRun) and has_ordinary_rows(embedding) and not any(hooks_of([embedding])):
            run = self.__dict__.get("_embedded")
            if run is None or run.stages is not first.stages or run.embedding is not embedding:
                run = self.__dict__["_embedded"] = StageRun(first.stages, embedding)
            x = run.look_up(tokens)
        if x is None:
            x = first(embedding(tokens).flatten(1))
        for step in others:
            x = step(x)
        return x

    def _steps(self) -> list[Step]:
        """Return runs of stages and other modules, grouped anew when modules or hooks have changed."""
        modules = list(self._modules.values())
        known = self.__dict__
        seen = [*modules, *map(type, modules)]  # a parametrised layer is the same object under another class
        if known.get("_modules_seen") != seen:
            known["_modules_seen"], known["_hooks"] = seen, hooks_of(modules)
            known["_found"] = group([(module, True) for module in modules if module is not None])
        if any(known["_hooks"]):
            return group([(module, not any(hooks_of([module]))) for module in modules if module is not None])
        return known["_found"]

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in self.own_state}


def look_up(embedding: nn.Embedding, net: nn.Module, tokens: Tensor) -> Tensor:
    """Return net(embedding(tokens).flatten(1)) for tokens (B, F), at less cost if net is a Chain.

    Products of rows that many examples share are formed once, and the gradient of the table is kept as
    the rows that were looked up; the numbers are the same but for rounding.
    """
    return net.look_up(embedding, tokens) if isinstance(net, Chain) else net(embedding(tokens).flatten(1))


def group(modules: Iterable[tuple[nn.Module, bool]]) -> list[Step]:
    """Group each linear layer with its activation and dropout as a stage, consecutive stages as one StageRun.

    modules are pairs of a module and whether it may be part of a stage; others are called as they are.
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
            found.append(StageRun(stages))
            stages = ()
        if waiting and not next_is(SparseLinear, nn.Linear):
            found.append(waiting.popleft()[0])
    return found


def hooks_of(modules: Iterable[nn.Module | None]) -> list[dict]:
    """Return the dictionaries of hooks of these modules, and of hooks on all modules."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    own = [getattr(module, kind) for module in modules if module is not None for kind in kinds]
    return [*own, *MODULE_HOOKS]
