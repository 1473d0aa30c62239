"""Adam on one row, piece by piece: numba would leave the end of the row to scalar roots and divisions.

Letters: i columns of the row.
"""

import numpy as np
from numba import types
from numba.extending import intrinsic

from .compile import kernel
from .lanes import BYTES, Lanes


def _step(lanes: int):
    @intrinsic
    def step(typing, p, m, v, g, decay1, decay2, new1, new2, rate, root, eps):
        """One step of Adam for `lanes` columns, given by address."""

        def build(context, builder, signature, args):
            (p, m, v, g), numbers = args[:4], args[4:]
            f = Lanes(builder, lanes)
            decay1, decay2, new1, new2, rate, root, eps = (f.splat(number) for number in numbers)
            gradient = f.load(g)
            first = f.times_plus(decay1, f.load(m), builder.fmul(new1, gradient))
            second = f.times_plus(decay2, f.load(v), builder.fmul(builder.fmul(new2, gradient), gradient))
            f.store(first, m)
            f.store(second, v)
            f.store(_moved(f, f.load(p), first, second, rate, root, eps), p)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4, *[types.float32] * 7), build

    return step


def _drift(lanes: int):
    @intrinsic
    def drift(typing, p, m, v, rate, root, eps):
        """Adam's update of `lanes` columns without gradient; rate and root carry the moments' decay."""

        def build(context, builder, signature, args):
            (p, m, v), numbers = args[:3], args[3:]
            f = Lanes(builder, lanes)
            f.store(_moved(f, f.load(p), f.load(m), f.load(v), *(f.splat(number) for number in numbers)), p)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3, *[types.float32] * 3), build

    return drift


def _moved(f: Lanes, p, first, second, rate, root, eps):
    """p - rate first / (sqrt(second) root + eps)"""
    size = f.b.fdiv(f.b.fmul(rate, first), f.times_plus(f.root(second), root, eps))
    return f.b.fsub(p, size)


_step64, _step16, _step4, _step1 = _step(64), _step(16), _step(4), _step(1)
_drift64, _drift16, _drift4, _drift1 = _drift(64), _drift(16), _drift(4), _drift(1)


@kernel
def step_row(p, m, v, g, i, decay1, decay2, new1, new2, rate, root, eps):
    """One step of Adam for a row (i) with gradient g, all given by address."""
    at, end = np.int64(0), i * BYTES
    numbers = (decay1, decay2, new1, new2, rate, root, eps)
    while at + 64 * BYTES <= end:
        _step64(p + at, m + at, v + at, g + at, *numbers)
        at += 64 * BYTES
    while at + 16 * BYTES <= end:
        _step16(p + at, m + at, v + at, g + at, *numbers)
        at += 16 * BYTES
    while at + 4 * BYTES <= end:
        _step4(p + at, m + at, v + at, g + at, *numbers)
        at += 4 * BYTES
    while at < end:
        _step1(p + at, m + at, v + at, g + at, *numbers)
        at += BYTES


@kernel
def drift_row(p, m, v, i, rate, root, eps):
    """Adam's update of a row (i) without gradient."""
    at, end = np.int64(0), i * BYTES
    while at + 64 * BYTES <= end:
        _drift64(p + at, m + at, v + at, rate, root, eps)
        at += 64 * BYTES
    while at + 16 * BYTES <= end:
        _drift16(p + at, m + at, v + at, rate, root, eps)
        at += 16 * BYTES
    while at + 4 * BYTES <= end:
        _drift4(p + at, m + at, v + at, rate, root, eps)
        at += 4 * BYTES
    while at < end:
        _drift1(p + at, m + at, v + at, rate, root, eps)
        at += BYTES
