"""SparseLinear: a linear layer whose backward pass propagates k of its n output gradients; Chain: a
Sequential whose linear layers, with the activations and dropouts after them, are one node.

Letters: B batch, i in_features, n out_features, k kept. Algorithms 1 and 2; the pass is in autograd.py.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from ..dropout import DropoutFused
from ..memory import BIAS_GRADIENTS, GradientMemory, SharedMemory, check_choices, memory_of
from ..sparsifiers import (
    HAVE_KERNELS,
    TOP_K,
    KeepsEntries,
    Sparsifier,
    largest_of_rows,
    sparsifier_of,
    top_k,
)
from ..torch_compat import MODULE_HOOKS, Converted, eager, eager_forward
from .autograd import StageRun
from .embedding import has_ordinary_rows
from .stage import ACTIVATIONS, IDENTITY, Stage

Step = Callable[[Tensor], Tensor]


class SparseLayer(KeepsEntries, Converted):
    """A linear layer that keeps k entries of ∂ℓ/∂h and carries gamma times the rest to the next step.

    gamma: 0 is SBP. memory: shared | per_slot | sequential. selection: per_example | unified.
    bias_gradient: sparse (Σ g) | full (Σ ∂ℓ/∂h). skip_zero_rows: rows of zeros, as of padding, neither get
    nor leave any shared memory. sparsifier, memory_control: see sparsifiers.py and controls.py; plain torch
    computes them. `enabled = False` makes the backward pass plain until it is set again, and so does
    `eval()`. The memory is not in the state_dict; `reset_parameters` clears it. k, enabled, memory and its
    gamma may be set at any time; for other choices, call msbp.sparse.revert(model) and convert anew.
    """

    name = ""
    run_class = StageRun
    own_state = (
        "name", "k", "sparsifier", "dense_bias", "unified", "enabled", "step", "memory",
        "skip_zero_rows", "_run",
    )  # fmt: skip
    out_features: int
    weight: Tensor
    memory: GradientMemory | None
    sparsifier: Sparsifier

    @classmethod
    def adopt(cls, linear: nn.Module, name: str, k: int, gamma: float, **choices: Any) -> Self:
        """Make a layer sparse in place: the same object, parameters, hooks and state_dict keys."""
        sparse = cast(Self, linear)
        sparse.__class__, sparse.name = cls, name
        sparse._sparsify(k, gamma, **choices)
        return sparse

    def _sparsify(
        self,
        k: int,
        gamma: float,
        memory: str = "shared",
        selection: str = "per_example",
        bias_gradient: str = "sparse",
        skip_zero_rows: bool = False,
        sparsifier: str = TOP_K,
        memory_control: str | None = None,
    ) -> None:
        check_choices(gamma, memory, selection, bias_gradient, sparsifier, memory_control)
        self.k, self.dense_bias = k, BIAS_GRADIENTS[bias_gradient]
        self.sparsifier = sparsifier_of(sparsifier, selection, gamma > 0, self.name)
        self.unified, self.enabled, self.step = selection == "unified", True, 0
        self.skip_zero_rows = skip_zero_rows
        carried = memory_of(memory, self.out_features, gamma, memory_control, self.name)
        self.memory = None if carried is None else carried.to(self.weight)

    @eager_forward
    def forward(self, x: Tensor) -> Tensor:
        """Return h = xWᵀ + b, (..., i) to (..., n)."""
        run = self.__dict__.get("_run")
        if run is None or run.stages[0].linear is not self:  # a replica shares the attributes of its layer
            run = self.__dict__["_run"] = self.run_class((Stage(cast(nn.Linear, self), sparse=self),))
        return run(x)

    @property
    def supports_kernel(self) -> bool:
        """Return whether kernels compute this layer's backward pass, as far as its options go."""
        memory: Any = self._modules.get("memory")  # nn.Module's own access takes a microsecond
        return self.__dict__.get("sparsifier") in HAVE_KERNELS and (memory is None or memory.supports_kernel)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_run"}  # it holds buffers

    def estimate(self, grad_h: Tensor, k: int) -> tuple[Tensor, Tensor | None] | None:
        """Return the gradient g (B, n) that is propagated in place of ∂ℓ/∂h, and the memory that follows it.

        None if g is not finite.
        """
        kept = min(k, grad_h.shape[1])

        def sparsifier(v: Tensor) -> Tensor:
            return largest_of_rows(v, kept) if self.sparsifier is top_k else self.sparsifier(v, kept)

        if self.memory is None or not len(grad_h):
            g, m = sparsifier(grad_h), None
        else:
            self.memory.on(grad_h, grad_h.shape[1])
            rows = grad_h.any(1) if self.skip_zero_rows and type(self.memory) is SharedMemory else None
            if rows is None or rows.all():
                g, m = self.memory.estimate(grad_h, sparsifier)
            elif not rows.any():
                g, m = grad_h, self.memory.m
            else:
                estimated, m = self.memory.estimate(grad_h[rows], sparsifier)
                g = torch.zeros_like(grad_h).masked_scatter_(rows.unsqueeze(1), estimated)
        # a NaN or Inf is among the largest, so looking at g is enough
        return (g, m) if torch.isfinite(g).all() else None

    def finish(self, m: Tensor | None) -> None:
        """Store the memory and count the step, after a backward pass without error."""
        memory: Any = self._modules.get("memory")  # nn.Module's own access takes a microsecond
        if memory is not None and (m is not None or "control" in memory._modules):
            memory.store(memory.m if m is None else m)  # without m a kernel has stored it
        self.__dict__["step"] += 1  # nn.Module's own way takes a microsecond

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, k={self.__dict__.get('k')}"


