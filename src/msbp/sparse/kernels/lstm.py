"""Element-wise part of an LSTM and the selection among its gates' gradients, for the rows of a time step.

Letters: n rows, H hidden_size, k kept of a group. A group is a gate's H gradients, or all 4H. Every loop
reads few arrays, because the compiler gives up vectorising where it would have to compare too many
addresses; the rows stay in the first-level cache from loop to loop. Threads divide the rows among them.
"""

import numpy as np

from .compile import kernel
from .parallel import LINE, parts_of, share, spread
from .select import add, remember, search_arrays, search_size, sparsify, whole_lanes
from .simd import BYTES, floats, ints, longs

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


@kernel
def advance_part(job, part, parts):
    h, c, bias, gates, previous_h, previous_c, tanh_c, n, H = job
    h, c, bias, gates = floats(h, (n, H)), floats(c, (n, H)), floats(bias, 4 * H), floats(gates, (n, 4 * H))
    previous_h, previous_c, tanh_c = (
        floats(previous_h, (n, H)),
        floats(previous_c, (n, H)),
        floats(tanh_c, (n, H)),
    )
    start, stop = share(part, parts, n, 1)
    for b in range(start, stop):
        row, state, cell, squashed = gates[b], h[b], c[b], tanh_c[b]
        to_h, to_c = previous_h[b], previous_c[b]
        for j in range(H):
            to_h[j] = state[j]
        for j in range(H):
            to_c[j] = cell[j]
        squash(row[: 2 * H], bias[: 2 * H], True)
        squash(row[2 * H : 3 * H], bias[2 * H : 3 * H], False)
        squash(row[3 * H :], bias[3 * H :], True)
        input_gate, forget, candidate, output = row[:H], row[H : 2 * H], row[2 * H : 3 * H], row[3 * H :]
        for j in range(H):
            cell[j] = forget[j] * cell[j] + input_gate[j] * candidate[j]
        for j in range(H):
            squashed[j] = tanh(cell[j])
        for j in range(H):
            state[j] = output[j] * squashed[j]


ELEMENT = 12  # an element of a gate, or its gradient, takes as long as reading so many floats


@kernel
def advance(h, c, bias, gates, previous_h, previous_c, tanh_c, n, H, threads):
    """As lstm/cell.py's advance; bias (4H) is required."""
    job = (h, c, bias, gates, previous_h, previous_c, tanh_c, n, H)
    spread(advance_part, job, parts_of(threads, n, n * 4 * H * ELEMENT), threads)


@kernel
def backward_row(grad_out, grad_h, grad_c, gates, previous_c, tanh_c, out, pitch, through, grad_next):
    """One row of gate_gradients; gate q goes to out[q · pitch :]. through, grad_next (H) are scratch."""
    H = grad_h.size
    input_gate, forget, candidate, output = gates[:H], gates[H : 2 * H], gates[2 * H : 3 * H], gates[3 * H :]
    of_input, of_forget = out[:H], out[pitch : pitch + H]
    of_candidate, of_output = out[2 * pitch : 2 * pitch + H], out[3 * pitch : 3 * pitch + H]
    for j in range(H):
        through[j] = (grad_out[j] + grad_h[j]) * output[j]
    for j in range(H):
        of_output[j] = through[j] * tanh_c[j] * (ONE - output[j])
    for j in range(H):
        grad_next[j] = grad_c[j] + through[j] * (ONE - tanh_c[j] * tanh_c[j])
    for j in range(H):
        of_input[j] = grad_next[j] * candidate[j] * input_gate[j] * (ONE - input_gate[j])
    for j in range(H):
        of_candidate[j] = grad_next[j] * input_gate[j] * (ONE - candidate[j] * candidate[j])
    for j in range(H):
        of_forget[j] = grad_next[j] * previous_c[j] * forget[j] * (ONE - forget[j])
    for j in range(H):
        grad_c[j] = grad_next[j] * forget[j]


@kernel
def gradients_part(job, part, parts):
    grad_out, stride, grad_h, grad_c, gates, previous_c, tanh_c, out, n, H = job
    grad_h, grad_c, gates = floats(grad_h, (n, H)), floats(grad_c, (n, H)), floats(gates, (n, 4 * H))
    previous_c, tanh_c, out = floats(previous_c, (n, H)), floats(tanh_c, (n, H)), floats(out, (n, 4 * H))
    through, grad_next = np.empty(H, np.float32), np.empty(H, np.float32)
    start, stop = share(part, parts, n, 1)
    for b in range(start, stop):
        above = floats(grad_out + b * stride, H)
        backward_row(
            above, grad_h[b], grad_c[b], gates[b], previous_c[b], tanh_c[b], out[b], H, through, grad_next
        )


