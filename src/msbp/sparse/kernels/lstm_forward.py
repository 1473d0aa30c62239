"""The forward pass of an LSTM over all time steps, in one direction.

Letters: N rows, n of a time step, B sequences, H hidden_size. Every loop reads few arrays, because the
compiler gives up vectorising where it would have to compare too many addresses; the rows stay in the
first-level cache from loop to loop. weight_hh is packed once for all time steps, which BLAS would do at each.
Threads divide the columns of that product among them, else the rows of a time step.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .compile import kernel
from .parallel import parts_of, share, spread
from .select import add
from .simd import BYTES, I64, REAL, Lanes, address_of, floats, has_avx512, longs

ROWS = 4  # of the product with weight_hh at a time: their sums fit into the registers
LANES = 32 if has_avx512() else 16
ELEMENT = 12  # an element of a gate, or its gradient, takes as long as reading so many floats
ONE, HALF, BOUND = np.float32(1), np.float32(0.5), np.float32(8)
# x · P(x²) / Q(x²), fitted to tanh on [-8, 8] for least relative error; 3.5e-7 in float32
P1, P2, P3, P4 = map(np.float32, (1.34444967e-1, 3.57159576e-3, 2.18946225e-5, 1.52303623e-8))
Q1, Q2, Q3, Q4 = map(np.float32, (4.67778236e-1, 2.61644349e-2, 3.41128820e-4, 8.52242465e-7))


@kernel
def tanh(x):
    x = BOUND if x > BOUND else x  # not min and max, which would swallow a NaN
    x = -BOUND if x < -BOUND else x
    u = x * x
    return (
        x * (ONE + u * (P1 + u * (P2 + u * (P3 + u * P4)))) / (ONE + u * (Q1 + u * (Q2 + u * (Q3 + u * Q4))))
    )


@kernel
def squash(gate, bias, half):
    """gate ← tanh(gate + bias), or if `half` the logistic function of it."""
    if half:
        for j in range(gate.size):
            gate[j] = HALF + HALF * tanh(HALF * (gate[j] + bias[j]))
    else:
        for j in range(gate.size):
            gate[j] = tanh(gate[j] + bias[j])


def product_of_rows(rows: int):
    """Return a kernel that adds a product of some rows with a panel to LANES columns of their outputs."""

    @intrinsic
    def product(typing, out, pitch, left, stride, panel, count):
        """out[r, :LANES] += Σ over q < count of left[r, q] · panel[q] for each row r; all are addresses.

        The rows of out and left are pitch and stride bytes apart.
        """

        def build(context, b: ir.IRBuilder, signature, args):
            out, pitch, left, stride, panel, count = args
            f = Lanes(b, LANES)
            sums = [cgutils.alloca_once(b, f.vector) for _ in range(rows)]
            for total in sums:
                b.store(ir.Constant(f.vector, [0.0] * LANES), total)
            lines = [b.add(left, b.mul(stride, I64(r))) for r in range(rows)]
            with cgutils.for_range(b, count, intp=I64) as loop:
                weights = f.load(b.add(panel, b.mul(loop.index, I64(LANES * BYTES))))
                offset = b.mul(loop.index, I64(BYTES))
                for total, line in zip(sums, lines, strict=True):
                    value = b.load(f.at(b.add(line, offset), REAL), align=BYTES)
                    b.store(f.times_plus(f.splat(value), weights, b.load(total)), total)
            for r, total in enumerate(sums):
                to = b.add(out, b.mul(pitch, I64(r)))
                f.store(b.fadd(f.load(to), b.load(total)), to)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), build

    return product


_rows, _row = product_of_rows(ROWS), product_of_rows(1)


@kernel
def pack_rows(matrix, panels, m, n):
    """Fill all panels (n, LANES) of the transpose of a matrix (m, n), zeros beyond its last row."""
    M, count = floats(matrix, (m, n)), (m + LANES - 1) // LANES
    P = floats(panels, (count, n, LANES))
    P[count - 1] = 0
    for j in range(m):
        panel, row = P[j // LANES], M[j]
        for q in range(n):
            panel[q, j % LANES] = row[q]


@kernel
def state_part(job, part, parts):
    """Add a part of the columns of h (n, H) · weight_hhᵀ, which the panels hold, to gates (n, 4H)."""
    gates, h, panels, n, H = job
    pitch, stride, rest = 4 * H * BYTES, H * BYTES, np.empty(LANES, np.float32)
    start, stop = share(part, parts, 4 * H, LANES)
    for column in range(start, stop, LANES):
        to, panel = gates + column * BYTES, panels + column * H * BYTES
        width, b = min(LANES, 4 * H - column), 0
        while width == LANES and b + ROWS <= n:
            _rows(to + b * pitch, pitch, h + b * stride, stride, panel, H)
            b += ROWS
        while b < n:
            if width == LANES:
                _row(to + b * pitch, pitch, h + b * stride, stride, panel, H)
            else:
                rest[:] = 0
                _row(address_of(rest), pitch, h + b * stride, stride, panel, H)
                add(floats(to + b * pitch, width), rest[:width])
            b += 1


@kernel
def advance(h, c, bias, gates, previous_h, previous_c, tanh_c, out):
    """Advance the states h, c (H) of a sequence by one step, in place, as lstm/cell.py's advance."""
    H = h.size
    for j in range(H):
        previous_h[j] = h[j]
    for j in range(H):
        previous_c[j] = c[j]
    squash(gates[: 2 * H], bias[: 2 * H], True)
    squash(gates[2 * H : 3 * H], bias[2 * H : 3 * H], False)
    squash(gates[3 * H :], bias[3 * H :], True)
    input_gate, forget, candidate, output = gates[:H], gates[H : 2 * H], gates[2 * H : 3 * H], gates[3 * H :]
    for j in range(H):
        c[j] = forget[j] * c[j] + input_gate[j] * candidate[j]
    for j in range(H):
        tanh_c[j] = tanh(c[j])
    for j in range(H):
        h[j] = output[j] * tanh_c[j]
    for j in range(H):
        out[j] = h[j]


