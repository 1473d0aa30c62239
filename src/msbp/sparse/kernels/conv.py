"""Convolution: maxima over windows, selection among rows of channels, and gradients from single entries.

Letters: U distinct rows of x, E their width, N positions, B sentences, F channels, w positions of a window,
R rows, M entries, k kept. The index of an empty position is negative. Threads divide the sentences, channels
or rows of x among them, whichever a result has.
"""

import numpy as np

from .compile import kernel
from .parallel import parts_of, share, spread
from .rows import weighted_sum
from .select import (
    FIRST_DISTANCE,
    INFINITE,
    NOT_FINITE,
    largest_magnitude,
    search_arrays,
    search_size,
    sparsify,
    top_k,
    whole_lanes,
)
from .simd import BYTES, address_of


@kernel
def widen(margin, rows, index, offsets, wide, wide_offsets):
    """Copy index and offsets with `margin` empty positions on both sides of each sentence.

    Return False if the offsets do not partition the index into sentences, or an index is out of range.
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
def best_part(job, part, parts):
    window, y, index, offsets, bias, best, start = job
    channels = bias.size
    h = np.empty(channels, y.dtype)
    begin, end = share(part, parts, offsets.size - 1, 1)
    for b in range(begin, end):
        first, high, argmax = offsets[b], best[b], start[b]
        for at in range(first, offsets[b + 1] - window + 1):
            for f in range(channels):
                h[f] = bias[f]
            for j in range(window):
                if index[at + j] >= 0:
                    part = y[index[at + j]][j * channels : (j + 1) * channels]
                    for f in range(channels):
                        h[f] += part[f]
            for f in range(channels):
                # the last term lets a NaN reach the loss
                larger = (at == first) | (h[f] > high[f]) | (h[f] != h[f])
                high[f] = h[f] if larger else high[f]
                argmax[f] = at if larger else argmax[f]


@kernel
def best_windows(window, y, index, offsets, bias, best, start, threads):
    """best (B, F) = maximum over windows of h, start (B, F) = position of the argmax; ties go to the first.

    y (U, w F) holds each row of x times each slice of the weight, so h is the sum of w shifted rows of y.
    """
    job, work = (window, y, index, offsets, bias, best, start), index.size * y.shape[1]
    spread(best_part, job, parts_of(threads, offsets.size - 1, work), threads)


@kernel
def by_channel(values, channels, count):
    """Return the offsets (F + 2) of channels among the entries that are not zero, and their order."""
    begin = np.zeros(count + 2, np.int64)
    for q in range(values.size):
        if values[q] != 0:
            begin[channels[q] + 2] += 1
    for f in range(count):
        begin[f + 2] += begin[f + 1]
    order = np.empty(begin[count + 1], np.int64)
    for q in range(values.size):
        if values[q] != 0:
            order[begin[channels[q] + 1]] = q
            begin[channels[q] + 1] += 1
    return begin, order


@kernel
def weight_part(job, part, parts):
    values, begin, order, positions, index, shifts, x, grad_weight, grad_bias = job
    count, window, width = grad_weight.shape
    rows, kept = np.empty(order.size, np.int32), np.empty(order.size, np.float32)
    start, stop = share(part, parts, count, 1)
    out = address_of(grad_weight) + start * window * width * BYTES
    for f in range(start, stop):
        mine = order[begin[f] : begin[f + 1]]
        grad_bias[f] = 0
        for q in mine:
            grad_bias[f] += values[q]
        for j in range(window):
            m = 0
            for q in mine:
                if index[positions[q] + shifts[j]] >= 0:
                    rows[m], kept[m] = index[positions[q] + shifts[j]], values[q]
                    m += 1
            weighted_sum(out, address_of(x), width, address_of(rows), address_of(kept), 0, m)
            out += width * BYTES


@kernel
def weight_gradient(values, channels, positions, index, shifts, x, grad_weight, grad_bias, threads):
    """Form ∂ℓ/∂W (F, w, E) and ∂ℓ/∂b (F) of the entries.

    A window that starts at p has the positions p + shifts (w).
    """
    count, window, width = grad_weight.shape
    begin, order = by_channel(values, channels, count)
    job = (values, begin, order, positions, index, shifts, x, grad_weight, grad_bias)
    spread(weight_part, job, parts_of(threads, count, (order.size + count) * window * width), threads)


@kernel
def input_part(job, part, parts):
    starts, slices, shares, weight, grad_x = job
    width, (start, stop) = weight.shape[2], share(part, parts, len(grad_x), 1)
    for u in range(start, stop):
        row, base = address_of(grad_x) + u * width * BYTES, address_of(weight)
        # addresses are taken here, because numba frees an array behind its last use by name
        weighted_sum(row, base, width, address_of(slices), address_of(shares), starts[u], starts[u + 1])


@kernel
def input_gradient(values, channels, positions, index, shifts, weight, grad_x, threads):
    """Form ∂ℓ/∂x (U, E) of the entries; weight is (F, w, E)."""
    window, count = weight.shape[1], len(grad_x)
    starts = np.zeros(count + 2, np.int64)
    for q in range(values.size):
        if values[q] != 0:
            for j in range(window):
                if index[positions[q] + shifts[j]] >= 0:
                    starts[index[positions[q] + shifts[j]] + 2] += 1
    for u in range(count):
        starts[u + 2] += starts[u + 1]
    slices, shares = np.empty(starts[count + 1], np.int32), np.empty(starts[count + 1], np.float32)
    for q in range(values.size):
        if values[q] != 0:
            for j in range(window):
                if index[positions[q] + shifts[j]] >= 0:
                    at = starts[index[positions[q] + shifts[j]] + 1]
                    slices[at], shares[at] = channels[q] * window + j, values[q]
                    starts[index[positions[q] + shifts[j]] + 1] = at + 1
    job, work = (starts, slices, shares, weight, grad_x), (slices.size + count) * weight.shape[2]
    spread(input_part, job, parts_of(threads, count, work), threads)


@kernel
def rows_with_gradient(gradient, start, offsets, position, example, rows):
    """Sum ∂ℓ/∂h of the argmax entries (B, F) by position: rows (R, F), their positions and sentences (R).

    The outputs have a row for every position, zero in `rows`. Return R.
    """
    count, row_of = 0, np.full(offsets[-1], -1, np.int64)
    for b in range(len(gradient)):
        for f in range(gradient.shape[1]):
            if gradient[b, f] != 0:
                row_of[start[b, f]] = 0
        for at in range(offsets[b], offsets[b + 1]):
            if row_of[at] == 0:
                row_of[at], position[count], example[count] = count, at, b
                count += 1
        for f in range(gradient.shape[1]):
            if gradient[b, f] != 0:
                rows[row_of[start[b, f]], f] = gradient[b, f]
    return count


@kernel
def keep_largest(v, k, out):
    """out (R, F) = v with all but the k largest magnitudes of each row set to zero, ties to the lowest index.

    A row that holds a NaN or an infinity is copied as it is, for the caller to detect it.
    """
    width = v.shape[1]
    bits = np.zeros(whole_lanes(width), np.int32)
    row, distance = bits.view(np.float32), np.int64(FIRST_DISTANCE)
    search = search_arrays(np.zeros(3 * search_size(width), np.int32), width)
    for r in range(len(v)):
        to, of = out[r], v[r]
        for f in range(width):
            row[f], to[f] = of[f], 0
        largest = largest_magnitude(bits)
        if largest >= INFINITE:
            for f in range(width):
                to[f] = of[f]
            continue
        count, distance = top_k(bits, k, largest, distance, search)
        kept = search[2]
        for q in range(count):
            to[kept[q]] = of[kept[q]]


@kernel
def keep_entries(k, gamma, v, m, position, values, channels, windows, m_next):
    """List the k largest of each row of v + m (R, F) as entries; return how many, or -1 if one is not finite.

    m (F) is a shared memory, and m_next (F) γ times the mean of what the rows do not propagate.
    """
    width, listed = v.shape[1], 0
    bits = np.zeros(whole_lanes(width), np.int32)
    row, distance, one = bits.view(np.float32), np.int64(FIRST_DISTANCE), np.float32(1)
    search = search_arrays(np.zeros(3 * search_size(width), np.int32), width)
    m_next[:] = 0
    for r in range(len(v)):
        of = v[r]
        for f in range(width):
            row[f] = of[f]
        V, C = values[listed : listed + k], channels[listed : listed + k]
        count, distance = sparsify(bits, m, one, m_next, True, k, distance, search, V, C, 0)
        if count < 0:
            return NOT_FINITE
        for q in range(listed, listed + count):
            windows[q] = position[r]
        listed += count
    for f in range(width):
        m_next[f] *= np.float32(gamma / len(v))
    return listed
