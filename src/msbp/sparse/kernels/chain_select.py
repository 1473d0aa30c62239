"""The estimate of ∂ℓ/∂h of one sparse stage of a chain, row after row in cache.

From ∂ℓ/∂z on, the paper's Algorithm 2 begins, with select.sparsify for each row, by

    g ← top_k(∂ℓ/∂h + m)
    m ← γ(∂ℓ/∂h + m − g)

Letters: B batch, n outputs of a stage, k kept. A stage gets ∂ℓ/∂z as a matrix, or as the factors of the stage
above (entries and weight), whose product is formed one row at a time. Rows of the batch are divided among
threads, except in what goes from one to the next; what sums over them does so in their order.
"""

import numpy as np

from .chain_forward import NONE, PER_SLOT, RELU, SEQUENTIAL, SHARED, keep_scale, stage_table
from .compile import kernel
from .parallel import PARTS, parts_of, share, spread
from .rows import sum_rows, weighted_sum
from .select import (
    INFINITE,
    add,
    carry,
    largest_magnitude,
    move,
    remember,
    search_arrays,
    search_size,
    sparsify,
    top_k,
    whole_lanes,
)
from .simd import BYTES, floats, ints

SELECTION = 10  # top-k and memory of a row take as long as reading so many rows


@kernel
def row_bytes(n):
    """Return the size of the scratch memory for one row of n outputs: itself, top_k's arrays and a sum."""
    return 5 * search_size(n) * BYTES


@kernel
def scratch_bytes(n, B, threads):
    """Return the size of the scratch memory for stages of at most n outputs: for each part, and all rows."""
    return row_bytes(n) + (PARTS * threads * row_bytes(n) + B * n * BYTES if threads > 1 else 0)


@kernel
def row_and_search(s, scratch):
    """Return n, a row (n) at scratch and its bits in whole lanes, zero beyond its end, and top_k's arrays."""
    n, size = s.outputs, search_size(s.outputs)
    bits = ints(scratch, whole_lanes(n))
    bits[n:] = 0
    return n, floats(scratch, n), bits, search_arrays(ints(scratch + size * BYTES, 3 * size), n)


@kernel
def form_grad_h(address, b, s, grad, above):
    """Write ∂ℓ/∂h (n) of example b to an address."""
    n = s.outputs
    row = floats(address, n)
    if grad:
        source = floats(grad + b * n * BYTES, n)
        for j in range(n):
            row[j] = source[j]
    elif above.k:
        at = b * above.k * BYTES
        weighted_sum(address, above.weight, n, above.columns + at, above.values + at, 0, above.k)
    else:
        at = b * above.outputs * BYTES
        weighted_sum(address, above.weight, n, above.columns, above.grad_h + at, 0, above.outputs)
    if s.activation == RELU:
        z, scale = floats(s.z + b * n * BYTES, n), keep_scale(s.p)
        for j in range(n):
            row[j] = np.float32(0) if z[j] <= 0 else row[j] * scale  # a NaN passes
    elif s.slope:
        slope = floats(s.slope + b * n * BYTES, n)
        for j in range(n):
            row[j] *= slope[j]


@kernel
def memory_before(s, b):
    """Return the memory (n) that example b adds; it has width 0 if there is none."""
    n = s.outputs
    if s.kind == SHARED or (s.kind == SEQUENTIAL and b == 0):
        return floats(s.memory, n)
    if s.kind == SEQUENTIAL:
        return floats(s.memory_next, n)
    if s.kind == PER_SLOT and b < s.slots:
        return floats(s.memory + b * n * BYTES, n)
    return floats(0, 0)


@kernel
def memory_after(s, b, rest):
    """Return the memory (n) that the rest of example b goes to; it has width 0 if there is none.

    rest (B, n) or 0: where the rests of a shared memory wait to be summed.
    """
    if s.kind == NONE:
        return floats(0, 0)
    to, at = rest if rest else s.memory_next, b * s.outputs * BYTES
    return floats(to + (at if rest or s.kind == PER_SLOT else 0), s.outputs)


@kernel
def entries_of(s, b):
    """Return values and columns (k) of example b."""
    at = b * s.k * BYTES
    return floats(s.values + at, s.k), ints(s.columns + at, s.k)


@kernel
def add_entries(s, B, grad_bias):
    """Add the entries of all examples to a sum over them."""
    for b in range(B):
        values, columns = entries_of(s, b)
        for q in range(s.k):
            if values[q] != 0:
                grad_bias[columns[q]] += values[q]


@kernel
def skips(s, bits):
    """Return whether a row of ∂ℓ/∂h, given by its bits, is one of zeros to which no memory is added."""
    return s.skip_zero_rows and s.kind == SHARED and largest_magnitude(bits) == 0


