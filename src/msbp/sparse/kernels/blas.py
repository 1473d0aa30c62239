"""Matrix products by BLAS from within kernels, called at the address of its sgemm."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .compile import kernel

I32 = ir.IntType(32)


@intrinsic
def _sgemm(typing, function, ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc):
    """Call BLAS's sgemm at an address, all arguments by reference as in Fortran."""
    whole = types.int64
    signature = types.void(*[whole] * 10, types.float32, whole, whole)

    def build(context, builder, sig, args):
        def by_reference(value, kind):
            variable = cgutils.alloca_once(builder, kind)
            builder.store(builder.trunc(value, kind) if kind in (I32, ir.IntType(8)) else value, variable)
            return builder.bitcast(variable, cgutils.voidptr_t)

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
