"""Choice of the layers that convert makes sparse: by pattern, or the hidden ones of a model."""

import fnmatch
import functools
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from numbers import Integral
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize

from .memory import is_number
from .torch_compat import Converted, is_batched, transforming

Pattern = str | re.Pattern[str]  # a dotted name, a glob, or a regular expression that is searched for
Layers = Pattern | Iterable[Pattern] | Callable[[str, nn.Module], bool]
MIN_WIDTH = 128  # of inputs and outputs; narrower layers gain nothing on average
# Last parts of the names of output layers; in a container of such a name, the last layer is one.
OUTPUT_CONTAINERS = ("head", "heads", "lm_head", "classifier", "fc", "score", "qa_outputs")
OUTPUT_NAMES = (*OUTPUT_CONTAINERS, "decoder")
ADAPTER = re.compile(r"(^|[._])(lora|adapters?)([._]|$)", re.IGNORECASE)


def with_reasons(backward: Callable) -> Any:
    """Return a backward pass that raises RuntimeError with the reason where a layer was reverted since the
    forward pass, and where it fails for several gradients at once.
    """

    @functools.wraps(backward)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return backward(*args, **kwargs)
        except AttributeError as error:
            if not isinstance(error.obj, nn.Module) or isinstance(error.obj, Converted):
                raise
            raise RuntimeError(
                f"{error.obj} was reverted between the forward and the backward pass; run both again"
            ) from error
        except RuntimeError as error:
            if transforming() is None and not any(
                isinstance(arg, Tensor) and is_batched(arg) for arg in args
            ):
                raise
            raise RuntimeError(
                "the backward pass of a converted layer takes one gradient at a time: leave out vmap, "
                "is_grads_batched=True or vectorize=True"
            ) from error

    return run


def ratios_of(r: float | Mapping[Pattern, float]) -> dict[Pattern, float]:
    """Return the sparse ratios by pattern; ValueError for one out of range."""
    ratios: dict[Pattern, float] = dict(r) if isinstance(r, Mapping) else {"*": r}
    for pattern, share in ratios.items():
        if not (is_number(share) and 0 < share <= 1):
            of = "" if not isinstance(r, Mapping) else f" of {getattr(pattern, 'pattern', pattern)!r}"
            raise ValueError(
                f"sparse ratio r{of} must be a number in (0, 1], got {share!r}; without it backpropagation "
                "is plain"
            )
    if not ratios:
        raise ValueError("r={} selects no layer: give a number, or a mapping from patterns to numbers")
    return ratios


def ratio(ratios: Mapping[Pattern, float], name: str) -> float:
    """Return the ratio of a layer: of its name, else of the first pattern that fits."""
    if name in ratios:
        return ratios[name]
    for pattern, share in ratios.items():
        if fits(pattern, name):
            return share
    raise ValueError(f"r has no ratio for layer {name!r}: add it, or '*' for all others, to r={dict(ratios)}")


def check_min_width(width: object) -> None:
    """Raise ValueError unless a width is a whole number of at least 0, or None."""
    if width is not None and not (
        isinstance(width, Integral) and not isinstance(width, bool) and int(width) >= 0
    ):
        raise ValueError(
            f"min_width must be a whole number of inputs and outputs, at least 0, or None for {MIN_WIDTH}; "
            f"got {width!r}"
        )


def chosen(
    model: nn.Module,
    candidates: Mapping[str, nn.Module],
    r: float | Mapping[Pattern, float],
    layers: Layers | None,
    exclude: Layers | None,
    min_width: int | None,
    calls: Sequence[str],
) -> tuple[list[str], dict[str, str]]:
    """Return the names of the layers to convert, and of others why they stay as they are.

    candidates: all layers that can be converted. calls: the layers that a sample runs, in order.
    """
    skipped: dict[str, str] = {}
    if layers is not None:
        exact = [name for name in listed(layers) if isinstance(name, str) and is_name(name)]
        matched = [name for name, module in candidates.items() if matches(layers, name, module)]
        names = list(dict.fromkeys([*exact, *matched]))
    else:
        last = next((name for name in reversed(calls) if is_linear(model.get_submodule(name))), None)
        least = (0 if calls else MIN_WIDTH) if min_width is None else min_width
        least = 0 if isinstance(r, Mapping) else least
        names, skipped = hidden(model, candidates, least, last)
        if isinstance(r, Mapping):
            exact = [name for name in r if isinstance(name, str) and is_name(name)]
            fitting = [name for name in names if any(fits(pattern, name) for pattern in r)]
            skipped |= {name: "no pattern of r fits" for name in names if name not in fitting}
            names = list(dict.fromkeys([*exact, *fitting]))
    if exclude is not None:
        out = [name for name in names if matches(exclude, name, model.get_submodule(name))]
        skipped |= dict.fromkeys(out, "excluded")
        names = [name for name in names if name not in out]
    return names, {name: reason for name, reason in skipped.items() if name not in names}


