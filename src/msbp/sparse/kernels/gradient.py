"""Weight gradients from factors: formed in cache, and added up or measured.

Letters: B batch, n out_features, i in_features, k kept.
"""

import numpy as np

from .compile import kernel
from .intrinsics import address_of, floats
from .lanes import BYTES
from .rows import add, by_column, weighted_columns

CACHED = 1 << 16  # floats of x that are worked on at a time: 256 KiB


@kernel
def panel_width(B, i):
    """How many columns of x (B, i) fit into cache: all, or a multiple of 64."""
    return i if B * i <= 2 * CACHED else min(i, max(64, CACHED // B // 64 * 64))


@kernel
def form_row(row, x, stride, examples, weights, start, stop):
    """row = Σ over q in [start, stop) of weights[q] · x[examples[q]]; rows of x are `stride` floats apart."""
    out, rows, values = address_of(row), address_of(examples), address_of(weights)
    weighted_columns(out, x, row.size, stride, rows, values, start, stop)


@kernel
def clamp(row, limit):
    for c in range(row.size):
        row[c] = min(max(row[c], -limit), limit)


@kernel
def squares(row):
    total = np.float32(0)
    for c in range(row.size):
        total += row[c] * row[c]
    return total


@kernel
def accumulate(values, columns, x, grad, B, n, i, k, limit):
    """grad (n, i) += gᵀx, each entry of the product held within ±limit if there is one.

    If grad is 0 the product is measured instead: Σ of its squares is returned.
    """
    starts, examples = np.empty(n + 2, np.int32), np.empty(B * k, np.int32)
    weights, row, D = np.empty(B * k, np.float32), np.empty(i, np.float32), floats(grad, (n, i))
    by_column(values, columns, B, n, k, starts, examples, weights)
    step, total = panel_width(B, i), 0.0
    for begin in range(0, i, step):
        part = row[: min(step, i - begin)]
        for j in range(n):
            if starts[j + 1] > starts[j]:
                form_row(part, x + begin * BYTES, i, examples, weights, starts[j], starts[j + 1])
                if limit > 0:
                    clamp(part, np.float32(limit))
                if grad:
                    add(D[j, begin : begin + part.size], part)
                else:
                    total += squares(part)
    return total
