"""Products of a sparse g with dense matrices, as sums of weighted rows.

Of a linear layer, g (B, n) has k entries a row and goes to a weight with rows of i columns; ∂ℓ/∂W = gᵀx is
formed for the columns of g that have entries. Of an LSTM, g (N, m) has k entries a row of many, and products
go in panels: some columns of the dense matrix, row after row, that stay in the processor's cache, LANES
columns of 4H = 2000 rows in 256 KB. Panels are given from outside because a row must not straddle lines of
the cache; torch aligns to 64 bytes, numba to 32.
"""

import numpy as np

from .compile import kernel
from .parallel import LINE, parts_of, share, spread
from .select import add
from .simd import BYTES, address_of, aligned, floats, ints, longs, panel_sum, row_sum

CACHED = 128 << 10  # floats of an x that stays in cache while all rows of gᵀx are formed: 512 KiB
MANY = 8  # entries a row from which a longer x is read so often that panels of it gain more than they cost
LANES = 32
CHUNK, CHUNK_LANES = 256, 64  # of a panel in a product with gᵀ: 64 KB, beside m sums of 64 columns
row_sum_to, row_sum_onto = row_sum(add=False), row_sum(add=True)
combine, add_combine = panel_sum(LANES), panel_sum(LANES, add=True)
combine_lists = panel_sum(CHUNK_LANES, add=True)


@kernel
def weighted_sum(out, base, i, rows, values, start, stop):
    """out (i) = Σ over q in [start, stop) of values[q] · base[rows[q]], all given by address."""
    row_sum_to(out, i, base, i * BYTES, rows, values, start, stop)


@kernel
def weighted_columns(out, base, i, between, rows, values, start, stop):
    """As weighted_sum, for i columns of rows that are `between` floats apart."""
    row_sum_to(out, i, base, between * BYTES, rows, values, start, stop)


@kernel
def add_weighted(out, base, i, rows, values, count):
    """out (i) += Σ over q < count of values[q] · base[rows[q]]."""
    row_sum_onto(out, i, base, i * BYTES, rows, values, 0, count)


