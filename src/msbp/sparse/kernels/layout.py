"""One record a stage: the addresses, sizes and settings that a chain's kernels read. B rows in the batch."""

import numpy as np
from numba import carray

from .compile import kernel
from .simd import pointer

IDENTITY, RELU, TANH, CUBE = range(4)
NONE, SHARED, PER_SLOT, SEQUENTIAL = range(4)

_WHOLE = (
    "weight", "bias",                # (n, i), (n) or 0
    "x", "z",                        # input (B, i), output (B, n)
    "slope",                         # (B, n) ∂z/∂h where z does not tell it, else 0
    "grad_h",                        # (B, n) of a dense stage, or where all rows are needed at once
    "grad_x",                        # (B, i) where ∂ℓ/∂x is wanted as a matrix, or 0
    "grad_weight", "grad_bias",      # where a dense gradient goes, or 0
    "values", "columns",             # (B, k) of a sparse stage
    "starts", "examples", "weights", # the same by column, see rows.by_column; starts is 0 if not needed
    "touched", "indices", "rows",    # u rows of ∂ℓ/∂W that are not zero: their indices (u) and values (u, i)
    "memory", "memory_next",         # (slots, n) and what follows it, (1, n) or (B, n)
    "inputs", "outputs", "k",        # i, n, and k, or 0 for a dense stage
    "kind", "slots",                 # of memory
    "unified", "dense_bias", "activation",
    "distance",                      # from the largest magnitude to the last row's threshold: a first guess
)  # fmt: skip
WORDS = {name: index for index, name in enumerate((*_WHOLE, "gamma", "p"))}  # of 8 bytes in a record
STAGE = np.dtype([*((name, np.int64) for name in _WHOLE), ("gamma", np.float64), ("p", np.float64)])


@kernel
def stage_table(address, count):
    return carray(pointer(address), count, STAGE)
