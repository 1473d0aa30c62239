"""The forward pass of a chain: per stage a product of BLAS, then bias, activation and dropout in one loop.

A chain is a table with one record a stage, which both passes read; its loss is here too. B rows in the batch.
"""

import math

import numpy as np
from numba import carray

from .blas import product_nt
from .compile import kernel
from .parallel import LINE, parts_of, share, spread
from .simd import BYTES, KEY_STEP, bools, floats, longs, plus, pointer, scramble, times
from .skip_zeros import product_of_used

IDENTITY, RELU, TANH, CUBE = range(4)
NONE, SHARED, PER_SLOT, SEQUENTIAL = range(4)

_WHOLE = (
    "weight", "bias",                # (n, i), (n), or 0 where the product is the output
    "x", "z",                        # input (B, i), output (B, n)
    "slope",                         # (B, n) ∂z/∂h where z does not determine it, else 0
    "grad_h",                        # (B, n) of a dense stage, or where all rows are needed at once
    "grad_x",                        # (B, i) where ∂ℓ/∂x is needed as a matrix, or 0
    "grad_weight", "grad_bias",      # where a dense gradient goes, or 0
    "values", "columns",             # (B, k) of a sparse stage
    "starts", "examples", "weights", # the same by column, see rows.by_column; starts is 0 if not needed
    "touched", "indices", "rows",    # u rows of ∂ℓ/∂W that are not zero: their indices (u) and values (u, i)
    "memory", "memory_next",         # (slots, n) and what follows it, (1, n) or (B, n)
    "inputs", "outputs", "k",        # i, n, and k, or 0 for a dense stage
    "kind", "slots",                 # of memory
    "skip_zero_rows",                # whether a row of zeros neither gets nor leaves any shared memory
    "unified", "dense_bias", "activation",
    "distance",                      # from the largest magnitude to the last row's threshold: a first guess
)  # fmt: skip
RECORD_WORDS = {name: index for index, name in enumerate((*_WHOLE, "gamma", "p"))}  # of 8 bytes in a record
STAGE = np.dtype([*((name, np.int64) for name in _WHOLE), ("gamma", np.float64), ("p", np.float64)])


@kernel
def stage_table(address, count):
    return carray(pointer(address), count, STAGE)


WORD = 2**32


@kernel
def drop_below(p):
    """Return the hash from which entries are kept; p = 1 keeps one in 2**32, whose scale is zero."""
    return np.uint32(min(p * WORD + 0.5, WORD - 1.0))


@kernel
def keep_scale(p):
    """Return the factor of kept entries, which keeps the expectation."""
    return np.float32(1 / (1 - p)) if p < 1 else np.float32(0)


@kernel
def relu(row, bias):
    for j in range(row.size):
        h = row[j] + bias[j]
        row[j] = np.float32(0) if h < 0 else h  # max(h, 0) would swallow a NaN


@kernel
def relu_dropout(row, bias, first, p, key):
    limit, scale = drop_below(p), keep_scale(p)
    for j in range(row.size):
        word = scramble(np.uint32(first + np.uint32(j)) ^ key)
        h = row[j] + bias[j]
        row[j] = np.float32(0) if h < 0 or word < limit else h * scale


@kernel
def activate(row, bias, slope, activation, first, p, key):
    """Apply any activation and dropout; slope becomes ∂z/∂h."""
    limit, scale = drop_below(p), keep_scale(p)
    for j in range(row.size):
        h = row[j] + bias[j]
        keep = np.float32(1)
        if p > 0:
            word = scramble(np.uint32(first + np.uint32(j)) ^ key)
            keep = np.float32(0) if word < limit else scale
        if activation == TANH:
            t = np.float32(math.tanh(h))
            row[j], slope[j] = t * keep, (1 - t * t) * keep
        elif activation == CUBE:
            square = times(h, h)
            row[j], slope[j] = times(square, times(h, keep)), times(times(np.float32(3), square), keep)
        else:
            row[j], slope[j] = h * keep, keep


