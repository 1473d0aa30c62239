"""The backward pass of a chain, stage after stage, and within a sparse stage row after row in cache.

Letters: B batch, i inputs and n outputs of a stage, k kept. A stage gets ∂ℓ/∂z as a matrix, or as the
factors of the stage above (entries and weight), whose product is formed one row at a time. Memories
change only when all went well.
"""

import numpy as np

from .chain_forward import keep_scale
from .compile import kernel
from .layout import NONE, PER_SLOT, RELU, SEQUENTIAL, SHARED, stage_table
from .rows import BYTES, add, by_column, form_rows, weighted_sum
from .select import INFINITE, LANES, largest_magnitude, top_k
from .simd import floats, ints, product_nn, product_tn

NARROW = 32  # a dense stage with at most so many outputs hands its gradient down as factors, too
SCRATCH_ROWS = 6


@kernel
def scratch_stride(n):
    """Bytes of one scratch row: whole lanes, and room for a compressing store beyond the end."""
    return ((n + LANES - 1) // LANES + 2) * LANES * BYTES


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
def carry(row, b, s):
    """row += the memory of example b; return the bits of the largest magnitude."""
    size = s.outputs * BYTES
    if s.kind == SHARED or (s.kind == SEQUENTIAL and b == 0):
        add(row, floats(s.memory, row.size))
    elif s.kind == SEQUENTIAL:
        add(row, floats(s.memory_next, row.size))
    elif s.kind == PER_SLOT and b < s.slots:
        add(row, floats(s.memory + b * size, row.size))
    return largest_magnitude(row.view(np.int32))


@kernel
def emit(row, b, s, kept, count, grad_bias, unpropagated):
    """Write the kept entries of example b; the rest goes to the next memory or, if shared, to its sum."""
    n, k = row.size, s.k
    values, columns = floats(s.values + b * k * BYTES, k), ints(s.columns + b * k * BYTES, k)
    for q in range(count):
        j = kept[q]
        value = row[j]
        values[q], columns[q] = value, j
        row[j] = 0
        if not s.dense_bias:
            grad_bias[j] += value
    for q in range(count, k):  # fewer than k entries are not zero
        values[q], columns[q] = 0, 0
    if s.kind == SHARED:
        add(unpropagated, row)
    elif s.kind != NONE:
        following = floats(s.memory_next + (b * n * BYTES if s.kind == PER_SLOT else 0), n)
        gamma = np.float32(s.gamma)
        for j in range(n):
            following[j] = gamma * row[j]


@kernel
def search_room(scratch, n):
    """The bits of the row at scratch, in whole lanes with zeros at the end, and what top_k needs besides."""
    stride, lanes = scratch_stride(n), (n + LANES - 1) // LANES * LANES
    bits, kept = ints(scratch, lanes), ints(scratch + 4 * stride, stride)
    candidates, magnitudes = ints(scratch + 2 * stride, stride), ints(scratch + 3 * stride, stride)
    bits[n:] = 0
    return bits, candidates, magnitudes, kept


@kernel
def select_each(s, grad, above, B, scratch, grad_bias, unpropagated):
    """Choose k entries of every row; False if one is not finite."""
    row, distance = floats(scratch, s.outputs), s.distance
    bits, candidates, magnitudes, kept = search_room(scratch, s.outputs)
    for b in range(B):
        form_grad_h(scratch, b, s, grad, above)
        if s.dense_bias:
            add(grad_bias, row)
        largest = carry(row, b, s)
        if largest >= INFINITE:
            return False
        count, distance = top_k(bits, bits.size, s.k, largest, distance, candidates, magnitudes, kept)
        emit(row, b, s, kept, count, grad_bias, unpropagated)
    s.distance = distance
    return True


@kernel
def select_unified(s, grad, above, B, scratch, grad_bias, unpropagated):
    """Choose the k columns of the largest sums of magnitudes; False if a row is not finite."""
    n, sums = s.outputs, floats(scratch, s.outputs)
    bits, candidates, magnitudes, kept = search_room(scratch, n)
    sums[:] = 0
    for b in range(B):
        row = floats(s.grad_h + b * n * BYTES, n)
        form_grad_h(s.grad_h + b * n * BYTES, b, s, grad, above)
        if s.dense_bias:
            add(grad_bias, row)
        if carry(row, b, s) >= INFINITE:
            return False
        for j in range(n):
            sums[j] += abs(row[j])
    largest = largest_magnitude(bits)
    count, distance = top_k(bits, bits.size, s.k, largest, s.distance, candidates, magnitudes, kept)
    for b in range(B):
        emit(floats(s.grad_h + b * n * BYTES, n), b, s, kept, count, grad_bias, unpropagated)
    s.distance = distance
    return True


@kernel
def select(s, grad, above, B, scratch):
    """Choose the entries of a sparse stage; False if the gradient is not finite."""
    n, stride = s.outputs, scratch_stride(s.outputs)
    unpropagated = floats(scratch + stride, n)
    grad_bias = floats(s.grad_bias if s.grad_bias else scratch + 5 * stride, n)
    grad_bias[:] = 0
    unpropagated[:] = 0
    if s.unified:
        finite = select_unified(s, grad, above, B, scratch, grad_bias, unpropagated)
    else:
        finite = select_each(s, grad, above, B, scratch, grad_bias, unpropagated)
    if finite and s.kind == SHARED:
        following, share = floats(s.memory_next, n), np.float32(s.gamma / B)
        for j in range(n):
            following[j] = share * unpropagated[j]
    return finite


@kernel
def propagate(s, B):
    """∂ℓ/∂x (B, i) of a sparse stage."""
    for b in range(B):
        at = b * s.k * BYTES
        out = s.grad_x + b * s.inputs * BYTES
        weighted_sum(out, s.weight, s.inputs, s.columns + at, s.values + at, 0, s.k)


@kernel
def plain(s, grad, above, B, sgemm, scratch):
    """The whole gradient of a dense stage."""
    n = s.outputs
    grad_bias = floats(s.grad_bias if s.grad_bias else scratch, n)
    grad_bias[:] = 0
    for b in range(B):
        form_grad_h(s.grad_h + b * n * BYTES, b, s, grad, above)
        add(grad_bias, floats(s.grad_h + b * n * BYTES, n))
    if s.grad_weight:
        product_tn(sgemm, s.grad_h, s.x, s.grad_weight, n, s.inputs, B)
    if s.grad_x:
        product_nn(sgemm, s.grad_h, s.weight, s.grad_x, B, s.inputs, n)


@kernel
def backward(table, count, B, grad, sgemm, scratch):
    """Pull ∂ℓ/∂z of the last stage through; return 0, or 1 + the stage whose gradient is not finite.

    The rows of ∂ℓ/∂W of sparse stages are counted here, for `weight_gradients` to form.
    """
    stages = stage_table(table, count)
    for depth in range(count - 1, -1, -1):
        s, above = stages[depth], stages[min(depth + 1, count - 1)]
        if s.k == 0:
            plain(s, grad, above, B, sgemm, scratch)
        elif not select(s, grad, above, B, scratch):
            return depth + 1
        else:
            if s.starts:
                s.touched = by_column(s.values, s.columns, B, s.outputs, s.k, s.starts, s.examples, s.weights)
            if s.grad_x:
                propagate(s, B)
        grad = s.grad_x
    for depth in range(count):
        s = stages[depth]
        if s.kind != NONE and (s.kind != PER_SLOT or B <= s.slots):
            size = s.outputs * (B if s.kind == PER_SLOT else 1)
            memory, following = floats(s.memory, size), floats(s.memory_next, size)
            for j in range(size):
                memory[j] = following[j]
    return 0


@kernel
def weight_gradients(table, count, B):
    """Form the rows of ∂ℓ/∂W of every sparse stage that has room for them."""
    stages = stage_table(table, count)
    for depth in range(count):
        s = stages[depth]
        if s.k and s.rows:
            lists = s.starts, s.examples, s.weights
            form_rows(*lists, s.outputs, s.x, B, s.inputs, s.indices, s.rows)
