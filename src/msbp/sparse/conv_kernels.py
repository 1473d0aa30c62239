"""Kernels of windows.py: the maximum over windows, and gradients from single entries.

Letters as in windows.py: U distinct rows of x, E width, N places, B sentences, F maps, w window, M entries.
The index is negative at an empty place.
"""

import numpy as np
from numba import njit

# reassociation lets sums be vectorised; NaN and infinity keep their meaning
jit = njit(cache=True, nogil=True, error_model="numpy", fastmath={"nsz", "reassoc", "contract"})


@jit
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


@jit
def add_rows(out, base, rows, values, count):
    """out += Σ over q < count of values[q] · base[rows[q]]; eight at a time spares traffic of out."""
    q = 0
    while q + 8 <= count:
        a, b, c, d = values[q], values[q + 1], values[q + 2], values[q + 3]
        e, f, g, h = values[q + 4], values[q + 5], values[q + 6], values[q + 7]
        s, t, u, v = base[rows[q]], base[rows[q + 1]], base[rows[q + 2]], base[rows[q + 3]]
        w, x, y, z = base[rows[q + 4]], base[rows[q + 5]], base[rows[q + 6]], base[rows[q + 7]]
        for i in range(out.size):
            low = a * s[i] + b * t[i] + c * u[i] + d * v[i]
            out[i] += low + e * w[i] + f * x[i] + g * y[i] + h * z[i]
        q += 8
    while q < count:
        a, s = values[q], base[rows[q]]
        for i in range(out.size):
            out[i] += a * s[i]
        q += 1


@jit
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


@jit
def weight_gradient(values, maps, places, index, x, grad_weight, grad_bias):
    """∂ℓ/∂W (F, w, E) and ∂ℓ/∂b (F) of the entries, all written anew."""
    count, window, _ = grad_weight.shape
    begin, order = by_map(values, maps, count)
    rows, kept = np.empty(order.size, np.int64), np.empty(order.size, values.dtype)
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
            out = grad_weight[f, j]
            for i in range(out.size):
                out[i] = 0
            add_rows(out, x, rows, kept, m)


@jit
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