class SparseLinear(SparseLayer, nn.Linear):
    """nn.Linear with a sparse backward pass; see SparseLayer. `convert` makes it of a layer in place."""

    plain = nn.Linear
    memory: GradientMemory | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        k: int,
        gamma: float = 0.0,
        **choices: Any,
    ):
        super().__init__(in_features, out_features, bias)
        self._sparsify(k, gamma, **choices)

    def reset_parameters(self) -> None:
        """Initialize weight and bias as nn.Linear does; clear the memory and the count of steps."""
        super().reset_parameters()
        if "step" in self.__dict__:  # not while nn.Linear is being built
            self.step = 0
            if self.memory is not None:
                self.memory.clear()


class Chain(Converted, nn.Sequential):
    """A Sequential with the same modules, parameters and keys; `convert` and `fuse` make it in place.

    Modules with hooks or a `forward` of their own, and modules of other kinds, are called as in any
    Sequential.
    """

    plain = nn.Sequential
    own_state = ("_embedded", "_grouped")

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
        if isinstance(first, StageRun) and has_ordinary_rows(embedding) and is_bare(embedding):
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
        """Return runs of stages and other modules, grouped anew when the modules have changed."""
        modules: list[Any] = [module for module in self._modules.values() if module is not None]
        bare = [*map(is_bare, modules)]
        seen = [*modules, *map(type, modules), *bare]  # parametrized, a layer is the same under another class
        known, steps = self.__dict__.get("_grouped", (None, []))
        if known != seen:
            steps = group(zip(modules, bare, strict=True))
            self.__dict__["_grouped"] = seen, steps  # both at once, as another thread may read them
        return steps

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in self.own_state}


def look_up(embedding: nn.Embedding, net: nn.Module, tokens: Tensor) -> Tensor:
    """Return net(embedding(tokens).flatten(1)) for tokens (B, F), at less cost if net is a Chain.

    Products of rows that many examples share are formed once, and the gradient of the table is kept as
    the rows that were looked up; the numbers are the same but for rounding.
    """
    if isinstance(net, Chain) and len(net) and is_bare(net):
        return net.look_up(embedding, tokens)
    return net(embedding(tokens).flatten(1))


def group(modules: Iterable[tuple[nn.Module, bool]]) -> list[Step]:
    """Group each linear layer with its activation and dropout as a stage, consecutive stages as one StageRun.

    modules are pairs of a module and whether it may be part of a stage; others are called as they are. A
    sparse layer is in a run once, so that each of its calls finds the memory that the one before has left.
    """
    steps: list[Step] = []
    stages: tuple[Stage, ...] = ()
    waiting = deque(modules)

    def next_is(*types: type[nn.Module]) -> bool:
        return bool(waiting) and waiting[0][1] and type(waiting[0][0]) in types

    while waiting:
        if next_is(SparseLinear, nn.Linear):
            linear: Any = waiting.popleft()[0]
            sparse = linear if type(linear) is SparseLinear else None
            if sparse is not None and any(stage.sparse is sparse for stage in stages):
                steps.append(StageRun(stages))
                stages = ()
            activation = ACTIVATIONS[type(waiting.popleft()[0])] if next_is(*ACTIVATIONS) else IDENTITY
            dropout: Any = waiting.popleft()[0] if next_is(nn.Dropout, DropoutFused) else None
            stages = (*stages, Stage(linear, sparse, activation, dropout))
        if stages and not next_is(SparseLinear, nn.Linear):
            steps.append(StageRun(stages))
            stages = ()
        if waiting and not next_is(SparseLinear, nn.Linear):
            steps.append(waiting.popleft()[0])
    return steps


def is_bare(module: nn.Module) -> bool:
    """Return whether calling a module runs its class's forward alone: no hooks, and no forward of its own."""
    own: Any = module.__dict__
    return not (
        own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"]
        or own["_backward_pre_hooks"] or "forward" in own or any(MODULE_HOOKS)
    )  # fmt: skip
