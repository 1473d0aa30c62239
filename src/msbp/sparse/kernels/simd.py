"""Memory by address and arithmetic on vectors of floats, as LLVM instructions.

numba vectorises a loop over a row but leaves the end of the row to scalar code, which at a few hundred
columns takes most of the time where a square root and a division are in it. Sums of weighted rows stay in
registers only if they are written down for the compiler itself.
"""

from collections.abc import Callable, Sequence

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from .compile import config, kernel

BYTES = 4  # of a float32 or int32
REAL, I32, I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
CACHE_LINE = 64  # bytes
LADDER = (64, 16, 4, 1)  # floats at once, from the start of a row to its end
WIDE = 16  # floats of one register of AVX-512
WIDEST = 128  # floats whose sums fit into AVX-512's registers beside what they are made of
ROUNDS = ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1))  # lowbias32 (Wellons), as shifts and factors
KEY_STEP = 0x9E3779B9  # 2**32 over the golden ratio: consecutive keys or seeds share no pattern


@intrinsic
def pointer(typing, address):
    """Return an integer as a pointer."""
    return types.voidptr(types.int64), lambda c, b, s, a: b.inttoptr(a[0], cgutils.voidptr_t)


@kernel
def floats(address, shape):
    return carray(pointer(address), shape, np.float32)


@kernel
def ints(address, shape):
    return carray(pointer(address), shape, np.int32)


@kernel
def bools(address, shape):
    return carray(pointer(address), shape, np.bool_)


@kernel
def longs(address, shape):
    return carray(pointer(address), shape, np.int64)


@intrinsic
def address_of(typing, array):
    """Return the address of an array's data.

    numba frees an array after the last use of its name, so a kernel must not keep an array of its own by
    address alone: take the address in the call that reads it.
    """

    def build(context, b, signature, args):
        return b.ptrtoint(make_array(signature.args[0])(context, b, args[0]).data, I64)

    return types.int64(array), build


