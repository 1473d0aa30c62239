"""convert and fuse: change the classes of layers in place: objects, parameters and keys stay."""

import re
from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.nn.utils import parametrize

from .conv.base import SparseConvolution
from .conv.conv import SparseConv1d, SparseConv2d
from .conv.max_over_time import FusedMaxOverTime, MaxOverTime, SparseMaxOverTime
from .linear.chain import Chain
from .linear.embedding import RowEmbedding, keeps_rows
from .linear.linear import SparseLinear
from .lstm.lstm import FusedLSTM, SparseLSTM, adoptable, check_lstm_choices
from .memory import GradientMemory, check_choices, is_number
from .sparsifiers import TOP_K, entries_kept
from .torch_compat import Converted

SPARSE_OF: dict[type[nn.Module], type[SparseLinear] | type[SparseConvolution] | type[SparseLSTM]] = {
    nn.Linear: SparseLinear,
    nn.LSTM: SparseLSTM,
    nn.Conv1d: SparseConv1d,
    nn.Conv2d: SparseConv2d,
    MaxOverTime: SparseMaxOverTime,
}
KINDS = ", ".join(kind.__name__ for kind in SPARSE_OF)


def convert(
    model: nn.Module,
    r: float = 0.04,
    gamma: float = 0.8,
    *,
    memory: str = "shared",
    selection: str = "per_example",
    bias: str = "sparse",
    gates: str = "per_gate",
    carry: str = "time",
    sparsifier: str = TOP_K,
    memory_control: str | None = None,
    layers: Iterable[str] | None = None,
) -> dict[str, int]:
    """Make the hidden layers of a model sparse, in place; return k for each of their dotted names.

    Hidden are `layers`, else `model.hidden_layers` (groups of dotted names), else every nn.LSTM and every
    nn.Linear but the last; SPARSE_OF lists the kinds. An nn.Sequential that holds a linear one becomes a
    Chain. gamma = 0 is SBP; gates and carry are for LSTMs, see SparseLSTM; sparsifier (see sparsifiers.py)
    and memory_control (see controls.py) are for comparison, and slow. ValueError if a setting is out of range
    or applies to no layer, a name is no such layer, no layer is found, or the model was converted before;
    the model is unchanged then.
    """
    if not (is_number(r) and 0 < r <= 1):
        raise ValueError(
            f"sparse ratio r must be a number in (0, 1], got {r!r}; without it backpropagation is plain"
        )
    check_choices(gamma, memory, selection, bias, sparsifier, memory_control)
    check_lstm_choices(memory, gates, carry)
    if isinstance(layers, str):
        raise ValueError(f"layers must be a list of dotted names, got a string: write layers=[{layers!r}]")
    _refuse_second_time(model)
    names = _hidden(model) if layers is None else list(layers)
    found = {name: _layer(model, name) for name in names}
    if not found:
        can = [name for name, module in model.named_modules() if type(module) in SPARSE_OF]
        hint = f"layers=[] may name {can}" if can else f"it has nothing of {KINDS}"
        raise ValueError(f"{type(model).__name__} has no hidden layer to make sparse; {hint}")
    _refuse_unused({type(layer) for layer in found.values()}, selection, gates, carry)
    kept = {name: entries_kept(r, _width(layer)) for name, layer in found.items()}
    for name, layer in found.items():
        kind: Any = SPARSE_OF[type(layer)]
        choices: dict[str, Any] = {"memory": memory, "selection": selection, "bias_gradient": bias}
        choices |= {"sparsifier": sparsifier, "memory_control": memory_control}
        if kind is SparseLSTM:
            choices |= {"gates": gates, "carry": carry}
        kind.adopt(layer, name, kept[name], gamma, **choices)
    _chain(model, lambda sequential: any(type(module) is SparseLinear for module in sequential))
    _fuse_others(model)
    return kept


def fuse(model: nn.Module) -> list[str]:
    """Convert a model in place to the same fast path with a dense backward pass; return its layers' names."""
    _refuse_second_time(model)
    chained = _chain(model, lambda sequential: any(type(module) is nn.Linear for module in sequential))
    inside = {module for sequential in chained for module in sequential if type(module) is nn.Linear}
    recurrent = {FusedLSTM.adopt(module) for module in model.modules() if adoptable(module)}
    gained = inside | recurrent | _fuse_others(model)
    return [name for name, module in model.named_modules() if module in gained]


