"""Tensors for kernels: allocated by `empty` and `zeros`, and checked by `address` where they are used.

A kernel gets addresses that were checked at the time of the call, since parameters, memories and optimizer
states may be replaced, cast, moved or reshaped between two calls.
"""

import itertools
import math
import mmap
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from .torch_compat import SGEMM, TENSOR_GUARDS, saved_tensors_have_hooks

CPU = torch.device("cpu")
STRIDED = torch.strided
PLAIN = (Tensor, nn.Parameter)
# These take a third as long as torch.empty(dtype=, device=), and ignore torch's defaults, too.
CONSTRUCTORS: dict[torch.dtype, Callable[..., Tensor]] = {
    torch.float32: torch.FloatTensor,
    torch.int32: torch.IntTensor,
    torch.int64: torch.LongTensor,
    torch.uint8: torch.ByteTensor,
}
_kernels_allowed = ContextVar("kernels_allowed", default=bool(SGEMM))


def empty(size: int, *sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return an uninitialized tensor on the CPU, whatever torch's default type and device are."""
    return CONSTRUCTORS[dtype](size, *sizes)


def zeros(size: int, *sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return zeros on the CPU, whatever torch's default type and device are."""
    return CONSTRUCTORS[dtype](size, *sizes).zero_()


MANY_PAGES = 1 << 20  # bytes from which untouched ones are worth a mapping of their own
PAGE, LINE = 4096, 64  # bytes
# Arrays that a loop goes through together must not all start at the same place of a page: their lines would
# compete for the same set of the first-level cache.
OFFSETS = (21 * LINE * count % PAGE for count in itertools.count(1))


def zero_pages(size: int, *sizes: int) -> Tensor:
    """Return float32 zeros on the CPU, of which the system commits a page when it is first written to.

    `zeros` writes to all of them, and so does torch.zeros.
    """
    count = size * math.prod(sizes)
    if count * 4 < MANY_PAGES or not hasattr(mmap, "MAP_ANONYMOUS"):
        return zeros(size, *sizes)
    offset = next(OFFSETS)
    try:
        block = mmap.mmap(-1, count * 4 + offset, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        return zeros(size, *sizes)
    with suppress(AttributeError, OSError):
        block.madvise(mmap.MADV_NOHUGEPAGE)  # a huge page has the rows of many updates
    return torch.frombuffer(block, dtype=torch.float32, count=count, offset=offset).view(size, *sizes)


def arange(stop: int) -> Tensor:
    """Return 0, 1, ... up to stop, without it, on the CPU."""
    return torch.arange(stop, dtype=torch.int64, device=CPU)


def supports(tensor: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """Return whether a kernel can read a tensor: of this type, on the CPU, contiguous, with its own sign."""
    return (
        type(tensor) in PLAIN
        and tensor.dtype is dtype
        and tensor.is_cpu
        and tensor.layout is STRIDED
        and tensor.is_contiguous()
        and not tensor.is_neg()
    )


def address_of(tensor: Tensor, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> int:
    """Return the address of a tensor that a kernel can read, of this shape and type; 0 for any other.

    Zeros that torch has not materialized have no address, nor have tensors without elements and views whose
    sign torch would change when it reads them.
    """
    if (
        type(tensor) in PLAIN
        and tensor.dtype is dtype
        and tensor.shape == shape
        and tensor.is_cpu
        and tensor.layout is STRIDED
        and tensor.is_contiguous()
        and not tensor.is_neg()
    ):
        return tensor.data_ptr()
    return 0


def address(
    tensor: Tensor, shape: Sequence[int], name: str, dtype: torch.dtype = torch.float32, of: object = None
) -> int:
    """Return the address of a tensor for a kernel; RuntimeError names a tensor that is not as it must be.

    name, of: for the error, as in "the memory of layer 0".
    """
    pointer = address_of(tensor, shape, dtype)
    if pointer or (supports(tensor, dtype) and tensor.shape == shape and not tensor.numel()):
        return pointer
    raise RuntimeError(
        f"{name}{'' if of is None else f' of {of}'} must be a contiguous {dtype} tensor of shape "
        f"{tuple(shape)} on the CPU, got {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device} "
        f"({type(tensor).__name__}): where weights are replaced, resized or cast, give the new ones a new "
        "optimizer and convert the model anew"
    )


class Layouts:
    """The layouts of tensors that `address_of` accepted, to check all of them at once the next time.

    None stands for a tensor that is not there, as the bias of some layers. lengths: of which tensors the
    first size may be another, by index. others: tensors without memory of their own.
    """

    def __init__(
        self, tensors: Sequence[Tensor | None], lengths: Collection[int] = (), others: Sequence[Tensor] = ()
    ):
        self._absent = [at for at, tensor in enumerate(tensors) if tensor is None]
        self._count, self._guards = len(tensors), None
        if TENSOR_GUARDS is not None:
            present = [tensor for tensor in (*tensors, *others) if tensor is not None]
            strides: list[list[int]] = [[*tensor.stride()] for tensor in present]
            sizes: list[list[int | None]] = [[*tensor.shape] for tensor in present]
            for at in lengths:
                at -= sum(absent < at for absent in self._absent)
                # a single row is contiguous whatever its stride, which would then hold for more rows
                strides[at][0] = math.prod(present[at].shape[1:])
                sizes[at][0] = None
            self._guards = TENSOR_GUARDS(*present, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)

    def addresses(self, tensors: Sequence[Any], others: Sequence[Tensor] = ()) -> list[int] | None:
        """Return the addresses of distinct tensors with these layouts, 0 for None; None if one has another.

        None where torch has no such check, or where one of the others has another layout.
        """
        if self._guards is None or len(tensors) != self._count:
            return None
        if self._absent:
            if [at for at, tensor in enumerate(tensors) if tensor is None] != self._absent:
                return None
            tensors = [tensor for tensor in tensors if tensor is not None]
        if not self._guards.check(*tensors, *others):  # it returns False for None
            return None
        pointers = [*map(Tensor.data_ptr, tensors)]
        if not all(pointers):
            return None  # torch has freed the memory of one
        for at in self._absent:
            pointers.insert(at, 0)
        return pointers


def plain(tensor: Tensor) -> Tensor:
    """Return an input or a gradient as a contiguous tensor whose memory holds its values."""
    if tensor.is_neg() or tensor._is_zerotensor():
        tensor = torch.empty_like(tensor, memory_format=torch.contiguous_format).copy_(tensor)
    return tensor.contiguous()


@contextmanager
def plain_torch() -> Iterator[None]:
    """Run all layers and losses in plain torch within this context, to compare it with the kernels."""
    token = _kernels_allowed.set(False)
    try:
        yield
    finally:
        _kernels_allowed.reset(token)


def kernels_allowed() -> bool:
    """Return whether kernels may be used: not where saved tensors pass through hooks, as in checkpointing."""
    return _kernels_allowed.get() and not saved_tensors_have_hooks()


def uses_kernel(*tensors: Tensor) -> bool:
    """Return whether kernels may be used and can read all of these tensors."""
    return kernels_allowed() and all(supports(tensor) for tensor in tensors)