@kernel
def advance_part(job, part, parts):
    """Advance a part of the sequences by one step, of rows from `first` on."""
    gates, bias, h, c, out, stride, previous_h, previous_c, tanh_c, first, n, H = job
    start, stop = share(part, parts, n, 1)
    for b in range(start, stop):
        row, slot = (first + b) * H * BYTES, b * H * BYTES
        advance(
            floats(h + slot, H), floats(c + slot, H), floats(bias, 4 * H), floats(gates + 4 * row, 4 * H),
            floats(previous_h + row, H), floats(previous_c + row, H), floats(tanh_c + row, H),
            floats(out + (first + b) * stride, H),
        )  # fmt: skip


@kernel
def forward(
    gates, bias, panels, h, c, out, stride, previous_h, previous_c, tanh_c, steps, count, H, from_zero,
    threads,
):  # fmt: skip
    """Run the time steps of a direction; steps (count, 2) are the first row of each and its number of rows.

    gates (N, 4H), the products with the input, become the activated gates. h, c (B, H) become the last
    states. The rows of out are `stride` bytes apart. from_zero: the first h is zero.
    """
    S = longs(steps, (count, 2))
    for t in range(count):
        first, n = S[t, 0], S[t, 1]
        if t or not from_zero:
            product = (gates + 4 * first * H * BYTES, h, panels, n, H)
            spread(state_part, product, parts_of(threads, 4 * H // LANES, n * 4 * H * H), threads)
        job = (gates, bias, h, c, out, stride, previous_h, previous_c, tanh_c, first, n, H)
        spread(advance_part, job, parts_of(threads, n, n * 4 * H * ELEMENT), threads)
