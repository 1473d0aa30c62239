"""convert and fuse: change the classes of layers in place: objects, parameters and keys stay."""

import logging
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import nn
from torch.nn.utils import parametrize

from . import layers as choice
from . import trial
from .conv.base import SparseConvolution
from .conv.conv import SparseConv1d, SparseConv2d
from .conv.max_over_time import FusedMaxOverTime, MaxOverTime, SparseMaxOverTime
from .dropout import DropoutFused
from .layers import Layers, Pattern, width
from .linear.embedding import RowEmbedding, keeps_rows
from .linear.linear import Chain, SparseLayer, SparseLinear
from .linear.transposed import conv1d, sparse_conv1d
from .lstm.lstm import FusedLSTM, SparseLSTM, adoptable, check_lstm_choices
from .memory import GradientMemory, check_choices
from .sparsifiers import TOP_K, entries_kept
from .status import REMARKS
from .torch_compat import Converted

log = logging.getLogger(__name__)
SPARSE_OF: dict[type[nn.Module], type[SparseLayer] | type[SparseConvolution] | type[SparseLSTM]] = {
    nn.Linear: SparseLinear,
    nn.LSTM: SparseLSTM,
    nn.Conv1d: SparseConv1d,
    nn.Conv2d: SparseConv2d,
    MaxOverTime: SparseMaxOverTime,
}
KINDS = ", ".join(kind.__name__ for kind in SPARSE_OF)


class Kept(dict[str, int]):
    """k by the dotted name of each layer that convert made sparse; `skipped` says why not of the others."""

    def __init__(self, kept: Mapping[str, int], skipped: Mapping[str, str]):
        super().__init__(kept)
        self.skipped = dict(skipped)


def convert(
    model: nn.Module,
    r: float | Mapping[Pattern, float] = 0.04,
    gamma: float = 0.8,
    *,
    memory: str = "shared",
    selection: str = "per_example",
    bias: str = "sparse",
    gates: str = "per_gate",
    carry: str = "time",
    sparsifier: str = TOP_K,
    memory_control: str | None = None,
    layers: Layers | None = None,
    exclude: Layers | None = None,
    min_width: int | None = None,
    sample: Any = None,
    skip_zero_rows: bool = True,
    save_memory: bool = False,
    dropout: bool = True,
) -> Kept:
    """Make the hidden layers of a model sparse, in place; return k for each of their dotted names.

    Args:
        r: share of a layer's outputs whose gradient is propagated, rounded to whole entries. Or a mapping
            from patterns to shares: the first pattern that fits a layer counts, and only layers that one fits
            are converted.
        gamma: share of the others that the memory keeps; 0 is SBP, without memory.
        layers: dotted names, globs, compiled regular expressions, or a function of name and module. Else the
            layers that `model.msbp_hidden_layers` names (groups of dotted names), else every nn.LSTM, and
            every linear layer that is neither an output layer nor an adapter. transformers' Conv1D counts as
            linear.
        exclude: patterns of layers that stay as they are.
        min_width: fewest inputs and outputs of a layer that is not named by `layers`, by `r` or by the model;
            128 by default, 0 with a sample.
        sample: arguments of the model, as a tensor, tuple or mapping, or a function that calls it. Layers
            that are not faster with them stay as they are, and so does the last linear layer that runs.
        skip_zero_rows: leave rows of linear layers that have no gradient, as of padding, out of the shared
            memory.
        save_memory: have the state_dict hold the memories; load it into plain models with strict=False.
        dropout: replace nn.Dropout by a faster one, whose masks differ from torch's at the same seed. In
            chains and LSTMs it is always replaced.
        memory: shared | per_slot | sequential. selection: per_example | unified, and of convolutions also
            per_position | pooled. bias: sparse (Σ g) | full (Σ ∂ℓ/∂h).
        gates (LSTM): per_gate | joint. carry (LSTM): time | batch.
        sparsifier, memory_control: see sparsifiers.py and controls.py; for comparison, and slow.

    An nn.Sequential that holds a sparse linear layer becomes a Chain. ValueError if a setting is out of range
    or applies to no layer, a pattern fits no layer, or no layer is hidden; the model is unchanged then. The
    returned mapping has `skipped`: why each other layer stays as it is.

    Example:
        >>> hidden = nn.Linear(784, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU()
        >>> convert(nn.Sequential(*hidden, nn.Linear(500, 10)), r=0.04, gamma=0.8)
        {'0': 20, '2': 20}
    """
    r, layers, exclude = (choice.settled(model, argument) for argument in (r, layers, exclude))
    ratios = choice.ratios_of(r)
    choice.check_min_width(min_width)
    flags = {"skip_zero_rows": skip_zero_rows, "save_memory": save_memory, "dropout": dropout}
    for argument, flag in flags.items():
        if not isinstance(flag, bool):
            raise ValueError(f"{argument} must be True or False, got {flag!r}")
    check_choices(gamma, memory, selection, bias, sparsifier, memory_control)
    check_lstm_choices(memory, gates, carry)
    _refuse_fused(model)
    kinds = _sparse_kinds()
    candidates = choice.convertible(model, kinds)
    for argument, given in (("r", list(ratios)), ("layers", layers), ("exclude", exclude)):
        if given is not None and not (argument == "r" and not isinstance(r, Mapping)):
            choice.check_names(argument, given, model, candidates)
    calls: dict[str, trial.Call] = (
        {} if sample is None else trial.calls(model, sample, _linear_and(model, candidates))
    )
    names, skipped = choice.chosen(model, candidates, r, layers, exclude, min_width, list(calls))
    chosen = {name: candidates[name] if name in candidates else _layer(model, name, kinds) for name in names}
    if not chosen:
        raise ValueError(_nothing_left(model, candidates, skipped))
    _refuse_unused({type(layer) for layer in chosen.values()}, selection, gates, carry)
    kept = {name: entries_kept(choice.ratio(ratios, name), width(layer)) for name, layer in chosen.items()}

    def adopt(layer: nn.Module, name: str) -> None:
        kind: Any = kinds[type(layer)]
        choices: dict[str, Any] = {"memory": memory, "selection": selection, "bias_gradient": bias}
        choices |= {"sparsifier": sparsifier, "memory_control": memory_control}
        if kind is SparseLSTM:
            choices |= {"gates": gates, "carry": carry}
        if issubclass(kind, SparseLayer):
            choices["skip_zero_rows"] = skip_zero_rows
        kind.adopt(layer, name, kept[name], gamma, **choices)

    for layer in chosen.values():
        REMARKS.pop(layer, None)
    if sample is not None:
        remarks = _slower(chosen, calls, adopt)
        skipped |= remarks
        chosen = {name: layer for name, layer in chosen.items() if name not in remarks}
        if not chosen:
            raise ValueError(_nothing_left(model, candidates, skipped))
    for name, layer in chosen.items():
        adopt(layer, name)
        for module in layer.modules():
            if save_memory and isinstance(module, GradientMemory):
                module.in_state_dict = True
    for name, reason in skipped.items():
        REMARKS[model.get_submodule(name)] = reason
        log.info("%s stays as it is: %s", name, reason)
    _chain(model, lambda sequential: any(type(module) is SparseLinear for module in sequential))
    _fuse_others(model, dropout)
    return Kept({name: kept[name] for name in chosen}, skipped)


