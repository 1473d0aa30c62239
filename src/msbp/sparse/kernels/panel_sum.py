"""A sum of weighted rows that stays in registers, which numba has no words for."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

BYTES = 4
REAL, I32, I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)


def panel_sum(lanes: int, add: bool = False):
    """A kernel for rows of `lanes` columns; with `add` the sum begins with what is in `out`."""
    vector = ir.VectorType(REAL, lanes)

    @intrinsic
    def panel(typing, out, base, stride, rows, values, start, stop):
        """out[:lanes] ← Σ over q in [start, stop) of values[q] · base[rows[q]][:lanes]; all are addresses.

        rows are int32; the rows of base lie `stride` bytes apart.
        """

        def build(context, b, signature, args):
            out, base, stride, rows, values, start, stop = args

            def at(address, kind):
                return b.inttoptr(address, kind.as_pointer())

            total = cgutils.alloca_once(b, vector)
            zero = ir.Constant(vector, [0.0] * lanes)
            b.store(b.load(at(out, vector), align=BYTES) if add else zero, total)
            with cgutils.for_range_slice(b, start, stop, I64(1), I64) as (q, _):
                here = b.mul(q, I64(BYTES))
                row = b.load(at(b.add(rows, here), I32), align=BYTES)
                line = b.load(at(b.add(base, b.mul(b.zext(row, I64), stride)), vector), align=BYTES)
                none = ir.Constant(vector, ir.Undefined)
                one = b.insert_element(none, b.load(at(b.add(values, here), REAL), align=BYTES), I32(0))
                value = b.shuffle_vector(one, none, ir.Constant(ir.VectorType(I32, lanes), [0] * lanes))
                product = b.fmul(value, line, flags=["contract"])
                b.store(b.fadd(b.load(total), product, flags=["contract"]), total)
            b.store(b.load(total), at(out, vector), align=BYTES)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), build

    return panel
