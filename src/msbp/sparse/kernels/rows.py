"""Sums of weighted rows, the one product that sparse gradients need, and the lists of entries by column.

Letters: B batch, n width of the layer, k kept, i width of the rows that are summed.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .compile import kernel
from .intrinsics import floats, ints

BYTES = 4


def _panel(lanes: int):
    """A kernel for `lanes` columns: the sum stays in registers over all rows, so any count of rows costs the same."""

    @intrinsic
    def panel(typing, out, base, stride, rows, values, start, stop):
        """out[:lanes] = Σ over q in [start, stop) of values[q] · base[rows[q]·stride :][:lanes]; all are addresses."""

        def build(context, b, signature, args):
            out, base, stride, rows, values, start, stop = args
            real, whole, wide = ir.FloatType(), ir.IntType(32), ir.IntType(64)
            vector = ir.VectorType(real, lanes)

            def load(address, kind):
                return b.load(b.inttoptr(address, kind.as_pointer()), align=BYTES)

            total = cgutils.alloca_once(b, vector)
            b.store(ir.Constant(vector, [0.0] * lanes), total)
            with cgutils.for_range_slice(b, start, stop, wide(1), wide) as (q, _):
                at = b.mul(q, wide(BYTES))
                row = b.add(base, b.mul(b.zext(load(b.add(rows, at), whole), wide), stride))
                none = ir.Constant(vector, ir.Undefined)
                value = b.insert_element(none, load(b.add(values, at), real), whole(0))
                splat = b.shuffle_vector(value, none, ir.Constant(ir.VectorType(whole, lanes), [0] * lanes))
                product = b.fmul(splat, load(row, vector), flags=["contract"])
                b.store(b.fadd(b.load(total), product, flags=["contract"]), total)
            b.store(b.load(total), b.inttoptr(out, vector.as_pointer()), align=BYTES)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), build

    return panel


_panel64, _panel16, _panel4, _panel1 = _panel(64), _panel(16), _panel(4), _panel(1)


@kernel
def weighted_sum(out, base, i, rows, values, start, stop):
    """out (i) = Σ over q in [start, stop) of values[q] · base[rows[q]], all given by address."""
    at, end, stride = np.int64(0), i * BYTES, i * BYTES
    while at + 64 * BYTES <= end:
        _panel64(out + at, base + at, stride, rows, values, start, stop)
        at += 64 * BYTES
    while at + 16 * BYTES <= end:
        _panel16(out + at, base + at, stride, rows, values, start, stop)
        at += 16 * BYTES
    while at + 4 * BYTES <= end:
        _panel4(out + at, base + at, stride, rows, values, start, stop)
        at += 4 * BYTES
    while at < end:
        _panel1(out + at, base + at, stride, rows, values, start, stop)
        at += BYTES


@kernel
def by_column(values, columns, B, n, k, starts, examples, weights):
    """Sort selected entries (B, k) by column: column j has the entries from starts[j] up to starts[j + 1].

    starts (n + 2) is scratch and result; entry q stands in examples[q] and weighs weights[q].
    """
    V, K = floats(values, B * k), ints(columns, B * k)
    for j in range(n + 2):
        starts[j] = 0
    for q in range(B * k):
        starts[K[q] + 2] += 1
    for j in range(n):
        starts[j + 2] += starts[j + 1]
    for b in range(B):
        for q in range(b * k, b * k + k):
            at = starts[K[q] + 1]
            starts[K[q] + 1] = at + 1
            examples[at] = b
            weights[at] = V[q]