def fuse(model: nn.Module, dropout: bool = True) -> list[str]:
    """Convert a model in place to the same fast path with a dense backward pass; return its layers' names.

    dropout: see convert.
    """
    _refuse_converted(model)
    chained = _chain(model, lambda sequential: any(type(module) is nn.Linear for module in sequential))
    inside = {module for sequential in chained for module in sequential if type(module) is nn.Linear}
    recurrent = {FusedLSTM.adopt(module) for module in model.modules() if adoptable(module)}
    gained = inside | recurrent | _fuse_others(model, dropout)
    return [name for name, module in model.named_modules() if module in gained]


def _fuse_others(model: nn.Module, dropout: bool) -> set[nn.Module]:
    """Convert embeddings, dense maxima over time and, if asked to, dropout; return the maxima."""
    for module in model.modules():
        if keeps_rows(module):
            RowEmbedding.adopt(module)
        elif dropout and type(module) is nn.Dropout:
            DropoutFused.adopt(module)
    pooling: set[nn.Module] = {module for module in model.modules() if type(module) is MaxOverTime}
    for module in pooling:
        module.__class__ = FusedMaxOverTime
    return pooling


def revert(model: nn.Module) -> list[str]:
    """Give a model its plain torch layers back, in place; return the names of layers that were converted.

    Parameters, hooks and keys stay, memories are dropped. For tools that go by the class of a layer, such as
    export, quantization and torch.jit.script, and before converting with other settings. ValueError if a
    layer was parametrized since, by a class of torch's that derives from ours; the model is unchanged then.
    """
    converted = [(name, module) for name, module in model.named_modules() if isinstance(module, Converted)]
    for name, layer in converted:
        if parametrize.is_parametrized(layer):
            raise ValueError(
                f"{name or 'the model'} is parametrized: before msbp.sparse.revert(model), call "
                "torch.nn.utils.parametrize.remove_parametrizations"
            )
    for module in model.modules():
        REMARKS.pop(module, None)
    for _, layer in converted:
        layer.revert()
    return [name for name, _ in converted]


def memories(model: nn.Module) -> dict[str, GradientMemory]:
    """Return the gradient memories by the dotted name of their layer.

    An LSTM has one for each of its layers and directions: rnn.l0, rnn.l0_reverse, rnn.l1, ... In checkpoints,
    save `{name: memory.state_dict() for name, memory in memories(model).items()}`, and load each with
    `memory.load_state_dict`. `memory.m` is the tensor, of one row or a row for each slot.
    """
    return {
        re.sub(r"(^|\.)memory(\.l\d+(_reverse)?)?$", r"\2", name).removeprefix("."): module
        for name, module in model.named_modules()
        if isinstance(module, GradientMemory)
    }