@kernel
def select_part(job, part, parts):
    """Estimate the rows of ∂ℓ/∂h of a part on their own.

    estimated[part] ← how many were, or -1 if one is not finite. With several parts, the rests of a shared
    memory go to `rest`.
    """
    table, count, depth, grad, B, scratch, grad_bias, distance, estimated = job
    stages, shared = stage_table(table, count), 0
    s, above = stages[depth], stages[min(depth + 1, count - 1)]
    if s.kind == SHARED and parts > 1:
        shared = scratch + parts * row_bytes(s.outputs)
    scratch += part * row_bytes(s.outputs)
    n, row, bits, search = row_and_search(s, scratch)
    accumulate, bias = s.kind == SHARED and parts == 1, floats(grad_bias, n)
    gamma, counted = np.float32(1 if s.kind == SHARED else s.gamma), 0
    start, stop = share(part, parts, B, 1)
    for b in range(start, stop):
        form_grad_h(scratch, b, s, grad, above)
        m, m_next, (values, columns) = memory_before(s, b), memory_after(s, b, shared), entries_of(s, b)
        if skips(s, bits):
            move(row, search[2], 0, values, columns, 0)
            if shared:
                m_next[:] = 0
            continue
        counted += 1
        if s.dense_bias:
            add(bias, row)
        entries, distance = sparsify(
            bits, m, gamma, m_next, accumulate, s.k, distance, search, values, columns, 0
        )
        if entries < 0:
            counted = -1
            break
    estimated[part] = counted
    if part == parts - 1:
        s.distance = distance


@kernel
def select_each(table, count, depth, grad, B, scratch, grad_bias, threads):
    """Estimate every row of ∂ℓ/∂h on its own; return how many were, or -1 if one is not finite."""
    stages = stage_table(table, count)
    s, above = stages[depth], stages[min(depth + 1, count - 1)]
    n, parts, total = s.outputs, 1, 0
    if s.kind != SEQUENTIAL and not s.dense_bias:
        width = 1 if grad else above.k if above.k else above.outputs
        parts = parts_of(threads, B, B * n * (width + SELECTION))
    estimated = np.empty(parts, np.int64)
    job = (table, count, depth, grad, B, scratch, grad_bias, s.distance, estimated)
    spread(select_part, job, parts, threads)
    for part in range(parts):
        if estimated[part] < 0:
            return -1
        total += estimated[part]
    if s.grad_bias and not s.dense_bias:
        add_entries(s, B, floats(grad_bias, n))
    if s.kind == SHARED and parts > 1:
        sum_rows(scratch + parts * row_bytes(n), B, n, s.memory_next, threads)
    return total


@kernel
def select_unified(s, grad, above, B, scratch, grad_bias):
    """Estimate ∂ℓ/∂h by the k columns of the largest sums of magnitudes; return as select_each."""
    n, sums, bits, search = row_and_search(s, scratch)
    accumulate = s.kind == SHARED
    gamma, estimated = np.float32(1 if accumulate else s.gamma), 0
    sums[:] = 0
    for b in range(B):
        address = s.grad_h + b * n * BYTES
        row = floats(address, n)
        form_grad_h(address, b, s, grad, above)
        if skips(s, ints(address, n)):
            continue
        estimated += 1
        if s.dense_bias:
            add(grad_bias, row)
        if carry(ints(address, n), memory_before(s, b)) >= INFINITE:  # ∂ℓ/∂h + m
            return -1
        for j in range(n):
            sums[j] += abs(row[j])
    count, distance = top_k(bits, s.k, largest_magnitude(bits), s.distance, search)
    for b in range(B):
        row, (values, columns) = floats(s.grad_h + b * n * BYTES, n), entries_of(s, b)
        move(row, search[2], count, values, columns, 0)  # g
        remember(row, gamma, memory_after(s, b, 0), accumulate)  # m ← γ(∂ℓ/∂h + m − g)
    if s.grad_bias and not s.dense_bias:
        add_entries(s, B, grad_bias)
    s.distance = distance
    return estimated


@kernel
def select(table, count, depth, grad, B, scratch, threads):
    """Estimate ∂ℓ/∂h of a sparse stage as entries; False if it is not finite."""
    stages = stage_table(table, count)
    s, above = stages[depth], stages[min(depth + 1, count - 1)]
    n = s.outputs
    bias = s.grad_bias if s.grad_bias else scratch + 4 * search_size(n) * BYTES
    grad_bias = floats(bias, n)
    grad_bias[:] = 0
    if s.kind == SHARED:
        floats(s.memory_next, n)[:] = 0
    if s.unified:
        estimated = select_unified(s, grad, above, B, scratch, grad_bias)
    else:
        estimated = select_each(table, count, depth, grad, B, scratch, bias, threads)
    if s.kind == SHARED and estimated >= 0:  # m_next is the sum over estimated rows so far
        m, m_next, mean = floats(s.memory, n), floats(s.memory_next, n), s.gamma / max(1, estimated)
        for j in range(n):
            m_next[j] = m_next[j] * np.float32(mean) if estimated else m[j]
    return estimated >= 0
