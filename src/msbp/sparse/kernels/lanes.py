"""Arithmetic on a fixed number of neighbouring floats at once, written down for the compiler itself.

numba vectorises a loop over a row but leaves the end of the row to scalar code, which at a few hundred
columns is most of the time where a square root and a division are in it.
"""

from llvmlite import ir
from numba.core import cgutils

BYTES = 4
REAL, I32, I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)


class Lanes:
    """Instructions on vectors of `size` floats."""

    def __init__(self, builder: ir.IRBuilder, size: int):
        self.b, self.vector, self.size = builder, ir.VectorType(REAL, size), size

    def place(self, address: ir.Value, kind: ir.Type) -> ir.Value:
        return self.b.inttoptr(address, kind.as_pointer())

    def load(self, address: ir.Value) -> ir.Value:
        return self.b.load(self.place(address, self.vector), align=BYTES)

    def store(self, value: ir.Value, address: ir.Value) -> None:
        self.b.store(value, self.place(address, self.vector), align=BYTES)

    def splat(self, value: ir.Value) -> ir.Value:
        none = ir.Constant(self.vector, ir.Undefined)
        one = self.b.insert_element(none, value, I32(0))
        return self.b.shuffle_vector(one, none, ir.Constant(ir.VectorType(I32, self.size), [0] * self.size))

    def times_plus(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """a b + c, fused where the machine can."""
        return self.b.fadd(self.b.fmul(a, b, flags=["contract"]), c, flags=["contract"])

    def root(self, value: ir.Value) -> ir.Value:
        kind, name = ir.FunctionType(self.vector, [self.vector]), f"llvm.sqrt.v{self.size}f32"
        return self.b.call(cgutils.get_or_insert_function(self.b.module, kind, name), [value])

    def within(self, value: ir.Value, limit: ir.Value) -> ir.Value:
        """value held within ±limit."""
        low = self.b.fsub(ir.Constant(self.vector, [-0.0] * self.size), limit)
        value = self.b.select(self.b.fcmp_ordered("<", value, low), low, value)
        return self.b.select(self.b.fcmp_ordered(">", value, limit), limit, value)

    def weighted_sum(
        self, base, stride, rows, values, start, stop, first: ir.Value | None = None
    ) -> ir.Value:
        """`first` plus Σ over q in [start, stop) of values[q] · base[rows[q]], kept in registers.

        rows are int32; the rows of base lie `stride` bytes apart.
        """
        b = self.b
        total = cgutils.alloca_once(b, self.vector)
        b.store(ir.Constant(self.vector, [0.0] * self.size) if first is None else first, total)
        with cgutils.for_range_slice(b, start, stop, I64(1), I64) as (q, _):
            at = b.mul(q, I64(BYTES))
            row = b.load(self.place(b.add(rows, at), I32), align=BYTES)
            value = b.load(self.place(b.add(values, at), REAL), align=BYTES)
            line = self.load(b.add(base, b.mul(b.zext(row, I64), stride)))
            b.store(self.times_plus(self.splat(value), line, b.load(total)), total)
        return b.load(total)
