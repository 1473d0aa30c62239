"""Optimizer steps over all parameters in one call; a factored gradient is formed in cache and never stored.

Letters: n rows, i columns of a weight, B batch and k entries a row of its factors. A dense parameter is
one row.
"""

import math

import numpy as np
from numba import carray

from .adam import drift_row, step_row
from .compile import kernel
from .gradient import clamp, form_row, panel_width
from .intrinsics import address_of, floats, ints, pointer
from .lanes import BYTES
from .rows import by_column

_WHOLE = (
    "weight", "first", "second",   # (n, i): the parameter and the optimizer's moments, 0 where it has none
    "grad",                        # (n, i) dense, or 0
    "values", "columns", "x",      # (B, k), (B, k), (B, i): factors, where there is no dense gradient
    "last_step",                   # (n) int32: the step that a row's moments belong to
    "n", "i", "B", "k", "step",
)  # fmt: skip
UPDATE = np.dtype([*((name, np.int64) for name in _WHOLE), ("limit", np.float64)])


@kernel
def table_of(address, count):
    return carray(pointer(address), count, UPDATE)


@kernel
def lists_of(u):
    """The entries of factors by column: see by_column."""
    starts, examples = np.empty(u.n + 2, np.int32), np.empty(u.B * u.k, np.int32)
    weights = np.empty(u.B * u.k, np.float32)
    by_column(u.values, u.columns, u.B, u.n, u.k, starts, examples, weights)
    return starts, examples, weights


@kernel
def adam_dense(p, m, v, g, decay1, decay2, rate, root, eps):
    new1, new2 = np.float32(1 - decay1), np.float32(1 - decay2)
    decay1, decay2 = np.float32(decay1), np.float32(decay2)
    for c in range(p.size):
        first = decay1 * m[c] + new1 * g[c]
        second = decay2 * v[c] + new2 * g[c] * g[c]
        m[c], v[c] = first, second
        p[c] -= rate * first / (math.sqrt(second) * root + eps)


@kernel
def adam_factored(u, powers1, powers2, rate, root, eps):
    """A step of Adam from factors, panel of columns after panel, so that the part of x in use stays in cache.

    A row without gradient for longer than the powers reach stands still: its update is below float32's
    resolution.
    """
    n, i, horizon, step = u.n, u.i, powers1.size - 1, panel_width(u.B, u.i)
    new1, new2 = np.float32(1 - powers1[1]), np.float32(1 - powers2[1])
    limit = np.float32(u.limit if u.limit > 0 else np.inf)
    starts, examples, weights = lists_of(u)
    last = ints(u.last_step, n)
    for begin in range(0, i, step):
        width = min(step, i - begin)
        for j in range(n):
            age, at = u.step - last[j], (j * i + begin) * BYTES
            p, m, v, start, stop = u.weight + at, u.first + at, u.second + at, starts[j], starts[j + 1]
            if stop > start:
                near = min(age, horizon)
                decay1, decay2 = powers1[near], powers2[near]
                if age > near:
                    decay2 *= powers2[1] ** (age - near)
                numbers = limit, np.float32(decay1), np.float32(decay2), new1, new2, rate, root, eps
                x, span = u.x + begin * BYTES, (np.int64(start), np.int64(stop))
                step_row(
                    p, m, v, width, x, i * BYTES, address_of(examples), address_of(weights), *span, *numbers
                )
            elif last[j] > 0 and age <= horizon:
                faded = np.float32(powers1[age] * rate), np.float32(math.sqrt(powers2[age]) * root)
                drift_row(p, m, v, width, *faded, eps)
    for j in range(n):
        if starts[j + 1] > starts[j]:
            last[j] = u.step


@kernel
def adam(table, count, lr, beta1, beta2, eps, powers1, powers2):
    """One step of Adam; powers1 and powers2 (float64) are beta to the power of 0, 1, 2 and so on."""
    eps, updates = np.float32(eps), table_of(table, count)
    for at in range(count):
        u = updates[at]
        if not u.grad and not u.B:
            continue
        rate = np.float32(lr / (1 - beta1**u.step))
        root = np.float32(1 / math.sqrt(1 - beta2**u.step))
        if u.B:
            adam_factored(u, powers1, powers2, rate, root, eps)
        else:
            size = u.n * u.i
            p, m, v = floats(u.weight, size), floats(u.first, size), floats(u.second, size)
            adam_dense(p, m, v, floats(u.grad, size), beta1, beta2, rate, root, eps)


@kernel
def descend(p, velocity, g, lr, momentum):
    """One row of SGD with momentum."""
    for c in range(p.size):
        velocity[c] = momentum * velocity[c] + g[c]
        p[c] -= lr * velocity[c]


@kernel
def sgd_factored(u, lr, momentum):
    n, i = u.n, u.i
    W, row = floats(u.weight, (n, i)), np.empty(i, np.float32)
    starts, examples, weights = lists_of(u)
    for j in range(n):
        touched = starts[j + 1] > starts[j]
        if touched:
            form_row(row, u.x, i, examples, weights, starts[j], starts[j + 1])
            if u.limit > 0:
                clamp(row, np.float32(u.limit))
        if u.first:
            if not touched:
                row[:] = 0
            descend(W[j], floats(u.first + j * i * BYTES, i), row, lr, momentum)
        elif touched:
            p = W[j]
            for c in range(i):
                p[c] -= lr * row[c]


@kernel
def sgd(table, count, lr, momentum):
    """One step of SGD, with momentum where there is a velocity (`first`)."""
    lr, momentum, updates = np.float32(lr), np.float32(momentum), table_of(table, count)
    for at in range(count):
        u = updates[at]
        size = u.n * u.i
        p, g = floats(u.weight, size), floats(u.grad, size)
        if u.B:
            sgd_factored(u, lr, momentum)
        elif u.grad and u.first:
            descend(p, floats(u.first, size), g, lr, momentum)
        elif u.grad:
            for c in range(size):
                p[c] -= lr * g[c]