def _fuse_others(model: nn.Module) -> set[nn.Module]:
    """Convert embeddings and dense maxima over time to faster backward passes; return the latter."""
    for module in model.modules():
        if keeps_rows(module):
            RowEmbedding.adopt(module)
    pooling: set[nn.Module] = {module for module in model.modules() if type(module) is MaxOverTime}
    for module in pooling:
        module.__class__ = FusedMaxOverTime
    return pooling


def revert(model: nn.Module) -> list[str]:
    """Give a model its plain torch layers back, in place; return the names of layers that were converted.

    Parameters, hooks and keys stay, memories are dropped. For tools that go by the class of a layer, such as
    export, quantization and torch.jit.script, and before converting with other settings.
    """
    converted = [(name, module) for name, module in model.named_modules() if isinstance(module, Converted)]
    for _, module in converted:
        module.revert()
    return [name for name, _ in converted]


def memories(model: nn.Module) -> dict[str, GradientMemory]:
    """Return the gradient memories by the dotted name of their layer, to save and load them in checkpoints.

    An LSTM has one for each of its layers and directions: rnn.l0, rnn.l0_reverse, rnn.l1, ...
    """
    return {
        re.sub(r"(^|\.)memory(\.l\d+(_reverse)?)?$", r"\2", name).removeprefix("."): module
        for name, module in model.named_modules()
        if isinstance(module, GradientMemory)
    }


def _hidden(model: nn.Module) -> list[str]:
    groups = getattr(model, "hidden_layers", None)
    if groups is not None:
        return [name for group in groups for name in group]
    kinds = {name: type(module) for name, module in model.named_modules()}
    linear = [name for name, kind in kinds.items() if kind is nn.Linear]
    return [name for name, kind in kinds.items() if kind is nn.LSTM or name in linear[:-1]]


def _width(layer: nn.Module) -> int:
    """Return the width that r is a part of: a convolution's channels at one window, the units of one gate."""
    names = ("out_features", "hidden_size", "out_channels")
    return next(getattr(layer, name) for name in names if hasattr(layer, name))


def _layer(model: nn.Module, name: str) -> nn.Module:
    try:
        layer = model.get_submodule(name)
    except AttributeError:
        known = [other for other, module in model.named_modules() if type(module) in SPARSE_OF]
        raise ValueError(f"{type(model).__name__} has no layer {name!r}; it can convert {known}") from None
    if isinstance(layer, nn.LSTM) and layer.proj_size:
        raise ValueError(f"LSTM {name!r} has a projection; only one with proj_size=0 can be sparse")
    if type(layer) not in SPARSE_OF or parametrize.is_parametrized(layer):
        raise ValueError(f"layer {name!r} is a {type(layer).__name__}; only {KINDS} can be sparse")
    return layer


def _refuse_second_time(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, (SparseLinear, SparseConvolution, FusedLSTM, FusedMaxOverTime, Chain)):
            raise ValueError(
                f"{name or 'the model'} is a {type(module).__name__} already: convert or fuse a model once, "
                "or call msbp.sparse.revert(model) before converting with other settings"
            )


def _refuse_unused(kinds: set[type[nn.Module]], selection: str, gates: str, carry: str) -> None:
    if nn.LSTM not in kinds and (gates, carry) != ("per_gate", "time"):
        raise ValueError(
            f"gates={gates} and carry={carry} are for LSTMs, and no hidden layer is one: leave them out"
        )
    if kinds <= {nn.Linear, nn.LSTM} and selection in ("per_position", "pooled"):
        raise ValueError(
            f"selection={selection} is for convolutions, and no hidden layer is one: use per_example"
        )


def _chain(model: nn.Module, holds) -> list[Chain]:
    """Make chains of the exact nn.Sequential modules for which `holds` is true."""
    found: list[Any] = [m for m in model.modules() if type(m) is nn.Sequential and holds(m)]
    for sequential in found:
        sequential.__class__ = Chain
    return found
