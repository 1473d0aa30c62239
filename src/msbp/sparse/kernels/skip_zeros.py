"""A matrix product that skips the columns of x that are zero in 32 examples: the rims of images, and units
whose activation is zero.

Letters: B batch, i in_features, n out_features. 32 examples are adjacent in a vector, so that the rows of
the weight are read as they are, one number at a time, without packing.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .compile import kernel
from .parallel import LINE, parts_of, share, spread
from .select import MAGNITUDE
from .simd import BYTES, I32, I64, REAL, Lanes, address_of, aligned, floats, has_avx512, ints

LANES = 32
PANEL = 4096  # columns of x at a time: 512 KiB
ROWS = 6 if has_avx512() else 2  # sums that fit into the registers
UNIT = 48  # rows of the weight, whole groups of ROWS and whole cache lines of z
WAYS = 8  # lines of x that stay in the nearest cache even if its rows are a power of two apart
GATHERED = 48  # rows of the weight that BLAS multiplies in the time that it takes to list and gather columns


def _products(rows: int):
    @intrinsic
    def products(typing, out, weight, stride, columns, x, count):
        """out (rows, 32) += Σ over q < count of weight[:, columns[q]] · x[q]; all are addresses.

        columns (int32) and stride are in bytes. The rows after these are fetched meanwhile, since a processor
        foresees only reads that go on line by line.
        """

        def build(context, b: ir.IRBuilder, signature, args):
            out, weight, stride, columns, x, count = args
            f = Lanes(b, LANES)
            outs = [b.add(out, I64(r * LANES * BYTES)) for r in range(rows)]
            lines = [b.add(weight, b.mul(stride, I64(r))) for r in range(rows)]
            sums = [cgutils.alloca_once(b, f.vector) for _ in range(rows)]
            for total, to in zip(sums, outs, strict=True):
                b.store(f.load(to), total)
            with cgutils.for_range(b, count, intp=I64) as loop:
                column = b.load(f.at(b.add(columns, b.mul(loop.index, I64(BYTES))), I32), align=BYTES)
                examples = f.load(b.add(x, b.mul(loop.index, I64(LANES * BYTES))))
                for total, line in zip(sums, lines, strict=True):
                    next_line = b.add(line, b.mul(stride, I64(rows)))
                    f.prefetch(b.add(next_line, b.zext(column, I64)), BYTES)
                    value = b.load(f.at(b.add(line, b.zext(column, I64)), REAL), align=BYTES)
                    b.store(f.times_plus(f.splat(value), examples, b.load(total)), total)
            for total, to in zip(sums, outs, strict=True):
                f.store(b.load(total), to)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), build

    return products


_many, _one = _products(ROWS), _products(1)


@kernel
def find_used(x, columns):
    """List the columns of x (rows, i), given as bits, that hold anything but zeros; return how many."""
    rows, i = x.shape
    bits, count = np.zeros(i, np.int32), 0
    for b in range(rows):
        row = x[b]
        for c in range(i):
            bits[c] |= row[c]
    for c in range(i):
        columns[count] = c * BYTES
        count += (bits[c] & MAGNITUDE) != 0
    return count


@kernel
def gather(x, columns, count, side):
    """side (count, 32) ← the listed columns of x (rows, i)."""
    rows = len(x)
    for first in range(0, rows - WAYS + 1, WAYS):
        for q in range(count):
            column = columns[q] // BYTES
            for b in range(first, first + WAYS):
                side[q * LANES + b] = x[b, column]
    for b in range(rows - rows % WAYS, rows):
        for q in range(count):
            side[q * LANES + b] = x[b, columns[q] // BYTES]


@kernel
def products(weight, n, i, columns, x, count, sums):
    """sums (n, 32) = weight x for the columns that are listed, x (count, 32)."""
    sums[:] = 0
    for first in range(0, count, PANEL):
        listed, part, length = columns[first:], x[first * LANES :], np.int64(min(PANEL, count - first))
        j = 0
        while j < n:
            out, row = j * LANES * BYTES, weight + j * i * BYTES
            if j + ROWS <= n:
                _many(address_of(sums) + out, row, i * BYTES, address_of(listed), address_of(part), length)
                j += ROWS
            else:
                _one(address_of(sums) + out, row, i * BYTES, address_of(listed), address_of(part), length)
                j += 1


@kernel
def products_part(job, part, parts):
    """Fill z (rows, n) for a part of the rows of the weight."""
    weight, n, i, columns, side, count, z, rows = job
    start, stop = share(part, parts, n, UNIT)
    sums, Z = aligned((stop - start) * LANES), floats(z, (rows, n))
    products(weight + start * i * BYTES, stop - start, i, columns, side, count, sums)
    whole = start + (stop - start) // LINE * LINE
    for first in range(start, whole, LINE):  # so many rows of sums stay in the nearest cache
        for b in range(rows):
            for j in range(first, first + LINE):
                Z[b, j] = sums[(j - start) * LANES + b]
    for b in range(rows):
        for j in range(whole, stop):
            Z[b, j] = sums[(j - start) * LANES + b]


@kernel
def worth_it(count, B, n, i):
    """Return whether this is expected to be faster than BLAS if each 32 examples use `count` columns."""
    examples = (B + LANES - 1) // LANES * LANES
    return count * examples * n < B * i * (n - GATHERED)


@kernel
def product_of_used(x, weight, z, B, n, i, threads):
    """z (B, n) = x (B, i) weightᵀ; return False, without a product, where BLAS is expected to be faster.

    The first 32 examples decide. A column of zeros contributes zero even if its weights are not finite.
    """
    if not worth_it(0, B, n, i):
        return False
    X, columns = floats(x, (B, i)), np.empty(i + 1, np.int32)
    count = find_used(ints(x, (min(LANES, B), i)), columns)
    if not worth_it(count, B, n, i):
        return False
    side = aligned(i * LANES)
    for first in range(0, B, LANES):
        rows = min(LANES, B - first)
        if first:
            count = find_used(ints(x + first * i * BYTES, (rows, i)), columns)
        gather(X[first : first + rows], columns, count, side)
        job = (weight, n, i, columns, side, count, z + first * n * BYTES, rows)
        spread(products_part, job, parts_of(threads, (n + UNIT - 1) // UNIT, count * n), threads)
    return True
