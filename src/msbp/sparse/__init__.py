"""Sparse backpropagation with memory for torch modules.

The method: sparsifiers.py has the entries of a gradient that are kept, memory.py the rest that is carried on,
reference.py the paper's algorithms as printed; convert.py makes a model's layers sparse, which layers.py
chooses, and status.py shows them. The layers are in
linear, lstm and conv, their CPU kernels, and those of the optimizers, in kernels. README.md describes it all.
"""

from .buffers import plain_torch
from .conv.base import SparseConvolution
from .conv.conv import SparseConv1d, SparseConv2d
from .conv.max_over_time import MaxOverTime
from .convert import convert, fuse, memories, revert
from .dropout import keep_mask
from .linear.linear import Chain, SparseLinear, look_up
from .linear.loss import backward, cross_entropy
from .linear.stage import Cube
from .lstm.lstm import SparseLSTM
from .memory import GradientMemory
from .row_sparse import RowSparseGradient
from .running import running_states
from .sparsifiers import entries_kept, top_k, unified_top_k
from .status import dense, status

__all__ = [
    "Chain",
    "Cube",
    "GradientMemory",
    "MaxOverTime",
    "RowSparseGradient",
    "SparseConv1d",
    "SparseConv2d",
    "SparseConvolution",
    "SparseLSTM",
    "SparseLinear",
    "backward",
    "convert",
    "cross_entropy",
    "dense",
    "entries_kept",
    "fuse",
    "keep_mask",
    "look_up",
    "memories",
    "plain_torch",
    "revert",
    "running_states",
    "status",
    "top_k",
    "unified_top_k",
]
