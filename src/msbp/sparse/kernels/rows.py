"""Sums of weighted rows, the one product that sparse gradients need, and the lists of entries by column.

Letters: B batch, n width of the layer, k kept, i width of the rows that are summed.
"""

import numpy as np

from .compile import kernel
from .panel_sum import BYTES, panel_sum
from .simd import floats, ints, longs

_panel64, _panel16, _panel4, _panel1 = panel_sum(64), panel_sum(16), panel_sum(4), panel_sum(1)


@kernel
def add(row, other):
    for c in range(row.size):
        row[c] += other[c]


@kernel
def weighted_sum(out, base, i, rows, values, start, stop):
    """out (i) = Σ over q in [start, stop) of values[q] · base[rows[q]], all given by address."""
    weighted_columns(out, base, i, i, rows, values, start, stop)


@kernel
def weighted_columns(out, base, i, between, rows, values, start, stop):
    """The same for i columns of longer rows, which lie `between` floats apart."""
    at, end, stride = np.int64(0), i * BYTES, between * BYTES
    while at + 64 * BYTES <= end:
        _panel64(out + at, base + at, stride, rows, values, start, stop)
        at += 64 * BYTES
    if at < end and i >= 64:  # the last 64 columns overlap those before, which beats small pieces
        at = end - 64 * BYTES
        _panel64(out + at, base + at, stride, rows, values, start, stop)
        return
    while at + 16 * BYTES <= end:
        _panel16(out + at, base + at, stride, rows, values, start, stop)
        at += 16 * BYTES
    while at + 4 * BYTES <= end:
        _panel4(out + at, base + at, stride, rows, values, start, stop)
        at += 4 * BYTES
    while at < end:
        _panel1(out + at, base + at, stride, rows, values, start, stop)
        at += BYTES


@kernel
def by_column(values, columns, B, n, k, starts, examples, weights):
    """Sort selected entries (B, k) by column, without those that are zero; return how many columns have any.

    Column j has the entries from starts[j] up to starts[j + 1]; entry q stands in examples[q] and weighs
    weights[q]. starts (n + 2) is scratch and result.
    """
    V, K, S = floats(values, B * k), ints(columns, B * k), ints(starts, n + 2)
    E, W = ints(examples, B * k), floats(weights, B * k)
    S[:] = 0
    for q in range(B * k):
        S[K[q] + 2] += V[q] != 0
    touched = 0
    for j in range(n):
        touched += S[j + 2] > 0
        S[j + 2] += S[j + 1]
    for b in range(B):
        for q in range(b * k, b * k + k):
            if V[q] != 0:
                at = S[K[q] + 1]
                S[K[q] + 1] = at + 1
                E[at], W[at] = b, V[q]
    return touched


CACHED = 1 << 16  # floats of x that are worked on at a time: 256 KiB


@kernel
def panel_width(B, i):
    """Return how many columns of x (B, i) fit into cache: all, or a multiple of 64."""
    return i if B * i <= 2 * CACHED else min(i, max(64, CACHED // B // 64 * 64))


@kernel
def form_rows(starts, examples, weights, n, x, B, i, indices, rows):
    """Fill the rows (u, i) of gᵀx that are not zero, and their indices (u), from the entries by column."""
    S, found, u = ints(starts, n + 2), longs(indices, n), 0
    for j in range(n):
        if S[j + 1] > S[j]:
            found[u] = j
            u += 1
    step = panel_width(B, i)
    for begin in range(0, i, step):
        width = min(step, i - begin)
        for q in range(u):
            j, out = found[q], rows + (q * i + begin) * BYTES
            weighted_columns(out, x + begin * BYTES, width, i, examples, weights, S[j], S[j + 1])
