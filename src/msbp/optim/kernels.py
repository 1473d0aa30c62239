"""Steps of Adam and SGD over all parameters of a group in one call; row-sparse gradients go row by row.

Each part of a step has its share of every parameter's rows, or of its columns where the gradient is dense.
Letters: n rows, i columns of a weight, u rows that have a gradient. A dense parameter is one row.
"""

import math

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic

from ..sparse.kernels.compile import kernel
from ..sparse.kernels.parallel import LINE, parts_of, share, spread
from ..sparse.kernels.simd import BYTES, LADDER, Lanes, floats, ints, ladder, longs, pointer, times
from .records import WORDS

UPDATE = np.dtype([(name, np.int64) for name in WORDS])


@kernel
def table_of(address, count):
    return carray(pointer(address), count, UPDATE)


@kernel
def gradient_rows(records):
    """Return the index of each row's gradient among the u rows, or -1: of all row-sparse ones, in turn."""
    size = 0
    for index in range(records.size):
        size += records[index].n if records[index].rows else 0
    at, first = np.full(size, -1, np.int64), 0
    for index in range(records.size):
        r = records[index]
        if r.rows:
            indices = longs(r.indices, r.u)
            for q in range(r.u):
                if 0 <= indices[q] < r.n:
                    at[first + indices[q]] = q
            first += r.n
    return at


@kernel
def floats_in(records):
    """Return the size of all gradients."""
    size = 0
    for index in range(records.size):
        r = records[index]
        size += (r.u if r.rows else r.n) * r.i
    return size


def updated(f: Lanes, p: ir.Value, first: ir.Value, deviation: ir.Value, keep, rate, root, eps) -> ir.Value:
    """Return keep p - rate first / (deviation root + eps) from splat numbers; deviation² is second."""
    return f.b.fsub(f.b.fmul(keep, p), f.b.fdiv(f.b.fmul(rate, first), f.times_plus(deviation, root, eps)))


@intrinsic
def step_row(typing, p, m, v, g, i, ahead, decay1, decay2, new1, new2, keep, rate, root, eps):
    """One step of Adam for a row (i) with gradient g, all given by address.

    Piece by piece: numba would leave the end of the row to scalar roots and divisions. The row `ahead` bytes
    further is fetched meanwhile, since a processor foresees only reads that go on line by line.
    """

    def build(context, b: ir.IRBuilder, signature, args):
        addresses, columns, ahead, numbers = args[:4], args[4], args[5], args[6:]

        def piece(f: Lanes, offset: ir.Value) -> None:
            p, m, v, g = (b.add(address, offset) for address in addresses)
            for address in (p, m, v):
                f.prefetch(b.add(address, ahead))
            decay1, decay2, new1, new2, *constants = (f.splat(number) for number in numbers)
            gradient = f.load(g)
            first = f.times_plus(decay1, f.load(m), b.fmul(new1, gradient))
            square = f.product(f.product(new2, gradient), gradient)  # g² alone may overflow
            second = f.times_plus(decay2, f.load(v), square)
            f.store(first, m)
            f.store(second, v)
            f.store(updated(f, f.load(p), first, f.root(second), *constants), p)

        ladder(b, columns, piece)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6, *[types.float32] * 8), build


