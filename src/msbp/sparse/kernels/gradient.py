"""Weight gradients from factors: formed row by row in cache, and added up or measured.

Letters: B batch, n out_features, i in_features, k kept.
"""

import numpy as np

from .compile import kernel
from .intrinsics import address_of, floats
from .rows import by_column, weighted_sum


@kernel
def clamp(row, limit):
    for c in range(row.size):
        row[c] = min(max(row[c], -limit), limit)


@kernel
def accumulate(values, columns, x, grad, B, n, i, k, limit):
    """grad (n, i) += gᵀx, each entry of the product held within ±limit if there is one."""
    starts, examples = np.empty(n + 2, np.int32), np.empty(B * k, np.int32)
    weights, row, D = np.empty(B * k, np.float32), np.empty(i, np.float32), floats(grad, (n, i))
    by_column(values, columns, B, n, k, starts, examples, weights)
    for j in range(n):
        if starts[j + 1] > starts[j]:
            form_row(row, x, examples, weights, starts[j], starts[j + 1])
            if limit > 0:
                clamp(row, np.float32(limit))
            out = D[j]
            for c in range(i):
                out[c] += row[c]


@kernel
def form_row(row, x, examples, weights, start, stop):
    """row (i) = Σ over q in [start, stop) of weights[q] · x[examples[q]]."""
    weighted_sum(address_of(row), x, row.size, address_of(examples), address_of(weights), start, stop)


@kernel
def squared_norm(values, columns, x, B, n, i, k):
    """Σ of the squares of gᵀx."""
    starts, examples = np.empty(n + 2, np.int32), np.empty(B * k, np.int32)
    weights, row, total = np.empty(B * k, np.float32), np.empty(i, np.float32), 0.0
    by_column(values, columns, B, n, k, starts, examples, weights)
    for j in range(n):
        if starts[j + 1] > starts[j]:
            form_row(row, x, examples, weights, starts[j], starts[j + 1])
            part = np.float32(0)
            for c in range(i):
                part += row[c] * row[c]
            total += part
    return total