def check_names(argument: str, given: Layers, model: nn.Module, candidates: Mapping[str, nn.Module]) -> None:
    """Raise ValueError for a pattern that fits no layer, unless it is the name of some other module."""
    modules = dict(model.named_modules())
    known = modules if argument == "exclude" else candidates
    names = [pattern for pattern in listed(given) if isinstance(pattern, str) and pattern in modules]
    rest: Layers = [pattern for pattern in listed(given) if pattern not in names]
    check_patterns(argument, rest if rest or names else given, model, list(known))


def matches(patterns: Layers, name: str, module: nn.Module) -> bool:
    """Return whether one of the patterns, or the predicate, selects a module."""
    if isinstance(patterns, str | re.Pattern):
        patterns = [patterns]
    if isinstance(patterns, Iterable):
        return any(fits(pattern, name) for pattern in patterns)
    return bool(patterns(name, module))


def fits(pattern: Pattern, name: str) -> bool:
    """Return whether a pattern fits a dotted name."""
    if isinstance(pattern, re.Pattern):
        return pattern.search(name) is not None
    return name == pattern or fnmatch.fnmatchcase(name, pattern)


def listed(layers: Layers) -> list[Pattern]:
    """Return the patterns of an argument, none of a predicate."""
    if isinstance(layers, str | re.Pattern):
        return [layers]
    return list(layers) if isinstance(layers, Iterable) else []


def settled(model: nn.Module, patterns: Any) -> Any:
    """Return an argument such that it can be read twice and a module with several names has its first."""
    if isinstance(patterns, Mapping):
        return {first_name(model, pattern): value for pattern, value in patterns.items()}
    if isinstance(patterns, Iterable) and not isinstance(patterns, str):
        return [first_name(model, pattern) for pattern in patterns]
    return first_name(model, patterns)


def first_name(model: nn.Module, pattern: Any) -> Any:
    """Return the first dotted name of the module that a name stands for; anything else as it is."""
    if is_name(pattern):
        with suppress(AttributeError):
            module = model.get_submodule(pattern)
            return next((name for name, other in model.named_modules() if other is module), pattern)
    return pattern


def is_name(pattern: Pattern) -> bool:
    """Return whether a pattern is a name and neither glob nor regular expression."""
    return isinstance(pattern, str) and not any(letter in pattern for letter in "*?[")


def check_patterns(argument: str, layers: Layers, model: nn.Module, names: Collection[str]) -> None:
    """Raise ValueError for a pattern that fits none of these names of layers."""
    if not (isinstance(layers, str | re.Pattern | Iterable) or callable(layers)):
        raise ValueError(
            f"{argument} takes dotted names, globs, compiled regular expressions or a function of name and "
            f"module, got {layers!r}"
        )
    for pattern in listed(layers):
        if not isinstance(pattern, str | re.Pattern):
            raise ValueError(f"{argument} has {pattern!r}, which is no name, glob or regular expression")
        if not any(fits(pattern, name) for name in names):
            shown = pattern if isinstance(pattern, str) else pattern.pattern
            raise ValueError(
                f"{type(model).__name__} has no layer {shown!r} ({argument}); it can convert {list(names)}"
            )


def convertible(model: nn.Module, kinds: Collection[type[nn.Module]]) -> dict[str, nn.Module]:
    """Return the modules of exactly these kinds whose parameters are their own, by dotted name."""
    return {
        name: module
        for name, module in model.named_modules()
        if type(module) in kinds
        and not parametrize.is_parametrized(module)
        and not getattr(module, "proj_size", 0)
    }


