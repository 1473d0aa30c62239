"""The backward pass of an LSTM over all time steps, in one direction: dense, or of selected entries.

Letters: N rows, n of a time step, B sequences, H hidden_size, k kept of a group. A group is a gate's H
gradients, or all 4H. Loops are short, and threads divide the rows, as in lstm_forward.py.
"""

import numpy as np

from .blas import product_nn
from .compile import kernel
from .lstm_forward import ELEMENT, ONE
from .parallel import LINE, PARTS, parts_of, share, spread
from .rows import product_packed
from .select import add, remember, search_arrays, search_size, sparsify, whole_lanes
from .simd import BYTES, address_of, floats, ints, longs


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
    """Select among the gradients of a part of the rows of a time step, see `select_gates`.

    finite[part] ← whether they all are. With several parts, what the rows do not propagate of a shared memory
    goes to rests (n, 4H).
    """
    (
        grad_out, stride, grad_h, grad_c, gates, previous_c, tanh_c, n, H, groups, k, memory, total, per_slot,
        gamma, values, columns, bias, distance, scratch, rests, distances, finite,
    ) = job  # fmt: skip
    width, pitch = 4 * H // groups, H
    lanes = whole_lanes(width)
    if groups == 4:
        pitch = lanes
    grad_h, grad_c, gates = floats(grad_h, (n, H)), floats(grad_c, (n, H)), floats(gates, (n, 4 * H))
    previous_c, tanh_c = floats(previous_c, (n, H)), floats(tanh_c, (n, H))
    V, K, D = floats(values, (n, groups * k)), ints(columns, (n, groups * k)), distances[part]
    remembered, apart = width if memory else 0, parts > 1 and total != 0 and not per_slot
    M, T = floats(memory, (n, groups, remembered)), floats(total, (n, groups, remembered))
    R = floats(address_of(rests), (n, groups, remembered))
    bias_sum, gamma = floats(bias, (groups, width)), np.float32(1 if apart else gamma)
    flat, work = scratch[0][part], scratch[1][part]
    through, grad_next = scratch[2][part], scratch[3][part]
    rows, bits = flat.reshape(groups, lanes), flat.view(np.int32).reshape(groups, lanes)
    search = search_arrays(work, width)
    D[:] = longs(distance, groups)
    finite[part] = True
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
            m_next = R[b, q] if apart else T[slot, q] if total else m
            V_q, K_q, first, onto = V[b, chosen], K[b, chosen], q * width, total != 0 and not apart
            count, D[q] = sparsify(bits[q], m, gamma, m_next, onto, k, D[q], search, V_q, K_q, first)
            if count < 0:
                finite[part] = False
                return


@kernel
def rests_part(job, part, parts):
    """Add γ times the rests (n, width) to total, row after row, for a part of the columns."""
    rests, n, width, gamma, total = job
    start, stop = share(part, parts, width, LINE)
    for b in range(n):
        to = floats(total + start * BYTES, stop - start)
        remember(rests[b, start:stop], np.float32(gamma), to, True)


@kernel
def select_gates(
    grad_out, stride, grad_h, grad_c, gates, previous_c, tanh_c, n, H, groups, k,
    memory, total, per_slot, gamma, values, columns, bias, distance, scratch, rests, threads,
):  # fmt: skip
    """values, columns (n, groups · k) ← top-k of ∂ℓ/∂gates + memory in every group of every row.

    memory (slots or 1, 4H) or 0: row b has slot b, or all have the first. γ times the rest of a row is added
    to total, of the memory's shape; where that is 0 it becomes its slot's memory. bias (4H) or 0 gets
    ∂ℓ/∂gates added. distance (groups) is where top-k starts its search. scratch: arrays with a row for each
    part; rests (n, 4H) for several. Return False if a row is not finite.
    """
    parts = 1
    if not bias and (not memory or per_slot or total):
        parts = parts_of(threads, n, n * 4 * H * 2 * ELEMENT)
    distances, finite = np.empty((parts, groups), np.int64), np.empty(parts, np.bool_)
    job = (
        grad_out, stride, grad_h, grad_c, gates, previous_c, tanh_c, n, H, groups, k, memory, total, per_slot,
        gamma, values, columns, bias, distance, scratch, rests, distances, finite,
    )  # fmt: skip
    spread(select_part, job, parts, threads)
    if not finite.all():
        return False
    longs(distance, groups)[:] = distances[parts - 1]
    if parts > 1 and total and not per_slot:
        work = (rests, n, 4 * H, gamma, total)
        spread(rests_part, work, parts_of(threads, 4 * H // LINE, n * 4 * H), threads)
    return True


@kernel
def sparse_backward(
    grad_out, stride, grad_h, grad_c, gates, previous_c, tanh_c, steps, count, H, panels, to_start,
    groups, k, memory, total, per_slot, waits, gamma, values, columns, bias, distance, threads,
):  # fmt: skip
    """Propagate g, the estimate of ∂ℓ/∂gates, from the last time step to the first, as in `select_gates`.

    grad_h, grad_c (B, H) become the gradients of the first states, grad_h only if `to_start`. waits: the
    memory stays as it is, and total sums over all time steps. Return False if a gradient is not finite.
    """
    S, k_all, width = longs(steps, (count, 2)), groups * k, 4 * H // groups
    parts, most = (1, 0) if threads == 1 else (PARTS * threads, S[:, 1].max())
    scratch = (
        np.zeros((parts, groups * whole_lanes(width)), np.float32),
        np.zeros((parts, 3 * search_size(width)), np.int32),
        np.empty((parts, H), np.float32), np.empty((parts, H), np.float32),
    )  # fmt: skip
    rests = np.empty((most, 4 * H), np.float32)
    for t in range(count - 1, -1, -1):
        first, n = S[t, 0], S[t, 1]
        row, entry = first * H * BYTES, first * k_all * BYTES
        if not select_gates(
            grad_out + first * stride, stride, grad_h, grad_c, gates + 4 * row, previous_c + row,
            tanh_c + row, n, H, groups, k, memory, total, per_slot, gamma, values + entry, columns + entry,
            bias, distance, scratch, rests, threads,
        ):  # fmt: skip
            return False
        if total and not waits:
            m, rest = floats(memory, 4 * H), floats(total, 4 * H)
            for j in range(4 * H):
                m[j] = rest[j] / np.float32(n)
            rest[:] = 0
        if t or to_start:
            product_packed(values + entry, columns + entry, n, k_all, panels, 4 * H, H, grad_h, threads)
    return True


@kernel
def dense_backward(
    grad_out, stride, grad_h, grad_c, gates, previous_c, tanh_c, steps, count, H, weight_hh, to_start, g,
    sgemm, threads,
):  # fmt: skip
    """g (N, 4H) ← ∂ℓ/∂gates, from the last time step to the first; the rest as in `sparse_backward`."""
    S = longs(steps, (count, 2))
    for t in range(count - 1, -1, -1):
        first, n = S[t, 0], S[t, 1]
        row = first * H * BYTES
        gate_gradients(
            grad_out + first * stride, stride, grad_h, grad_c, gates + 4 * row, previous_c + row,
            tanh_c + row, g + 4 * row, n, H, threads,
        )  # fmt: skip
        if t or to_start:
            product_nn(sgemm, g + 4 * row, weight_hh, grad_h, n, H, 4 * H)
