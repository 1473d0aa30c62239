"""Which tensors the kernels may read, and whether kernels are to be used at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from .blas import SGEMM
from .factored import FactoredParameter

PARAMETERS = (nn.Parameter, FactoredParameter)
_kernels_allowed = ContextVar("kernels_allowed", default=bool(SGEMM))


@contextmanager
def plain_torch() -> Iterator[None]:
    """Within it no layer and no loss runs by kernel, so the two ways can be compared."""
    token = _kernels_allowed.set(False)
    try:
        yield
    finally:
        _kernels_allowed.reset(token)


def suits(tensor: Tensor) -> bool:
    """Whether a kernel may read it: float32 on the CPU, rows contiguous."""
    ordinary = (type(tensor) is Tensor or type(tensor) in PARAMETERS) and tensor.layout is torch.strided
    return ordinary and tensor.dtype is torch.float32 and tensor.is_cpu and tensor.is_contiguous()


def by_kernel(*tensors: Tensor) -> bool:
    """Whether kernels may be used, and can read all of these."""
    return kernels_allowed() and all(suits(tensor) for tensor in tensors)


def kernels_allowed() -> bool:
    """Whether kernels may be used; not where saved tensors pass through hooks, as checkpointing has them."""
    return _kernels_allowed.get() and torch._C._autograd._top_saved_tensors_default_hooks(True) is None