def hidden(
    model: nn.Module, candidates: Mapping[str, nn.Module], min_width: int, last: str | None = None
) -> tuple[list[str], dict[str, str]]:
    """Return the names of the hidden layers among these candidates, and of each other one why it is none.

    Hidden are `model.msbp_hidden_layers` (groups of dotted names), else every LSTM and every linear layer
    that is neither an output layer, nor an adapter, nor narrow. last: the linear layer that runs last.
    """
    groups = hidden_groups(model)
    if groups is not None:
        return list(dict.fromkeys(settled(model, itertools.chain(*groups)))), {}
    linear = {name: module for name, module in model.named_modules() if is_linear(module)}
    outputs = output_layers(model, linear, last)
    skipped = {
        name: reason
        for name, module in model.named_modules()
        if name not in candidates and (reason := obstacle(name, module))
    }
    for name, module in candidates.items():
        if name in outputs:
            skipped[name] = "output layer"
        elif name not in linear:
            if not isinstance(module, nn.LSTM):
                skipped[name] = f"{type(module).__name__}: name it in layers="
            elif module.hidden_size < min_width:
                skipped[name] = f"narrower than min_width={min_width}"
        elif ADAPTER.search(name):
            skipped[name] = "adapter of low rank"
        elif min(sides(module)) < min_width:
            skipped[name] = f"narrower than min_width={min_width}"
    return [name for name in candidates if name not in skipped], skipped


def obstacle(name: str, module: nn.Module) -> str | None:
    """Return why a linear or recurrent layer that is not converted yet cannot be; None for other modules."""
    kind = type(module).__name__
    if isinstance(module, Converted) or not isinstance(module, nn.Linear | nn.RNNBase):
        return None
    if isinstance(module, nn.LSTM) and module.proj_size:
        return f"LSTM {name!r} has a projection; only one with proj_size=0 can be sparse"
    if parametrize.is_parametrized(module):
        return "its weight is parametrized"
    if isinstance(module, nn.RNNBase):
        return f"{kind}: of recurrent layers, only nn.LSTM itself can be sparse"
    return f"{kind}: of linear layers, only nn.Linear itself can be sparse"


def hidden_groups(model: nn.Module) -> Sequence[Sequence[str]] | None:
    """Return the dotted names of the hidden layers that a model lists, in groups; None if it lists none."""
    return getattr(model, "msbp_hidden_layers", None)


def output_layers(model: nn.Module, linear: Mapping[str, nn.Module], last: str | None) -> set[str]:
    """Return the names of the linear layers that compute a model's output.

    These are transformers' output embeddings, layers whose weight is an embedding's, those named as an output
    outside of any numbered block, and the one that runs last; of a model without any, the last one.
    """
    embedded = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    names = {name for name, module in linear.items() if id(module.weight) in embedded}
    try:
        output: object = model.get_output_embeddings()  # type: ignore[operator]
    except (AttributeError, NotImplementedError, TypeError):
        output = None
    names |= {name for name, module in linear.items() if module is output}
    by_container = {}
    for name in linear:
        container = output_container(name.split("."))
        if container is not None:
            by_container[container] = name  # the last one remains
    names |= set(by_container.values())
    if last is not None:
        names.add(last)
    if not names and linear:
        names.add(list(linear)[-1])
    return names


def output_container(parts: Sequence[str]) -> str | None:
    """Return the part of a name up to the one that says that it is an output, or None."""
    for at, part in enumerate(parts):
        if part.isdigit():
            return None
        if part in (OUTPUT_NAMES if at == len(parts) - 1 else OUTPUT_CONTAINERS):
            return ".".join(parts[: at + 1])
    return None


def is_linear(module: nn.Module) -> bool:
    """Return whether a module is a linear layer of torch or transformers."""
    return isinstance(module, nn.Linear) or type(module).__name__ in ("Conv1D", "SparseConv1D")


def sides(module: nn.Module) -> tuple[int, int]:
    """Return the numbers of inputs and outputs of a linear layer."""
    n = width(module)
    return module.weight.numel() // n, n  # type: ignore[operator]


def width(layer: nn.Module) -> int:
    """Return the width that r is a part of: a convolution's channels at one window, the units of one gate."""
    names = ("out_features", "hidden_size", "out_channels", "nf")
    return next(getattr(layer, name) for name in names if hasattr(layer, name))
