"""Kernels of windows.py: maxima over windows, gradients from single entries, and the largest of many rows.

Letters as in windows.py: U distinct rows of x, E width, N places, B sentences, F maps, w window, M entries.
The index is negative at an empty place.
"""

import numpy as np

from .compile import kernel
from .intrinsics import address_of
from .rows import BYTES, weighted_sum
from .select import INFINITE, LANES, MAGNITUDE, top_k


@kernel
def best_windows(y, index, offsets, bias, window, best, start):
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
def weight_gradient(values, maps, places, index, x, grad_weight, grad_bias):
    """∂ℓ/∂W (F, w, E) and ∂ℓ/∂b (F) of the entries, all written anew."""
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
                if index[places[q] + j] >= 0:
                    rows[m], kept[m] = index[places[q] + j], values[q]
                    m += 1
            weighted_sum(out, address_of(x), width, address_of(rows), address_of(kept), 0, m)
            out += width * BYTES


@kernel
def input_gradient(values, maps, places, index, weight, grad_x):
    """Add ∂ℓ/∂x (U, E) of the entries to grad_x; weight is (F, w, E)."""
    for q in range(values.size):
        value = values[q]
        if value != 0:
            for j in range(weight.shape[1]):
                place = index[places[q] + j]
                if place >= 0:
                    out, row = grad_x[place], weight[maps[q], j]
                    for i in range(out.size):
                        out[i] += value * row[i]


@kernel
def keep_largest(v, k, out):
    """out (R, F) = v with all but the k largest magnitudes of each row set to zero, ties to the lowest index.

    A row that holds a NaN or an infinity is copied as it is, for the caller to find it.
    """
    width = v.shape[1]
    lanes = (width + LANES - 1) // LANES * LANES
    scratch, magnitudes = np.zeros(lanes, np.float32), np.zeros(lanes + LANES, np.int32)
    candidates, kept = np.empty(lanes + LANES, np.int32), np.empty(lanes + LANES, np.int32)
    bits, distance = scratch.view(np.int32), np.int64(1 << 23)
    for r in range(len(v)):
        row, to, largest = v[r], out[r], np.int32(0)
        for f in range(width):
            scratch[f] = row[f]
            to[f] = 0
        for f in range(width):
            largest = max(largest, np.int32(bits[f] & MAGNITUDE))
        if largest >= INFINITE:
            for f in range(width):
                to[f] = row[f]
            continue
        count, distance = top_k(bits, lanes, k, np.int64(largest), distance, candidates, magnitudes, kept)
        for q in range(count):
            to[kept[q]] = row[kept[q]]
