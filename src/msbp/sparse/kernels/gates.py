"""Selection among the gradients of an LSTM's gates, for the rows of one time step, each in cache from start
to end.

Letters: n rows, H hidden_size, k kept of a group. A group has width entries: a gate's H, or all 4H.
"""

import numpy as np

from .compile import kernel
from .lstm import backward_row
from .select import INFINITE, LANES, largest_magnitude, top_k
from .simd import floats, ints, longs


@kernel
def remember(row, m, total, gamma, in_place):
    """What was not propagated becomes the memory of the next row, or adds to what its rows leave."""
    if in_place:
        for j in range(m.size):
            m[j] = gamma * row[j]
    else:
        for j in range(m.size):
            total[j] += gamma * row[j]


@kernel
def select_gates(
    grad_out, stride, grad_h, grad_c, gates, previous_c, tanh_c, n, H, groups, k,
    memory, total, per_slot, in_place, gamma, values, columns, bias, distance,
):  # fmt: skip
    """values, columns (n, groups · k) ← top-k of ∂ℓ/∂gates + memory in every group of every row.

    memory (slots or 1, 4H) or 0: row b has slot b, or all have the first. in_place: a row's remains become
    its slot's memory; else they add to total, of the memory's shape. bias (4H) or 0 gets ∂ℓ/∂gates added.
    distance (groups) is where top-k starts its search. Returns 0, or 1 + a row that holds NaN or infinity.
    """
    width, pitch = 4 * H // groups, H
    lanes = (width + LANES - 1) // LANES * LANES
    if groups == 4:
        pitch = lanes
    grad_h, grad_c, gates = floats(grad_h, (n, H)), floats(grad_c, (n, H)), floats(gates, (n, 4 * H))
    previous_c, tanh_c = floats(previous_c, (n, H)), floats(tanh_c, (n, H))
    V, K, D = floats(values, (n, groups * k)), ints(columns, (n, groups * k)), longs(distance, groups)
    M, T = floats(memory, (n, groups, width)), floats(total, (n, groups, width))
    bias_sum, gamma = floats(bias, (groups, width)), np.float32(gamma)
    flat = np.zeros(groups * lanes, np.float32)
    carried, bits = flat.reshape(groups, lanes), flat.view(np.int32).reshape(groups, lanes)
    through, grad_next = np.empty(H, np.float32), np.empty(H, np.float32)
    candidates, magnitudes = np.zeros(lanes + LANES, np.int32), np.zeros(lanes + LANES, np.int32)
    kept = np.zeros(lanes + LANES, np.int32)
    for b in range(n):
        above = floats(grad_out + b * stride, H)
        backward_row(
            above, grad_h[b], grad_c[b], gates[b], previous_c[b], tanh_c[b], flat, pitch, through, grad_next
        )
        slot = b if per_slot else 0
        for q in range(groups):
            row = carried[q, :width]
            if bias:
                of_bias = bias_sum[q]
                for j in range(width):
                    of_bias[j] += row[j]
            if memory:
                m = M[slot, q]
                for j in range(width):
                    row[j] += m[j]
            largest = largest_magnitude(bits[q])
            if largest >= INFINITE:
                return b + 1
            count, D[q] = top_k(bits[q], lanes, k, largest, D[q], candidates, magnitudes, kept)
            chosen, place = V[b, q * k : (q + 1) * k], K[b, q * k : (q + 1) * k]
            for e in range(count):
                chosen[e], place[e] = row[kept[e]], kept[e] + q * width
                row[kept[e]] = 0
            for e in range(count, k):
                chosen[e], place[e] = 0, q * width
            if memory:
                remember(row, M[slot, q], T[slot, q], gamma, in_place)
    return 0
