"""Sparse backpropagation with memory for torch modules.

The method: sparsifiers.py has what of a gradient is kept, memory.py how the rest is carried on, reference.py
the paper's algorithms as printed; convert.py makes a model's layers sparse. The layers are in linear, lstm
and convolutions; kernels has what runs for them on a CPU, updates what optimizers need for their gradients.
"""

from .convert import convert, fuse, memories
from .convolutions.base import SparseConvolution
from .convolutions.conv import SparseConv1d, SparseConv2d
from .convolutions.max_over_time import MaxOverTime
from .dropout import keep_mask
from .linear.activations import Cube
from .linear.chain import Chain, look_up
from .linear.linear import SparseLinear
from .linear.loss import cross_entropy
from .lstm.lstm import SparseLSTM
from .memory import GradientMemory
from .sparsifiers import entries_kept, top_k, unified_top_k

__all__ = [
    "Chain",
    "Cube",
    "GradientMemory",
    "MaxOverTime",
    "SparseConv1d",
    "SparseConv2d",
    "SparseConvolution",
    "SparseLSTM",
    "SparseLinear",
    "convert",
    "cross_entropy",
    "entries_kept",
    "fuse",
    "keep_mask",
    "look_up",
    "memories",
    "top_k",
    "unified_top_k",
]