@kernel
def by_column(values, columns, B, n, k, starts, examples, weights):
    """Sort entries (B, k) that are not zero by column; return how many columns have any.

    Column j has the entries from starts[j] up to starts[j + 1], each with its example and its value in
    weights. starts (n + 2) is scratch and result.
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


@kernel
def list_columns(starts, n, indices, u):
    """Fill the indices (u) of the columns that have entries."""
    S, listed, at, j = ints(starts, n + 2), longs(indices, u), 0, 0
    while at < u and j < n:  # no branch on the counts, which a processor would often foresee wrongly
        listed[at] = j
        at += S[j + 1] > S[j]
        j += 1


@kernel
def needs_panels(starts, n, B, i, u):
    """Return whether u rows of gᵀx, for x (B, i), are formed faster by panels than from the whole x."""
    return B * i > CACHED and ints(starts, n + 2)[n] > MANY * u


@kernel
def form_part(starts, examples, weights, n, x, i, indices, rows, u, part, parts):
    """Form a part of the rows (u, i) of gᵀx with these indices (u), from the entries by column."""
    S, listed = ints(starts, n + 2), longs(indices, u)
    start, stop = share(part, parts, u, 1)
    for q in range(start, stop):
        j = listed[q]
        weighted_sum(rows + q * i * BYTES, x, i, examples, weights, S[j], S[j + 1])


@kernel
def chunk_starts(starts, examples, n, B, indices, u):
    """Return where the entries of each row begin (chunks, u) in each chunk of CHUNK examples, and their ends
    (1, u)."""
    S, listed, chunks = ints(starts, n + 2), longs(indices, u), (B + CHUNK - 1) // CHUNK
    E, begins = ints(examples, S[n]), np.empty((chunks + 1, u), np.int32)
    for q in range(u):
        at, stop = S[listed[q]], S[listed[q] + 1]
        for c in range(chunks):
            begins[c, q] = at
            while at < stop and E[at] < (c + 1) * CHUNK:
                at += 1
        begins[chunks, q] = stop
    return begins


@kernel
def panels_part(job, part, parts):
    begins, examples, weights, x, B, i, rows = job
    (ends, u), stride = begins.shape, CHUNK_LANES * BYTES
    panel = aligned(CHUNK * CHUNK_LANES).reshape((CHUNK, CHUNK_LANES))
    sums = aligned(u * CHUNK_LANES).reshape((u, CHUNK_LANES))
    X, R = floats(x, (B, i)), floats(rows, (u, i))
    start, stop = share(part, parts, i, CHUNK_LANES)
    for column in range(start, stop, CHUNK_LANES):
        sums[:] = 0
        for c in range(ends - 1):
            first = c * CHUNK
            fill(panel[: B - first], X, first, column)
            for q in range(u):
                combine_lists(
                    address_of(sums) + q * stride, address_of(panel) - first * stride, stride,
                    examples, weights, begins[c, q], begins[c + 1, q],
                )  # fmt: skip
        store(sums, R, column)


@kernel
def form_by_panels(starts, examples, weights, n, x, B, i, indices, rows, u, threads):
    """Form the rows (u, i) of gᵀx as form_part, some columns after others, for an x that is not in cache."""
    begins = chunk_starts(starts, examples, n, B, indices, u)
    count, work = (i + CHUNK_LANES - 1) // CHUNK_LANES, ints(starts, n + 2)[n] * i
    spread(panels_part, (begins, examples, weights, x, B, i, rows), parts_of(threads, count, work), threads)


@kernel
def sum_part(job, part, parts):
    rows, B, n, out = job
    start, stop = share(part, parts, n, LINE)
    total = floats(out + start * BYTES, stop - start)
    total[:] = 0
    for b in range(B):
        add(total, floats(rows + (b * n + start) * BYTES, stop - start))


@kernel
def sum_rows(rows, B, n, out, threads):
    """out (n) = the sum of the rows (B, n), from the first to the last."""
    spread(sum_part, (rows, B, n, out), parts_of(threads, n // LINE, B * n), threads)


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
def store(panel, matrix, column):
    """Some columns of the matrix (rows, n) ← panel (rows, lanes), without what is beyond its last column."""
    width = min(panel.shape[1], matrix.shape[1] - column)
    for r in range(len(panel)):
        to, of = matrix[r, column : column + width], panel[r]
        for j in range(width):
            to[j] = of[j]


@kernel
def pack_part(job, part, parts):
    matrix, panels, m, n = job
    M, count = floats(matrix, (m, n)), (n + LANES - 1) // LANES
    P = floats(panels, (count, m, LANES))
    start, stop = share(part, parts, count, 1)
    for p in range(start, stop):
        fill(P[p], M, 0, p * LANES)


@kernel
def pack(matrix, panels, m, n, threads):
    """Fill all panels (m, LANES) of a matrix (m, n)."""
    count = (n + LANES - 1) // LANES
    spread(pack_part, (matrix, panels, m, n), parts_of(threads, count, m * n), threads)


@kernel
def times_panel(values, columns, N, k, panel, out, n, column, add):
    """LANES columns of out (N, n) ← g · W, plus what is there if `add`, where the panel holds these columns
    of W."""
    Z, rest, width = floats(out, (N, n)), np.empty(LANES, np.float32), min(LANES, n - column)
    for r in range(N):
        to, start, stop = out + (r * n + column) * BYTES, r * k, (r + 1) * k
        if width == LANES and add:
            add_combine(to, panel, LANES * BYTES, columns, values, start, stop)
        elif width == LANES:
            combine(to, panel, LANES * BYTES, columns, values, start, stop)
        else:
            combine(rest.ctypes.data, panel, LANES * BYTES, columns, values, start, stop)
            for j in range(width):
                Z[r, column + j] = Z[r, column + j] + rest[j] if add else rest[j]


@kernel
def packed_part(job, part, parts):
    values, columns, N, k, panels, m, n, out = job
    start, stop = share(part, parts, (n + LANES - 1) // LANES, 1)
    for p in range(start, stop):
        times_panel(values, columns, N, k, panels + p * m * LANES * BYTES, out, n, p * LANES, False)


@kernel
def product_packed(values, columns, N, k, panels, m, n, out, threads):
    """out (N, n) = g · W for W (m, n) in panels."""
    job, count = (values, columns, N, k, panels, m, n, out), (n + LANES - 1) // LANES
    spread(packed_part, job, parts_of(threads, count, N * k * n), threads)


@kernel
def product_part(job, part, parts):
    values, columns, N, k, matrix, m, n, out, plus, panels = job
    panel = panels + part * m * LANES * BYTES
    M, P = floats(matrix, (m, n)), floats(panel, (m, LANES))
    start, stop = share(part, parts, n, LANES)
    for column in range(start, stop, LANES):
        fill(P, M, 0, column)
        times_panel(values, columns, N, k, panel, out, n, column, plus)


@kernel
def product(values, columns, N, k, matrix, m, n, out, plus, panels, threads):
    """out (N, n) = g · W for W (m, n), plus out if `plus`; panels (threads, m, LANES) are scratch."""
    job, count = (values, columns, N, k, matrix, m, n, out, plus, panels), (n + LANES - 1) // LANES
    spread(product_part, job, min(threads, parts_of(threads, count, N * k * n)), threads)


@kernel
def by_chunk(values, columns, N, m, k, starts, rows, weights, total):
    """Sort the entries of g by chunk of CHUNK rows, then by column: list j of chunk c is number c · m + j.

    starts (chunks · m + 1) are the lists' offsets; rows, weights (N · k) hold each entry's row in its chunk
    and its value, total (m) the sum of each column.
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
def transposed_part(job, part, parts):
    starts, rows, weights, N, m, matrix, n, out, panels, totals = job
    chunks, stride = (N + CHUNK - 1) // CHUNK, CHUNK_LANES * BYTES
    panel, sums = panels + part * CHUNK * stride, totals + part * m * stride
    start, stop = share(part, parts, n, CHUNK_LANES)
    S, M, Z = ints(starts, chunks * m + 1), floats(matrix, (N, n)), floats(out, (m, n))
    P, T = floats(panel, (CHUNK, CHUNK_LANES)), floats(sums, (m, CHUNK_LANES))
    for column in range(start, stop, CHUNK_LANES):
        T[:] = 0
        for c in range(chunks):
            fill(P[: N - c * CHUNK], M, c * CHUNK, column)
            for j in range(m):
                list_ = c * m + j
                combine_lists(sums + j * stride, panel, stride, rows, weights, S[list_], S[list_ + 1])
        store(T, Z, column)


@kernel
def transposed_product(starts, rows, weights, N, m, matrix, n, out, panels, sums, threads):
    """out (m, n) = gᵀ · matrix (N, n) by the lists of `by_chunk`.

    panels (threads, CHUNK, CHUNK_LANES) and sums (threads, m, CHUNK_LANES) are scratch.
    """
    job = (starts, rows, weights, N, m, matrix, n, out, panels, sums)
    count = (n + CHUNK_LANES - 1) // CHUNK_LANES
    entries = ints(starts, (N + CHUNK - 1) // CHUNK * m + 1)[-1]
    spread(transposed_part, job, min(threads, parts_of(threads, count, entries * n)), threads)
