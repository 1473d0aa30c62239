"""Sums of weighted rows, the one product that sparse gradients need, and the lists of entries by column.

Letters: B batch, n width of the layer, k kept, i width of the rows that are summed.
"""

import numpy as np

from .compile import kernel
from .intrinsics import floats, ints
from .panel_sum import BYTES, panel_sum

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
    """Sort selected entries (B, k) by column: column j has the entries from starts[j] up to starts[j + 1].

    starts (n + 2) is scratch and result; entry q stands in examples[q] and weighs weights[q].
    """
    V, K = floats(values, B * k), ints(columns, B * k)
    for j in range(n + 2):
        starts[j] = 0
    for q in range(B * k):
        starts[K[q] + 2] += 1
    for j in range(n):
        starts[j + 2] += starts[j + 1]
    for b in range(B):
        for q in range(b * k, b * k + k):
            at = starts[K[q] + 1]
            starts[K[q] + 1] = at + 1
            examples[at] = b
            weights[at] = V[q]
