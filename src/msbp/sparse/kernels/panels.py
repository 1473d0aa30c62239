"""Products of a sparse g (N, m) with a dense matrix, in panels of columns that stay in the processor's cache.

g has k entries a row, values and columns (N, k). A panel holds some columns of the dense matrix, row after
row, so that an entry costs one load from a place that is near: LANES columns of 4H = 2000 rows are 256 KB.
Panels come from outside because a row must not straddle lines of the cache; torch aligns to 64 bytes, numba
to 32.
"""

import numpy as np

from .compile import kernel
from .panel_sum import BYTES, panel_sum
from .simd import floats, ints

LANES = 32
CHUNK, CHUNK_LANES = 256, 64  # of a panel in a product with gᵀ: 64 KB, beside m sums of 64 columns
combine, add_combine = panel_sum(LANES), panel_sum(LANES, add=True)
combine_lists = panel_sum(CHUNK_LANES, add=True)


@kernel
def fill(panel, matrix, first, column):
    """panel (rows, lanes) ← some columns of the matrix from row `first` on, zeros beyond its last column."""
    rows, lanes = panel.shape
    width = min(lanes, matrix.shape[1] - column)
    for r in range(rows):
        to, of = panel[r], matrix[first + r, column : column + width]
        for j in range(width):
            to[j] = of[j]
        for j in range(width, lanes):
            to[j] = 0


@kernel
def pack(matrix, panels, m, n):
    """All panels (m, LANES) of a matrix (m, n), one after the other."""
    M, count = floats(matrix, (m, n)), (n + LANES - 1) // LANES
    P = floats(panels, (count, m, LANES))
    for p in range(count):
        fill(P[p], M, 0, p * LANES)


@kernel
def times_panel(values, columns, N, k, panel, out, n, column, add):
    """LANES columns of out (N, n) ← g · W, plus what is there if `add`, where the panel holds these columns
    of W."""
    Z, rest, width = floats(out, (N, n)), np.empty(LANES, np.float32), min(LANES, n - column)
    for r in range(N):
        place, start, stop = out + (r * n + column) * BYTES, r * k, (r + 1) * k
        if width == LANES and add:
            add_combine(place, panel, LANES * BYTES, columns, values, start, stop)
        elif width == LANES:
            combine(place, panel, LANES * BYTES, columns, values, start, stop)
        else:
            combine(rest.ctypes.data, panel, LANES * BYTES, columns, values, start, stop)
            for j in range(width):
                Z[r, column + j] = Z[r, column + j] + rest[j] if add else rest[j]


@kernel
def product_packed(values, columns, N, k, panels, m, n, out):
    """out (N, n) = g · W for W (m, n) that comes packed."""
    for p in range((n + LANES - 1) // LANES):
        times_panel(values, columns, N, k, panels + p * m * LANES * BYTES, out, n, p * LANES, False)


@kernel
def product(values, columns, N, k, matrix, m, n, out, add, panel):
    """out (N, n) = g · W for W (m, n), plus what is there if `add`; panel (m, LANES) is scratch."""
    M, P = floats(matrix, (m, n)), floats(panel, (m, LANES))
    for column in range(0, n, LANES):
        fill(P, M, 0, column)
        times_panel(values, columns, N, k, panel, out, n, column, add)


@kernel
def by_chunk(values, columns, N, m, k, starts, rows, weights, total):
    """Sort the entries of g by chunk of CHUNK rows, then by column: list j of chunk c is number c · m + j.

    starts (chunks · m + 1): where a list begins; rows, weights (N · k): the row in its chunk and the value of
    each entry; total (m): the sum of each column.
    """
    lists = (N + CHUNK - 1) // CHUNK * m
    V, K, T = floats(values, (N, k)), ints(columns, (N, k)), floats(total, m)
    S, R, W = ints(starts, lists + 1), ints(rows, N * k), floats(weights, N * k)
    S[:] = 0
    T[:] = 0
    for r in range(N):
        first = r // CHUNK * m
        for q in range(k):
            S[first + K[r, q]] += 1
            T[K[r, q]] += V[r, q]
    at = 0
    for j in range(lists + 1):
        at, S[j] = at + S[j], at
    for r in range(N):
        first = r // CHUNK * m
        for q in range(k):
            at = S[first + K[r, q]]
            S[first + K[r, q]] = at + 1
            R[at], W[at] = r % CHUNK, V[r, q]
    for j in range(lists, 0, -1):  # every list's start has moved on to the next one's
        S[j] = S[j - 1]
    S[0] = 0


@kernel
def transposed_product(starts, rows, weights, N, m, matrix, n, out, panel, sums):
    """out (m, n) = gᵀ · matrix (N, n) by the lists of `by_chunk`; panel (CHUNK, ·) and sums (m, CHUNK_LANES)
    are scratch."""
    chunks, stride = (N + CHUNK - 1) // CHUNK, CHUNK_LANES * BYTES
    S, M, Z = ints(starts, chunks * m + 1), floats(matrix, (N, n)), floats(out, (m, n))
    P, T = floats(panel, (CHUNK, CHUNK_LANES)), floats(sums, (m, CHUNK_LANES))
    for column in range(0, n, CHUNK_LANES):
        T[:] = 0
        for c in range(chunks):
            fill(P[: N - c * CHUNK], M, c * CHUNK, column)
            for j in range(m):
                list_ = c * m + j
                combine_lists(sums + j * stride, panel, stride, rows, weights, S[list_], S[list_ + 1])
        width = min(CHUNK_LANES, n - column)
        for j in range(m):
            to, of = Z[j, column : column + width], T[j]
            for i in range(width):
                to[i] = of[i]