@kernel
def gate_gradients(grad_out, stride, grad_h, grad_c, gates, previous_c, tanh_c, out, n, H, threads):
    """As lstm/cell.py's gate_gradients; the rows of grad_out are `stride` bytes apart."""
    job = (grad_out, stride, grad_h, grad_c, gates, previous_c, tanh_c, out, n, H)
    spread(gradients_part, job, parts_of(threads, n, n * 4 * H * ELEMENT), threads)


@kernel
def select_part(job, part, parts):
    """Select among the gradients of a part of the rows; failed[part] ← 1 + a row that is not finite, or 0.

    With several parts, what the rows do not propagate of a shared memory goes to rests (n, 4H).
    """
    (
        grad_out, stride, grad_h, grad_c, gates, previous_c, tanh_c, n, H, groups, k, memory, total, rests,
        per_slot, in_place, gamma, values, columns, bias, distance, failed, distances,
    ) = job  # fmt: skip
    width, pitch = 4 * H // groups, H
    lanes = whole_lanes(width)
    if groups == 4:
        pitch = lanes
    grad_h, grad_c, gates = floats(grad_h, (n, H)), floats(grad_c, (n, H)), floats(gates, (n, 4 * H))
    previous_c, tanh_c = floats(previous_c, (n, H)), floats(tanh_c, (n, H))
    V, K = floats(values, (n, groups * k)), ints(columns, (n, groups * k))
    remembered, apart = width if memory else 0, parts > 1 and not per_slot
    M, T = floats(memory, (n, groups, remembered)), floats(total, (n, groups, remembered))
    R, D = floats(rests, (n, groups, remembered)), distances[part]
    bias_sum, gamma = floats(bias, (groups, width)), np.float32(1 if apart else gamma)
    flat = np.zeros(groups * lanes, np.float32)
    rows, bits = flat.reshape(groups, lanes), flat.view(np.int32).reshape(groups, lanes)
    through, grad_next = np.empty(H, np.float32), np.empty(H, np.float32)
    search = search_arrays(np.zeros(3 * search_size(width), np.int32), width)
    D[:] = longs(distance, groups)
    failed[part] = 0
    start, stop = share(part, parts, n, 1)
    for b in range(start, stop):
        above = floats(grad_out + b * stride, H)
        backward_row(
            above, grad_h[b], grad_c[b], gates[b], previous_c[b], tanh_c[b], flat, pitch, through, grad_next
        )
        slot = b if per_slot else 0
        for q in range(groups):
            if bias:
                add(bias_sum[q], rows[q, :width])
            m, chosen = M[slot, q], slice(q * k, q * k + k)
            m_next = m if in_place else R[b, q] if apart else T[slot, q]
            onto = not in_place and not apart
            V_q, K_q, first = V[b, chosen], K[b, chosen], q * width
            count, D[q] = sparsify(bits[q], m, gamma, m_next, onto, k, D[q], search, V_q, K_q, first)
            if count < 0:
                failed[part] = b + 1
                return


@kernel
def rests_part(job, part, parts):
    rests, n, width, gamma, total = job
    start, stop = share(part, parts, width, LINE)
    for b in range(n):
        row = floats(rests + (b * width + start) * BYTES, stop - start)
        remember(row, np.float32(gamma), floats(total + start * BYTES, stop - start), True)


@kernel
def select_gates(
    grad_out, stride, grad_h, grad_c, gates, previous_c, tanh_c, n, H, groups, k,
    memory, total, rests, per_slot, in_place, gamma, values, columns, bias, distance, threads,
):  # fmt: skip
    """values, columns (n, groups · k) ← top-k of ∂ℓ/∂gates + memory in every group of every row.

    memory (slots or 1, 4H) or 0: row b has slot b, or all have the first. in_place: γ times the rest of a row
    becomes its slot's memory; else it adds to total, of the memory's shape, by way of rests (n, 4H) if there
    are several threads. bias (4H) or 0 gets ∂ℓ/∂gates added. distance (groups) is where top-k starts its
    search. Return 0, or 1 + a row that is not finite.
    """
    parts = 1
    if not bias and (not memory or per_slot or (rests and not in_place)):
        parts = parts_of(threads, n, n * 4 * H * 2 * ELEMENT)
    failed, distances = np.empty(parts, np.int64), np.empty((parts, groups), np.int64)
    job = (
        grad_out, stride, grad_h, grad_c, gates, previous_c, tanh_c, n, H, groups, k, memory, total, rests,
        per_slot, in_place, gamma, values, columns, bias, distance, failed, distances,
    )  # fmt: skip
    spread(select_part, job, parts, threads)
    for part in range(parts):
        if failed[part]:
            return failed[part]
    longs(distance, groups)[:] = distances[-1]
    if parts > 1 and memory and not per_slot:
        job_of_rests = (rests, n, 4 * H, gamma, total)
        spread(rests_part, job_of_rests, parts_of(threads, 4 * H // LINE, n * 4 * H), threads)
    return 0