def _sparse_kinds() -> dict[type[nn.Module], Any]:
    """Return the sparse class of each class that can be converted."""
    transposed: Any = conv1d()
    # convert makes dense maxima over time of its own, which a second conversion may take
    known: dict[type[nn.Module], Any] = SPARSE_OF | {FusedMaxOverTime: SparseMaxOverTime}
    return known if transposed is None else known | {transposed: sparse_conv1d(transposed)}


def _slower(
    chosen: Mapping[str, nn.Module], calls: Mapping[str, trial.Call], adopt: Callable[..., None]
) -> dict[str, str]:
    """Return the layers that are not faster on the sample, and why; remark the gain of the others."""
    slower = {}
    for name, layer in chosen.items():
        if name not in calls:
            slower[name] = "not run by the sample"
            continue
        gain = trial.gain(layer, calls[name], partial(adopt, name=name))
        if gain > 1:
            REMARKS[layer] = f"{gain:.2f}× on the sample"
        else:
            slower[name] = f"not faster: {gain:.2f}× on the sample"
    return slower


def _linear_and(model: nn.Module, candidates: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    """Return the candidates and all other linear layers, one of which may be the last that runs."""
    linear = {name: module for name, module in model.named_modules() if choice.is_linear(module)}
    return linear | dict(candidates)


def _nothing_left(model: nn.Module, candidates: Mapping[str, nn.Module], skipped: Mapping[str, str]) -> str:
    """Return why a model has no layer to convert, and what to do."""
    if any(isinstance(module, (SparseLayer, SparseConvolution, SparseLSTM)) for module in model.modules()):
        return (
            f"the hidden layers of {type(model).__name__} are converted already: name others in layers=, or "
            "call msbp.sparse.revert(model) before converting with other settings"
        )
    reasons = "".join(f"\n  {name}: {reason}" for name, reason in skipped.items())
    if list(candidates) == [""]:
        return (
            f"{type(model).__name__} is a single layer, which counts as the output layer and stays dense; to "
            "convert it, pass layers=['']"
        )
    hint = (
        f"to convert some, pass layers={list(candidates)} or a part"
        if candidates
        else f"it has nothing of {KINDS}"
    )
    return f"{type(model).__name__} has no hidden layer to make sparse; {hint}{reasons}"


def _layer(model: nn.Module, name: str, kinds: Mapping[type[nn.Module], Any]) -> nn.Module:
    """Return the layer of this name; ValueError unless it can be converted."""
    try:
        layer = model.get_submodule(name)
    except AttributeError:
        known = list(choice.convertible(model, kinds))
        raise ValueError(f"{type(model).__name__} has no layer {name!r}; it can convert {known}") from None
    if isinstance(layer, Converted):
        raise ValueError(
            f"layer {name!r} is a {type(layer).__name__} already: call msbp.sparse.revert(model) before "
            "converting with other settings"
        )
    if isinstance(layer, nn.LSTM) and layer.proj_size:
        raise ValueError(f"LSTM {name!r} has a projection; only one with proj_size=0 can be sparse")
    if type(layer) not in kinds or parametrize.is_parametrized(layer):
        raise ValueError(f"layer {name!r} is a {type(layer).__name__}; only {KINDS} can be sparse")
    return layer


def _refuse_fused(model: nn.Module) -> None:
    """Raise ValueError if `fuse` has converted the model."""
    for name, module in model.named_modules():
        chained = isinstance(module, Chain) and not any(isinstance(m, SparseLayer) for m in module)
        if chained or type(module) is FusedLSTM:
            _refuse(name, module)


def _refuse_converted(model: nn.Module) -> None:
    """Raise ValueError if `convert` or `fuse` has converted the model."""
    for name, module in model.named_modules():
        if isinstance(module, (SparseLayer, SparseConvolution, FusedLSTM, FusedMaxOverTime, Chain)):
            _refuse(name, module)


def _refuse(name: str, module: nn.Module) -> None:
    raise ValueError(
        f"{name or 'the model'} is a {type(module).__name__} already: fuse a model once, and convert it or "
        "fuse it, or call msbp.sparse.revert(model) before converting with other settings"
    )


def _refuse_unused(kinds: set[type[nn.Module]], selection: str, gates: str, carry: str) -> None:
    if nn.LSTM not in kinds and (gates, carry) != ("per_gate", "time"):
        raise ValueError(
            f"gates={gates} and carry={carry} are for LSTMs, and no hidden layer is one: leave them out"
        )
    if not kinds & {nn.Conv1d, nn.Conv2d, MaxOverTime, FusedMaxOverTime} and selection in (
        "per_position",
        "pooled",
    ):
        raise ValueError(
            f"selection={selection} is for convolutions, and no hidden layer is one: use per_example"
        )


def _chain(model: nn.Module, holds) -> list[Chain]:
    """Make chains of the exact nn.Sequential modules for which `holds` is true."""
    chosen: list[Any] = [m for m in model.modules() if type(m) is nn.Sequential and holds(m)]
    for sequential in chosen:
        sequential.__class__ = Chain
    return chosen