@kernel
def sweep(job, part, parts):
    """Turn a part of the rows of a stage's product into its output z (and slope)."""
    table, count, depth, B, key = job
    s = stage_table(table, count)[depth]
    n, stage_key = s.outputs, np.uint32(key + KEY_STEP * depth)
    start, stop = share(part, parts, B, 1)
    z, bias, slope = floats(s.z, (B, n)), floats(s.bias, n), floats(s.slope, (B, n))
    for b in range(start, stop):
        first = np.uint32(b * n)
        if s.activation == RELU and s.p == 0:
            relu(z[b], bias)
        elif s.activation == RELU:
            relu_dropout(z[b], bias, first, s.p, stage_key)
        elif s.slope:
            activate(z[b], bias, slope[b], s.activation, first, s.p, stage_key)
        else:
            row = z[b]
            for j in range(n):
                row[j] += bias[j]


SWEEP = 4  # an activation with dropout takes as long as reading so many floats


@kernel
def forward(table, count, B, key, sgemm, given, threads):
    """Fill z (and slope) of every stage from x of the first; `given` stages have their product in z."""
    stages = stage_table(table, count)
    for depth in range(count):
        s = stages[depth]
        n = s.outputs
        if depth >= given and not product_of_used(s.x, s.weight, s.z, B, n, s.inputs, threads):
            product_nt(sgemm, s.x, s.weight, s.z, B, n, s.inputs)
        if s.bias:  # without one, activation or dropout, the product is the output
            spread(sweep, (table, count, depth, B, key), parts_of(threads, B, SWEEP * B * n), threads)


@kernel
def drop_part(job, part, parts):
    x, out, size, p, key = job
    limit, scale, key = drop_below(p), keep_scale(p), np.uint32(key)
    start, stop = share(part, parts, size, LINE)
    # from zero: numba vectorizes no loop whose index it has to compare with zero
    X, Z = floats(x + start * BYTES, stop - start), floats(out + start * BYTES, stop - start)
    first = np.uint32(start)
    for j in range(stop - start):
        word = scramble(np.uint32(first + np.uint32(j)) ^ key)
        Z[j] = X[j] * (np.float32(0) if word < limit else scale)  # a NaN stays one, as in torch


@kernel
def drop(x, out, size, p, key, threads):
    """out (size) ← x times the scale where the hash of a position keeps it, and zero elsewhere."""
    spread(drop_part, (x, out, size, p, key), parts_of(threads, size // LINE, SWEEP * size), threads)


@kernel
def loss_part(job, part, parts):
    """Write the loss of each example of a part, and its share of the gradient at the logits (B, C)."""
    logits, target, allowed, grad, B, C, losses = job
    y, P, A = longs(target, B), floats(grad, (B, C)), bools(allowed, (B, C))
    mean = np.float32(1 / B)
    start, stop = share(part, parts, B, 1)
    for b in range(start, stop):
        z, p, top = floats(logits + b * C * 4, C), P[b], np.float32(-np.inf)
        for c in range(C):
            p[c] = z[c] if not allowed or A[b, c] else np.float32(-np.inf)
            top = max(top, p[c])
        of_target = p[y[b]] - top
        total = np.float32(0)
        for c in range(C):
            p[c] = math.exp(p[c] - top)
            total += p[c]
        losses[b] = math.log(total) - of_target
        for c in range(C):
            p[c] *= mean / total
        if not allowed or A[b, y[b]]:  # a class that is not allowed has no gradient
            p[y[b]] -= mean


EXPONENTIAL = 32  # takes as long as reading so many floats


@kernel
def cross_entropy(logits, target, allowed, grad, loss, B, C, threads):
    """Write the mean cross entropy to loss and its gradient at the logits (B, C) to grad.

    logits and grad are float32, target (B) is int64, allowed (B, C) is bool or 0 for all. Return False if a
    target is no class.
    """
    y, losses, total = longs(target, B), np.empty(B, np.float64), 0.0
    for b in range(B):
        if not 0 <= y[b] < C:
            return False
    job = (logits, target, allowed, grad, B, C, losses)
    spread(loss_part, job, parts_of(threads, B, EXPONENTIAL * B * C), threads)
    for b in range(B):
        total = plus(total, losses[b])
    floats(loss, 1)[0] = total / B
    return True