@kernel
def aligned(count):
    """Return zeros (count) that begin at a cache line."""
    flat = np.zeros(count + CACHE_LINE // BYTES, np.float32)
    return flat[(-address_of(flat) & (CACHE_LINE - 1)) // BYTES :][:count]


@intrinsic
def reaches(typing, bits, start, threshold):
    """Return 32 bits, the j-th set if the magnitude of bits[start + j] is at least the threshold.

    bits (int32) are bit patterns of floats; without the sign they order like the magnitudes.
    """

    def build(context, b, signature, args):
        lanes = ir.VectorType(I32, 32)
        none = ir.Constant(lanes, ir.Undefined)
        one = b.insert_element(none, args[2], I32(0))
        thresholds = b.shuffle_vector(one, none, ir.Constant(lanes, [0] * 32))
        first = b.gep(make_array(signature.args[0])(context, b, args[0]).data, [args[1]])
        loaded = b.load(b.bitcast(first, lanes.as_pointer()), align=4)
        magnitudes = b.and_(loaded, ir.Constant(lanes, [0x7FFFFFFF] * 32))
        return b.zext(b.bitcast(b.icmp_signed(">=", magnitudes, thresholds), I32), I64)

    return types.int64(bits, types.int64, types.int32), build


@intrinsic
def times(typing, a, b):
    """Return a b; unlike `*` in a kernel, the compiler does not reorder a product of several factors."""

    def build(context, builder, signature, args):
        return builder.fmul(*args, flags=["contract"])

    return types.float32(types.float32, types.float32), build


@intrinsic
def plus(typing, a, b):
    """Return a + b (float64); unlike `+`, the compiler does not reorder a sum of several terms."""
    return types.float64(types.float64, types.float64), lambda c, b, s, a: b.fadd(*a)


@intrinsic
def ones(typing, word):
    """Return the number of bits set."""
    return types.int64(types.int64), lambda c, b, s, a: b.ctpop(a[0])


@intrinsic
def lowest(typing, word):
    """Return the index of the lowest set bit."""
    return types.int64(types.int64), lambda c, b, s, a: b.cttz(a[0], ir.IntType(1)(1))


@intrinsic
def scramble(typing, word):
    """Return the hash of dropout.py; numba would widen its 32-bit steps to 64 bits, at half the speed."""

    def build(context, b, signature, args):
        h = b.trunc(args[0], I32)
        for shift, factor in ROUNDS:
            h = b.mul(b.xor(h, b.lshr(h, I32(shift))), I32(factor))
        return h

    return types.uint32(types.uint64), build


def has_avx512() -> bool:
    """Return whether kernels are compiled for a processor with AVX-512."""
    if config.CPU_FEATURES is not None:
        return "+avx512f" in config.CPU_FEATURES.split(",")
    return config.CPU_NAME is None and bool(get_host_cpu_features().get("avx512f"))


class Lanes:
    """Instructions on vectors of `size` floats; addresses are integers."""

    def __init__(self, builder: ir.IRBuilder, size: int):
        self.b, self.vector, self.size = builder, ir.VectorType(REAL, size), size

    def at(self, address: ir.Value, kind: ir.Type) -> ir.Value:
        return self.b.inttoptr(address, kind.as_pointer())

    def load(self, address: ir.Value) -> ir.Value:
        return self.b.load(self.at(address, self.vector), align=BYTES)

    def store(self, value: ir.Value, address: ir.Value) -> None:
        self.b.store(value, self.at(address, self.vector), align=BYTES)

    def prefetch(self, address: ir.Value, size: int | None = None) -> None:
        """Have the lines of a vector at this address in the cache by the time they are read and written.

        size: in bytes, if not of a vector.
        """
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, I32, I32, I32])
        hint = cgutils.get_or_insert_function(self.b.module, kind, "llvm.prefetch.p0")
        for line in range(0, size or self.size * BYTES, CACHE_LINE):
            pointer = self.b.inttoptr(self.b.add(address, I64(line)), cgutils.voidptr_t)
            self.b.call(hint, [pointer, I32(0), I32(3), I32(1)])  # to read, into all levels, data

    def splat(self, value: ir.Value) -> ir.Value:
        none = ir.Constant(self.vector, ir.Undefined)
        one = self.b.insert_element(none, value, I32(0))
        return self.b.shuffle_vector(one, none, ir.Constant(ir.VectorType(I32, self.size), [0] * self.size))

    def product(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Return a b; unlike `fmul`, the compiler does not reorder a product of several factors."""
        return self.b.fmul(a, b, flags=["contract"])

    def times_plus(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """Return a b + c, fused where the processor can."""
        return self.b.fadd(self.b.fmul(a, b, flags=["contract"]), c, flags=["contract"])

    def root(self, value: ir.Value) -> ir.Value:
        kind, name = ir.FunctionType(self.vector, [self.vector]), f"llvm.sqrt.v{self.size}f32"
        return self.b.call(cgutils.get_or_insert_function(self.b.module, kind, name), [value])

    def root_by_estimate(self, value: ir.Value) -> ir.Value:
        """Return the square root, within one unit in the last place.

        With AVX-512 by the processor's estimate of its inverse and a step of Newton's method, in a third of
        the time, where a row is in the cache and the root takes longer than to read it.
        """
        if self.size != WIDE or not has_avx512():
            return self.root(value)
        b, zero = self.b, ir.Constant(self.vector, [0.0] * WIDE)
        mask = ir.IntType(WIDE)
        kind = ir.FunctionType(self.vector, [self.vector, self.vector, mask])
        estimate = cgutils.get_or_insert_function(b.module, kind, "llvm.x86.avx512.rsqrt14.ps.512")
        inverse = b.call(estimate, [value, zero, mask(-1)])
        root = b.fmul(value, inverse)
        error = self.times_plus(b.fsub(zero, root), root, value)
        half = ir.Constant(self.vector, [0.5] * WIDE)
        better = self.times_plus(b.fmul(half, inverse), error, root)
        infinite = ir.Constant(self.vector, [float("inf")] * WIDE)
        own = b.or_(b.fcmp_ordered("==", value, zero), b.fcmp_ordered("==", value, infinite))
        return b.select(own, value, better)  # the inverse of these is no number

    def weighted_sum(self, base, stride, rows, values, start, stop, first: ir.Value | None = None):
        """Return `first` plus Σ over q in [start, stop) of values[q] · base[rows[q]], kept in registers.

        rows are int32; the rows of base are `stride` bytes apart.
        """
        b = self.b
        total = cgutils.alloca_once(b, self.vector)
        b.store(ir.Constant(self.vector, [0.0] * self.size) if first is None else first, total)
        with cgutils.for_range_slice(b, start, stop, I64(1), I64) as (q, _):
            entry = b.mul(q, I64(BYTES))
            row = b.load(self.at(b.add(rows, entry), I32), align=BYTES)
            value = b.load(self.at(b.add(values, entry), REAL), align=BYTES)
            line = self.load(b.add(base, b.mul(b.zext(row, I64), stride)))
            b.store(self.times_plus(self.splat(value), line, b.load(total)), total)
        return b.load(total)


def ladder(
    b: ir.IRBuilder,
    columns: ir.Value,
    piece: Callable[[Lanes, ir.Value], None],
    overlap: bool = False,
    sizes: Sequence[int] = LADDER,
) -> None:
    """Emit piece(lanes, offset in bytes) for a row: as many of the first size as fit, then of the next.

    overlap: the last 64 columns of a row of 64 or more are one piece that overlaps the one before, faster
    than small ones; for pieces that only write.
    """
    start, end = I64(0), b.mul(columns, I64(BYTES))
    for size in sizes:
        step, rest = I64(size * BYTES), b.sub(end, start)
        stop = b.add(start, b.and_(rest, I64(-size * BYTES)))
        if overlap and size == LADDER[0]:
            stop = b.select(b.icmp_signed(">=", rest, step), end, start)
        last = b.sub(stop, step)
        with cgutils.for_range_slice(b, start, stop, step, I64) as (offset, _):
            if overlap and size == LADDER[0]:
                offset = b.select(b.icmp_signed(">", offset, last), last, offset)
            piece(Lanes(b, size), offset)
        start = stop


def panel_sum(lanes: int, add: bool = False):
    """Return a kernel that sums weighted rows of `lanes` columns; with `add` it adds to what is in `out`."""

    @intrinsic
    def panel(typing, out, base, stride, rows, values, start, stop):
        """out[:lanes] ← Σ over q in [start, stop) of values[q] · base[rows[q]][:lanes]; all are addresses.

        rows are int32; the rows of base are `stride` bytes apart.
        """

        def build(context, builder, signature, args):
            out, *product = args
            floats = Lanes(builder, lanes)
            floats.store(floats.weighted_sum(*product, first=floats.load(out) if add else None), out)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), build

    return panel


def row_sum(add: bool):
    """Return a kernel that sums weighted rows of any width; with `add` it adds to what is in `out`."""

    @intrinsic
    def row(typing, out, width, base, stride, rows, values, start, stop):
        """As panel_sum's, for rows of `width` columns."""

        def build(context, builder, signature, args):
            out, width, base, stride, rows, values, start, stop = args

            def piece(floats: Lanes, offset: ir.Value) -> None:
                to = builder.add(out, offset)
                first = floats.load(to) if add else None
                part = builder.add(base, offset)
                floats.store(floats.weighted_sum(part, stride, rows, values, start, stop, first), to)

            sizes = (WIDEST, *LADDER) if has_avx512() else LADDER
            ladder(builder, width, piece, overlap=not add, sizes=sizes)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), build

    return row
