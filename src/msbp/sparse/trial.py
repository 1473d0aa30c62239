"""Time of single layers on a sample batch, dense and sparse: which of a model's layers get faster."""

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

REPEATS, LEAST_SECONDS = 5, 0.02  # of each layer: at least so many passes, and so long

REQUIRED = (
    "sample= takes the arguments of its forward pass, as a tensor, a tuple or a mapping of one batch, or a "
    "function that calls it, as in sample=lambda model: model(x)"
)


@dataclass
class Call:
    """One call of a layer in a forward pass: its arguments, and whether its input needs a gradient."""

    arguments: tuple[object, ...]
    named: dict[str, object]
    size: int


def calls(model: nn.Module, sample: object, layers: Mapping[str, nn.Module]) -> dict[str, Call]:
    """Return the largest call of each of these layers on a sample, in the order of their last calls.

    sample: a tensor, a tuple or list of arguments, a mapping of named ones, or a function of the model. The
    model is in evaluation mode meanwhile, so that it does not change.
    """
    largest: dict[str, Call] = {}

    def record(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, arguments: tuple[object, ...], named: dict[str, object]) -> None:
            known = largest.pop(name, None)
            size = sum(value.numel() for value in tensors((arguments, named)))
            new = Call(map_tensors(arguments, leaf), map_tensors(named, leaf), size)
            largest[name] = known if known is not None and known.size >= size else new

        return hook

    handles = [
        module.register_forward_pre_hook(record(name), with_kwargs=True) for name, module in layers.items()
    ]
    try:
        with evaluation(model), torch.enable_grad(), torch.random.fork_rng(devices=[]):
            forward(model, sample)
    except Exception as error:
        raise ValueError(
            f"{type(model).__name__} fails on the sample ({type(error).__name__}: {error}); {REQUIRED}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    return largest


def forward(model: nn.Module, sample: object) -> object:
    """Return the model's output for a sample; TypeError for what is none."""
    if not (callable(sample) or isinstance(sample, Tensor | Mapping | tuple | list)):
        raise TypeError(f"{type(sample).__name__} is no sample")
    if callable(sample) and not isinstance(sample, Tensor | Mapping):
        return sample(model)
    if isinstance(sample, Mapping):
        return model(**sample)
    return model(*sample) if isinstance(sample, tuple | list) else model(sample)


def seconds(layer: nn.Module, call: Call) -> float:
    """Return the shortest time of the layer's forward and backward pass in a call."""
    best, spent, count = float("inf"), 0.0, 0
    grad: list[Tensor] = []
    while count < REPEATS + 1 or spent < LEAST_SECONDS:
        begin = time.perf_counter()
        output = next(tensors(layer(*call.arguments, **call.named)))
        if not grad:
            grad.append(torch.randn_like(output))
        output.backward(grad[0])
        taken = time.perf_counter() - begin
        for tensor in (*layer.parameters(), *tensors((call.arguments, call.named))):
            tensor.grad = None
        if count:  # the first pass allocates and compiles
            best, spent = min(best, taken), spent + taken
        count += 1
    return best


def gain(layer: nn.Module, call: Call, adopt: Callable[[nn.Module], object]) -> float:
    """Return how many times faster a layer's call is when `adopt` has made it sparse."""
    plain, sparse = copy.deepcopy(layer).train(), copy.deepcopy(layer).train()
    adopt(sparse)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        return seconds(plain, call) / seconds(sparse, call)


@contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode within the context; each module's own mode is restored."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def leaf(tensor: Tensor) -> Tensor:
    """Return a copy without history that needs a gradient if the tensor does."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def tensors(value: object) -> Iterator[Tensor]:
    """Yield the tensors in arguments or outputs."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from tensors(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for one in value:
            yield from tensors(one)


def map_tensors(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Return arguments with the function applied to their tensors."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {key: map_tensors(one, function) for key, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # named, such as a packed sequence
        return type(value)(*(map_tensors(one, function) for one in value))
    if type(value) in (tuple, list):
        return type(value)(map_tensors(one, function) for one in value)
    return value
