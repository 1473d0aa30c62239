"""Dropout on its own, with the mask of dropout.py."""

import numpy as np

from .chain_forward import drop_below, keep_scale
from .compile import kernel
from .simd import floats, scramble


@kernel
def drop(x, out, size, p, key):
    """out (size) ← x where the hash of a position keeps it, scaled, and zero elsewhere."""
    limit, scale, key = drop_below(p), keep_scale(p), np.uint32(key)
    X, Z = floats(x, size), floats(out, size)
    for j in range(size):
        word = scramble(np.uint32(j) ^ key)
        Z[j] = np.float32(0) if word < limit else X[j] * scale
