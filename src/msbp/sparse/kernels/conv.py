"""Kernels of patches.py: maxima over windows, and gradients from single entries.

Letters as in patches.py: U distinct rows of x, E width, N places, B sentences, F maps, w window, M entries.
The index is negative at an empty place.
"""

import numpy as np

from .compile import kernel
from .rows import BYTES, weighted_sum
from .simd import address_of


@kernel
def widen(margin, rows, index, offsets, wide, wide_offsets):
    """Copy index and offsets with `margin` empty places on both sides of each sentence.

    Returns False if the offsets cut the index into no sentences, or an index is none of so many rows.
    """
    if offsets.size < 2 or offsets[0] != 0 or offsets[-1] != index.size:
        return False
    to = 0
    for b in range(offsets.size - 1):
        if offsets[b + 1] <= offsets[b] or offsets[b + 1] > index.size:
            return False
        wide_offsets[b] = to
        for _ in range(margin):
            wide[to] = -1
            to += 1
        for at in range(offsets[b], offsets[b + 1]):
            if not 0 <= index[at] < rows:
                return False
            wide[to] = index[at]
            to += 1
        for _ in range(margin):
            wide[to] = -1
            to += 1
    wide_offsets[-1] = to
    return True


@kernel
def best_windows(window, y, index, offsets, bias, best, start):
    """max over windows of h, best (B, F), and the place where the winner starts (B, F); ties go to the first.

    y (U, w F) holds each row of x times each slice of the weight, so h is the sum of w shifted rows of y.
    """
    maps = bias.size
    h = np.empty(maps, y.dtype)
    for b in range(offsets.size - 1):
        first, high, won = offsets[b], best[b], start[b]
        for at in range(first, offsets[b + 1] - window + 1):
            for f in range(maps):
                h[f] = bias[f]
            for j in range(window):
                if index[at + j] >= 0:
                    part = y[index[at + j]][j * maps : (j + 1) * maps]
                    for f in range(maps):
                        h[f] += part[f]
            for f in range(maps):
                # the last term lets a NaN reach the loss
                wins = (at == first) | (h[f] > high[f]) | (h[f] != h[f])
                high[f] = h[f] if wins else high[f]
                won[f] = at if wins else won[f]


@kernel
def by_map(values, maps, count):
    """The entries that are not zero, sorted by map: where those of a map begin (F + 2), and their order."""
    begin = np.zeros(count + 2, np.int64)
    for q in range(values.size):
        if values[q] != 0:
            begin[maps[q] + 2] += 1
    for f in range(count):
        begin[f + 2] += begin[f + 1]
    order = np.empty(begin[count + 1], np.int64)
    for q in range(values.size):
        if values[q] != 0:
            order[begin[maps[q] + 1]] = q
            begin[maps[q] + 1] += 1
    return begin, order


@kernel
def weight_gradient(values, maps, places, index, shifts, x, grad_weight, grad_bias):
    """∂ℓ/∂W (F, w, E) and ∂ℓ/∂b (F) of the entries, all written anew.

    A window that starts at a place holds those that are shifts (w) further.
    """
    count, window, width = grad_weight.shape
    begin, order = by_map(values, maps, count)
    rows, kept = np.empty(order.size, np.int32), np.empty(order.size, np.float32)
    out = address_of(grad_weight)
    for f in range(count):
        mine = order[begin[f] : begin[f + 1]]
        grad_bias[f] = 0
        for q in mine:
            grad_bias[f] += values[q]
        for j in range(window):
            m = 0
            for q in mine:
                if index[places[q] + shifts[j]] >= 0:
                    rows[m], kept[m] = index[places[q] + shifts[j]], values[q]
                    m += 1
            weighted_sum(out, address_of(x), width, address_of(rows), address_of(kept), 0, m)
            out += width * BYTES


@kernel
def input_gradient(values, maps, places, index, shifts, weight, grad_x):
    """∂ℓ/∂x (U, E) of the entries, all written anew; weight is (F, w, E)."""
    window, count = weight.shape[1], len(grad_x)
    starts = np.zeros(count + 2, np.int64)
    for q in range(values.size):
        if values[q] != 0:
            for j in range(window):
                if index[places[q] + shifts[j]] >= 0:
                    starts[index[places[q] + shifts[j]] + 2] += 1
    for u in range(count):
        starts[u + 2] += starts[u + 1]
    slices, shares = np.empty(starts[count + 1], np.int32), np.empty(starts[count + 1], np.float32)
    for q in range(values.size):
        if values[q] != 0:
            for j in range(window):
                if index[places[q] + shifts[j]] >= 0:
                    at = starts[index[places[q] + shifts[j]] + 1]
                    slices[at], shares[at] = maps[q] * window + j, values[q]
                    starts[index[places[q] + shifts[j]] + 1] = at + 1
    width = weight.shape[2]
    for u in range(count):
        row, base = address_of(grad_x) + u * width * BYTES, address_of(weight)
        # addresses are taken here, because numba frees an array behind its last use by name
        weighted_sum(row, base, width, address_of(slices), address_of(shares), starts[u], starts[u + 1])


@kernel
def rows_with_gradient(gradient, start, offsets, place, example, rows):
    """Sum up ∂ℓ/∂h of the winners (B, F) by place: places that have any (R), their sentences, rows (R, F).

    The outputs have room for every place and, in `rows`, zeros. Returns R.
    """
    count, row_of = 0, np.full(offsets[-1], -1, np.int64)
    for b in range(len(gradient)):
        for f in range(gradient.shape[1]):
            if gradient[b, f] != 0:
                row_of[start[b, f]] = 0
        for at in range(offsets[b], offsets[b + 1]):
            if row_of[at] == 0:
                row_of[at], place[count], example[count] = count, at, b
                count += 1
        for f in range(gradient.shape[1]):
            if gradient[b, f] != 0:
                rows[row_of[start[b, f]], f] = gradient[b, f]
    return count
