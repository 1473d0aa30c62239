"""Optimizer steps over all parameters in one call; a factored gradient is formed row by row in cache and never stored.

Letters: n rows, i columns of a weight, B batch and k entries a row of its factors; a dense parameter is one row.
"""

import math

import numpy as np
from numba import carray

from .compile import kernel
from .gradient import clamp, form_row
from .intrinsics import _pointer, floats, ints
from .rows import by_column

_WHOLE = (
    "weight", "first", "second",        # (n, i): the parameter and the optimizer's moments, 0 where it has none
    "grad",                             # (n, i) dense, or 0
    "values", "columns", "x",           # (B, k), (B, k), (B, i): factors, where there is no dense gradient
    "last_step",                        # (n) int32: the step that a row's moments belong to
    "n", "i", "B", "k", "step",
)  # fmt: skip
UPDATE = np.dtype([*((name, np.int64) for name in _WHOLE), ("limit", np.float64)])


@kernel
def table_of(address, count):
    return carray(_pointer(address), count, UPDATE)


@kernel
def lists_of(u):
    """The entries of factors by column: see by_column."""
    starts, examples = np.empty(u.n + 2, np.int32), np.empty(u.B * u.k, np.int32)
    weights = np.empty(u.B * u.k, np.float32)
    by_column(u.values, u.columns, u.B, u.n, u.k, starts, examples, weights)
    return starts, examples, weights


@kernel
def form(row, u, starts, examples, weights, j):
    """Row j of the gradient, clipped by value if there is a limit."""
    form_row(row, u.x, examples, weights, starts[j], starts[j + 1])
    if u.limit > 0:
        clamp(row, np.float32(u.limit))


@kernel
def adam_row(p, m, v, g, decay1, decay2, new1, new2, rate, root, eps):
    """One row of Adam; decay1 and decay2 are beta to the power of the steps since the moments were written."""
    for c in range(p.size):
        first = decay1 * m[c] + new1 * g[c]
        second = decay2 * v[c] + new2 * g[c] * g[c]
        m[c], v[c] = first, second
        p[c] -= rate * first / (math.sqrt(second) * root + eps)


@kernel
def adam_without_gradient(p, m, v, rate, root, eps):
    """What Adam does to a row whose moments only decay; rate and root carry the decay."""
    for c in range(p.size):
        p[c] -= rate * m[c] / (math.sqrt(v[c]) * root + eps)


@kernel
def adam_factored(u, powers1, powers2, new1, new2, rate, root, eps):
    """A step of Adam from factors. Rows without gradient for longer than the powers reach stand still: their update
    is below float32's resolution."""
    n, i, horizon = u.n, u.i, powers1.size - 1
    W, M, V = floats(u.weight, (n, i)), floats(u.first, (n, i)), floats(u.second, (n, i))
    last, row = ints(u.last_step, n), np.empty(i, np.float32)
    starts, examples, weights = lists_of(u)
    for j in range(n):
        age = u.step - last[j]
        if starts[j + 1] > starts[j]:
            form(row, u, starts, examples, weights, j)
            at = min(age, horizon)
            decay1, decay2 = np.float32(powers1[at]), np.float32(powers2[at] * powers2[1] ** (age - at))
            adam_row(W[j], M[j], V[j], row, decay1, decay2, new1, new2, rate, root, eps)
            last[j] = u.step
        elif last[j] > 0 and age <= horizon:
            decayed = np.float32(powers1[age] * rate)
            adam_without_gradient(W[j], M[j], V[j], decayed, np.float32(math.sqrt(powers2[age]) * root), eps)


@kernel
def adam(table, count, lr, beta1, beta2, eps, powers1, powers2):
    """One step of Adam; powers1 and powers2 (float64) are beta to the power of 0, 1, 2 and so on."""
    new1, new2, eps = np.float32(1 - beta1), np.float32(1 - beta2), np.float32(eps)
    updates = table_of(table, count)
    for at in range(count):
        u = updates[at]
        if not u.grad and not u.B:
            continue
        rate = np.float32(lr / (1 - beta1**u.step))
        root = np.float32(1 / math.sqrt(1 - beta2**u.step))
        if u.grad:
            size = u.n * u.i
            p, m, v, g = (
                floats(u.weight, size),
                floats(u.first, size),
                floats(u.second, size),
                floats(u.grad, size),
            )
            adam_row(p, m, v, g, np.float32(beta1), np.float32(beta2), new1, new2, rate, root, eps)
        else:
            adam_factored(u, powers1, powers2, new1, new2, rate, root, eps)


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
            form(row, u, starts, examples, weights, j)
        if u.first:
            if not touched:
                row[:] = 0
            descend(W[j], floats(u.first + j * i * 4, i), row, lr, momentum)
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
        elif not u.grad:
            continue
        elif u.first:
            descend(p, floats(u.first, size), g, lr, momentum)
        else:
            for c in range(size):
                p[c] -= lr * g[c]
