"""What numba cannot say: addresses as arrays, 32 comparisons at once, 32-bit hashing, a call of BLAS."""

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from .compile import kernel

I32, I64 = ir.IntType(32), ir.IntType(64)


@intrinsic
def pointer(typing, address):
    """An integer as a pointer."""
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
    """Where the data of an array begins.

    numba frees an array behind its last use by name, so an array that a kernel made itself must not be known
    by its address alone: take the address in the call that reads it.
    """

    def build(context, b, signature, args):
        return b.ptrtoint(make_array(signature.args[0])(context, b, args[0]).data, I64)

    return types.int64(array), build


@intrinsic
def reaches(typing, bits, start, threshold):
    """A word of 32 bits: bit j says that the magnitude of bits[start + j] reaches the threshold.

    bits (int32) are float patterns; without the sign they order like the magnitudes.
    """

    def build(context, b, signature, args):
        lanes = ir.VectorType(I32, 32)
        none = ir.Constant(lanes, ir.Undefined)
        one = b.insert_element(none, args[2], I32(0))
        thresholds = b.shuffle_vector(one, none, ir.Constant(lanes, [0] * 32))
        place = b.gep(make_array(signature.args[0])(context, b, args[0]).data, [args[1]])
        loaded = b.load(b.bitcast(place, lanes.as_pointer()), align=4)
        magnitudes = b.and_(loaded, ir.Constant(lanes, [0x7FFFFFFF] * 32))
        return b.zext(b.bitcast(b.icmp_signed(">=", magnitudes, thresholds), I32), I64)

    return types.int64(bits, types.int64, types.int32), build


@intrinsic
def ones(typing, word):
    """How many bits are set."""
    return types.int64(types.int64), lambda c, b, s, a: b.ctpop(a[0])


@intrinsic
def lowest(typing, word):
    """Index of the lowest set bit."""
    return types.int64(types.int64), lambda c, b, s, a: b.cttz(a[0], ir.IntType(1)(1))


@intrinsic
def scramble(typing, word):
    """The hash of dropout.py; numba would widen its 32-bit steps to 64 bits, at half the speed."""

    def build(context, b, signature, args):
        h = b.trunc(args[0], I32)
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1)):
            h = b.mul(b.xor(h, b.lshr(h, I32(shift))), I32(factor))
        return h

    return types.uint32(types.uint64), build


@intrinsic
def _sgemm(typing, function, ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc):
    """Call BLAS's sgemm at an address; every argument goes by reference, as Fortran wants it."""
    whole = types.int64
    signature = types.void(*[whole] * 10, types.float32, whole, whole)

    def build(context, builder, sig, args):
        def by_reference(value, kind):
            place = cgutils.alloca_once(builder, kind)
            builder.store(builder.trunc(value, kind) if kind in (I32, ir.IntType(8)) else value, place)
            return builder.bitcast(place, cgutils.voidptr_t)

        function, ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc = args
        char, real = ir.IntType(8), ir.FloatType()
        address = [builder.inttoptr(value, cgutils.voidptr_t) for value in (a, b, c)]
        passed = [by_reference(t, char) for t in (ta, tb)] + [by_reference(size, I32) for size in (m, n, k)]
        passed += [by_reference(real(1.0), real), address[0], by_reference(lda, I32)]
        passed += [
            address[1],
            by_reference(ldb, I32),
            by_reference(beta, real),
            address[2],
            by_reference(ldc, I32),
        ]
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t] * 13)
        builder.call(builder.inttoptr(function, kind.as_pointer()), passed)
        return context.get_dummy_value()

    return signature, build


PLAIN, TRANSPOSED = ord("N"), ord("T")


@kernel
def product_nt(sgemm, a, b, out, m, n, k):
    """out (m, n) = a (m, k) b (n, k)ᵀ, rows contiguous."""
    _sgemm(sgemm, TRANSPOSED, PLAIN, n, m, k, b, k, a, k, np.float32(0), out, n)


@kernel
def part_product_nt(sgemm, a, lda, b, ldb, beta, out, m, n, k):
    """out (m, n) = beta out + a (m, k) b (n, k)ᵀ, where the rows of a and b are lda and ldb floats apart."""
    _sgemm(sgemm, TRANSPOSED, PLAIN, n, m, k, b, ldb, a, lda, np.float32(beta), out, n)


@kernel
def product_nn(sgemm, a, b, out, m, n, k):
    """out (m, n) = a (m, k) b (k, n)."""
    _sgemm(sgemm, PLAIN, PLAIN, n, m, k, b, n, a, k, np.float32(0), out, n)


@kernel
def product_tn(sgemm, a, b, out, m, n, k):
    """out (m, n) = a (k, m)ᵀ b (k, n)."""
    _sgemm(sgemm, PLAIN, TRANSPOSED, n, m, k, b, n, a, m, np.float32(0), out, n)
