"""A device for machines that have only a CPU: its tensors are CPU tensors under another name.

torch's "meta" device lends the name, as it is the one that every build of torch has beside the CPU. An
operation that takes tensors of two devices is refused, as CUDA refuses it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

OTHER = torch.device("meta")
aten = torch.ops.aten
BETWEEN = {aten.copy_.default, aten._to_copy.default}
# these take indices or lengths that lie on the CPU
WITH_CPU = {
    *(aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default),
    aten._pack_padded_sequence.default,
}


class Elsewhere(Tensor):
    """A tensor of the other device; `here` is the CPU tensor that has its data."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> "Elsewhere":
        layout = {"strides": here.stride(), "storage_offset": here.storage_offset(), "dtype": here.dtype}
        tensor = Tensor._make_wrapper_subclass(cls, here.size(), **layout, device=OTHER)
        tensor.here = here
        return tensor

    def tolist(self) -> Any:
        return self.here.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return Dispatch.call(func, args, kwargs or {})  # outside of the mode, as in a finalizer


class Dispatch(TorchDispatchMode):
    """While it is on, tensors can be created on the other device and moved there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.call(func, args, kwargs or {})

    @staticmethod
    def call(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return the result of func on the device of its arguments; RuntimeError if it mixes devices."""
        tensors: list[Tensor] = []
        plain_args = changed(list(args), lambda tensor: tensors.append(tensor) or here(tensor))
        plain = {
            k: changed(v, lambda tensor: tensors.append(tensor) or here(tensor)) for k, v in kwargs.items()
        }
        device = kwargs.get("device") or (args[0].device if func in BETWEEN | WITH_CPU else None)
        if device is None:
            device = refuse_two(func, tensors)
        elif "device" in plain:
            plain["device"] = "cpu"
        result = func(*plain_args, **plain)
        if torch.device(device) != OTHER:
            return result
        if func is aten._pack_padded_sequence.default:
            return Elsewhere(result[0]), result[1]  # the sizes stay
        in_place = {id(tensor.here): tensor for tensor in tensors if isinstance(tensor, Elsewhere)}
        return changed(result, lambda t: in_place[id(t)] if id(t) in in_place else Elsewhere(t))


def here(tensor: Tensor) -> Tensor:
    return tensor.here if isinstance(tensor, Elsewhere) else tensor


def changed(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """The value with each tensor in its lists and tuples changed; torch's own pytree is slow."""
    if isinstance(value, list | tuple):
        return type(value)(changed(part, change) for part in value)
    return change(value) if isinstance(value, Tensor) else value


def refuse_two(func: Any, tensors: list[Tensor]) -> torch.device:
    """The device of the tensors; RuntimeError if there are two. A single number may lie on the CPU."""
    devices = {tensor.device for tensor in tensors if tensor.dim() or tensor.device == OTHER}
    if len(devices) > 1:
        raise RuntimeError(
            f"{func} takes tensors of two devices, of shapes {[tuple(t.shape) for t in tensors]}"
        )
    return devices.pop() if devices else torch.device("cpu")


@contextmanager
def other_device(monkeypatch: Any, *modules: Any) -> Iterator[None]:
    """Let device=cuda mean the other device in the modules that ask `device_of` for one."""
    # parameters are replaced where `to` moves them: a tensor cannot become one of another class
    monkeypatch.setattr(torch.__future__, "_overwrite_module_params_on_conversion", True)
    for module in modules:
        monkeypatch.setattr(
            module, "device_of", lambda name, *_: OTHER if name == "cuda" else torch.device("cpu")
        )
    for name in ("is_autocast_enabled", "autocast"):
        monkeypatch.setattr(torch, name, as_on_cpu(getattr(torch, name)))
    with Dispatch():
        yield


def as_on_cpu(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda device="cpu", **options: call("cpu" if device == OTHER.type else device, **options)
