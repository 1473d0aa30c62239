"""status: which layers of a model are sparse, how, and what share of the backward pass each takes."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import nn

from . import trial
from .buffers import SGEMM
from .conv.base import SparseConvolution
from .layers import width
from .linear.linear import Chain, SparseLayer
from .lstm.lstm import FusedLSTM, SparseLSTM
from .memory import GradientMemory

Sparse = SparseLayer | SparseConvolution | SparseLSTM
# Why convert left a layer as it was, or how much faster it measured it to be.
REMARKS: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()


@dataclass(frozen=True)
class LayerStatus:
    """One layer: k of n outputs are kept, 0 where the backward pass is dense.

    expected, measured: shares of the time that all listed layers take, by operations and on a sample.
    """

    name: str
    kind: str
    n: int
    k: int
    gamma: float
    memory: str
    path: str
    expected: float
    measured: float | None
    remark: str


class Status(list[LayerStatus]):
    """The layers of a model; as a string, a table."""

    def __str__(self) -> str:
        head = ("layer", "kind", "n", "k", "γ", "memory", "backward pass", "expected", "measured", "remark")
        rows = [
            (row.name, row.kind, str(row.n), str(row.k or "all"), f"{row.gamma:g}" if row.gamma else "–",
             row.memory, row.path, f"{row.expected:.0%}", "–" if row.measured is None
             else f"{row.measured:.0%}", row.remark)
            for row in self
        ]  # fmt: skip
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True))
            for row in (head, *rows)
        ]
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__


def status(model: nn.Module, sample: object = None) -> Status:
    """Return the status of all linear, LSTM and convolutional layers of a model.

    expected: by the operations of a backward pass in which all layers have the same number of rows. measured:
    by the time of each layer alone on a sample batch, as convert(sample=) takes it; None without a sample.
    """
    kinds = (nn.Linear, nn.LSTM, nn.Conv1d, nn.Conv2d)
    layers = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, (SparseLayer, *kinds)) or type(module).__name__ == "Conv1D"
    }
    fused = {layer for module in model.modules() if isinstance(module, Chain) for layer in module.children()}
    costs = {name: operations(module) for name, module in layers.items()}
    measured: dict[str, float] = {}
    if sample is not None:
        for name, call in trial.calls(model, sample, layers).items():
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                measured[name] = trial.seconds(copy.deepcopy(layers[name]), call)
    total, seconds = sum(costs.values()) or 1, sum(measured.values()) or 1.0
    rows = Status()
    for name, module in layers.items():
        gamma, memory = memory_of(module)
        share = measured[name] / seconds if name in measured else None
        rows.append(
            LayerStatus(
                name,
                type(module).__name__,
                width(module),
                kept(module),
                gamma,
                memory,
                path(module, module in fused or isinstance(module, FusedLSTM)),
                costs[name] / total,
                share,
                REMARKS.get(module, ""),
            )
        )
    return rows


@contextmanager
def dense(model: nn.Module) -> Iterator[None]:
    """Make the backward pass of all converted layers dense within the context, as for a warm-up.

    Memories are neither used nor changed.
    """
    switched = [module for module in model.modules() if isinstance(module, Sparse) and module.enabled]
    for module in switched:
        module.enabled = False
    try:
        yield
    finally:
        for module in switched:
            module.enabled = True


def kept(module: nn.Module) -> int:
    """Return the k of a layer at present, 0 where its backward pass is dense."""
    return module.k if isinstance(module, Sparse) and module.active else 0


def memory_of(module: nn.Module) -> tuple[float, str]:
    """Return gamma and kind of a layer's memory."""
    memory = getattr(module, "memory", None) if isinstance(module, Sparse) else None
    if isinstance(memory, nn.ModuleDict):
        memory = next(iter(memory.values()), None)
    if not isinstance(memory, GradientMemory):
        return 0.0, "–"
    return memory.gamma, type(memory).__name__


def path(module: nn.Module, fused: bool = False) -> str:
    """Return whether a layer's backward pass is by kernel or in plain torch, and why.

    fused: whether a layer that is not sparse is part of a chain, or an LSTM with kernels.
    """
    if not isinstance(module, Sparse):
        return "dense, by kernel" if fused and _without_kernel(module) == "" else "torch"
    if not module.enabled:
        return "dense: enabled=False"
    if not module.training:
        return "dense: in evaluation mode"
    if not getattr(module, "supports_kernel", True):
        return "torch: no kernel for its sparsifier or memory"
    return _without_kernel(module) or "kernel"


def _without_kernel(module: nn.Module) -> str:
    """Return why no kernel can read a layer's parameters; empty if one can."""
    parameters = list(module.parameters(recurse=False))
    for parameter in parameters:
        if not parameter.is_cpu:
            return f"torch: on {parameter.device}"
        if parameter.dtype is not torch.float32:
            return f"torch: {str(parameter.dtype).removeprefix('torch.')}"
        if not parameter.is_contiguous():
            return "torch: weight not contiguous"
    return "" if SGEMM else "torch: no BLAS found"


def operations(module: nn.Module) -> float:
    """Return the multiplications and additions of a layer's backward pass for one row."""
    n, k = width(module), kept(module)
    weights = sum(p.numel() for p in module.parameters(recurse=False) if p.dim() > 1)
    whole = 4.0 * weights
    return whole if not k else whole * k / n + n