@intrinsic
def drift_row(typing, p, m, v, i, ahead, keep, rate, root, eps):
    """As step_row, for a row (i) without gradient; rate and root include the moments' decay."""

    def build(context, b: ir.IRBuilder, signature, args):
        addresses, columns, ahead, numbers = args[:3], args[3], args[4], args[5:]

        def piece(f: Lanes, offset: ir.Value) -> None:
            p, m, v = (b.add(address, offset) for address in addresses)
            for address in (p, m, v):
                f.prefetch(b.add(address, ahead))
            deviation, constants = f.root_by_estimate(f.load(v)), (f.splat(number) for number in numbers)
            f.store(updated(f, f.load(p), f.load(m), deviation, *constants), p)

        ladder(b, columns, piece, sizes=LADDER[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5, *[types.float32] * 4), build


@kernel
def adam_dense(p, m, v, g, decay1, decay2, keep, rate, root, eps):
    new1, new2 = np.float32(1 - decay1), np.float32(1 - decay2)
    decay1, decay2 = np.float32(decay1), np.float32(decay2)
    for c in range(p.size):
        first = decay1 * m[c] + new1 * g[c]
        second = decay2 * v[c] + times(times(new2, g[c]), g[c])  # g² alone may overflow
        m[c], v[c] = first, second
        p[c] = keep * p[c] - rate * first / (math.sqrt(second) * root + eps)


SHORT = 2048  # floats of a row up to which the next one is fetched ahead: longer ones leave the nearest cache


@kernel
def moves(r, at, last, j, horizon):
    """Return whether a step changes row j by more than its weight decay."""
    return at[j] >= 0 or 0 < last[j] >= r.step - horizon


@kernel
def adam_rows(r, at, start, stop, powers1, powers2, keep, rate, root, eps):
    """A step of Adam with a row-sparse gradient, for rows from start to stop.

    Moments of rows without gradient only decay, so they are left as they are and last_step gives their age. A
    row that has had no gradient for longer than the powers reach only decays: its update is below float32's
    resolution.
    """
    i, horizon = r.i, powers1.size - 1
    new1, new2 = np.float32(1 - powers1[1]), np.float32(1 - powers2[1])
    last, following = ints(r.last_step, r.n), start
    for j in range(start, stop):
        if following <= j:  # the next row that moves
            following = j + 1
            while following < stop and not moves(r, at, last, following, horizon):
                following += 1
        age, row = max(1, r.step - last[j]), j * i * BYTES
        ahead = (following - j) * i * BYTES if following < stop and i <= SHORT else 0
        p, m, v = r.weight + row, r.first + row, r.second + row
        if at[j] >= 0:
            near = min(age, horizon)
            decay1, decay2 = powers1[near], powers2[near]
            if age > near:
                decay2 *= powers2[1] ** (age - near)
            decays = np.float32(decay1), np.float32(decay2)
            g = r.rows + at[j] * i * BYTES
            step_row(p, m, v, g, i, ahead, *decays, new1, new2, keep, rate, root, eps)
            last[j] = r.step
        elif moves(r, at, last, j, horizon):
            faded = np.float32(powers1[age] * rate), np.float32(math.sqrt(powers2[age]) * root)
            drift_row(p, m, v, i, ahead, keep, *faded, eps)
        elif keep != 1:
            W = floats(p, i)
            for c in range(i):
                W[c] *= keep


@kernel
def adam_part(job, part, parts):
    table, count, at, lr, decay, beta1, beta2, eps, powers1, powers2 = job
    eps, keep, records, first = np.float32(eps), np.float32(1 - decay), table_of(table, count), 0
    for index in range(count):
        r = records[index]
        rate = np.float32(lr / (1 - beta1**r.step))
        root = np.float32(1 / math.sqrt(1 - beta2**r.step))
        if r.rows:
            start, stop = share(part, parts, r.n, 1)
            adam_rows(r, at[first:], start, stop, powers1, powers2, keep, rate, root, eps)
            first += r.n
        else:
            start, stop = share(part, parts, r.n * r.i, LINE * LINE)
            size, offset = stop - start, start * BYTES
            p, m = floats(r.weight + offset, size), floats(r.first + offset, size)
            v = floats(r.second + offset, size)
            adam_dense(p, m, v, floats(r.grad + offset, size), beta1, beta2, keep, rate, root, eps)


@kernel
def adam(table, count, lr, decay, beta1, beta2, eps, powers1, powers2, threads):
    """One step of Adam, which multiplies all weights by 1 - decay.

    powers1 and powers2 (float64) are beta to the power of 0, 1, 2 and so on.
    """
    records = table_of(table, count)
    job = (table, count, gradient_rows(records), lr, decay, beta1, beta2, eps, powers1, powers2)
    spread(adam_part, job, parts_of(threads, LINE * LINE, floats_in(records)), threads)


@kernel
def descend(p, velocity, g, lr, momentum):
    """One row of SGD with momentum."""
    for c in range(p.size):
        velocity[c] = momentum * velocity[c] + g[c]
        p[c] -= lr * velocity[c]


@kernel
def descend_plain(p, g, lr):
    """One row of SGD without momentum."""
    for c in range(p.size):
        p[c] -= lr * g[c]


@kernel
def sgd_rows(r, at, start, stop, lr, momentum):
    """A step of SGD with a row-sparse gradient, for rows from start to stop; with momentum all rows move."""
    i, nothing = r.i, np.zeros(r.i, np.float32)
    W = floats(r.weight, (r.n, i))
    for j in range(start, stop):
        g = floats(r.rows + at[j] * i * BYTES, i) if at[j] >= 0 else nothing
        if r.first:
            descend(W[j], floats(r.first + j * i * BYTES, i), g, lr, momentum)
        elif at[j] >= 0:
            descend_plain(W[j], g, lr)


@kernel
def sgd_part(job, part, parts):
    table, count, at, lr, momentum = job
    lr, momentum, records, first = np.float32(lr), np.float32(momentum), table_of(table, count), 0
    for index in range(count):
        r = records[index]
        if r.rows:
            start, stop = share(part, parts, r.n, 1)
            sgd_rows(r, at[first:], start, stop, lr, momentum)
            first += r.n
            continue
        start, stop = share(part, parts, r.n * r.i, LINE * LINE)
        size, offset = stop - start, start * BYTES
        p, g = floats(r.weight + offset, size), floats(r.grad + offset, size)
        if r.first:
            descend(p, floats(r.first + offset, size), g, lr, momentum)
        else:
            descend_plain(p, g, lr)


@kernel
def sgd(table, count, lr, momentum, threads):
    """One step of SGD, with momentum where there is a velocity (`first`)."""
    records = table_of(table, count)
    job = (table, count, gradient_rows(records), lr, momentum)
    spread(sgd_part, job, parts_of(threads, LINE * LINE, floats_in(records)), threads)
