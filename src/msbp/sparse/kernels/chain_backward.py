"""The backward pass of a chain, from its last stage to its first.

The paper's Algorithm 2 for a stage, from ∂ℓ/∂z on:

    g ← top_k(∂ℓ/∂h + m)        select, in chain_select.py
    m ← γ(∂ℓ/∂h + m − g)
    ∂ℓ/∂W ← g xᵀ                weight_gradients
    ∂ℓ/∂x ← Wᵀ g                propagate, or form_grad_h of the stage below

Letters: B batch, i inputs and n outputs of a stage, k kept. Memories change only after all stages were
finite.
"""

from .blas import product_nn, product_tn
from .chain_forward import NONE, PER_SLOT, stage_table
from .chain_select import form_grad_h, select
from .compile import kernel
from .parallel import parts_of, share, spread
from .rows import (
    CACHED,
    by_column,
    fill,
    form_by_panels,
    form_part,
    list_columns,
    needs_panels,
    sum_rows,
    weighted_columns,
    weighted_sum,
)
from .simd import BYTES, address_of, aligned, floats

PANEL = 1 << 16  # floats of W that stay in the second-level cache: 256 KiB
READS = 8  # of each row of a panel of W, on average, from which its copy pays
NARROW = 32  # a dense stage with at most so many outputs hands its gradient down as factors, too


@kernel
def propagate(job, part, parts):
    """Form a part of the rows of ∂ℓ/∂x ← Wᵀ g (B, i) of a sparse stage."""
    table, count, depth, B = job
    s = stage_table(table, count)[depth]
    start, stop = share(part, parts, B, 1)
    for b in range(start, stop):
        at = b * s.k * BYTES
        out = s.grad_x + b * s.inputs * BYTES
        weighted_sum(out, s.weight, s.inputs, s.columns + at, s.values + at, 0, s.k)


@kernel
def weight_panel(B, s):
    """Return how many columns of W to copy at a time for ∂ℓ/∂x, or 0 to read W where it is.

    A large W does not stay in the second-level cache as a whole, and rows of a few KiB share sets of it. The
    copy pays if the entries read each row often enough.
    """
    if s.outputs * s.inputs <= CACHED or B * s.k < READS * s.outputs:
        return 0
    return min(s.inputs, max(64, PANEL // s.outputs // 64 * 64))


@kernel
def propagate_panels(job, part, parts):
    """Form a part of the columns of ∂ℓ/∂x ← Wᵀ g (B, i) of a sparse stage, by panels of W."""
    table, count, depth, B, step = job
    s = stage_table(table, count)[depth]
    W, panel = floats(s.weight, (s.outputs, s.inputs)), aligned(s.outputs * step)
    P = panel.reshape(s.outputs, step)
    start, stop = share(part, parts, s.inputs, step)
    for begin in range(start, stop, step):
        fill(P, W, 0, begin)
        width = min(step, s.inputs - begin)
        for b in range(B):
            at, out = b * s.k * BYTES, s.grad_x + (b * s.inputs + begin) * BYTES
            weighted_columns(out, address_of(panel), width, step, s.columns + at, s.values + at, 0, s.k)


@kernel
def propagate_all(table, count, depth, B, threads):
    """Form ∂ℓ/∂x ← Wᵀ g (B, i) of a sparse stage."""
    s = stage_table(table, count)[depth]
    step, work = weight_panel(B, s), B * s.k * s.inputs
    if step:
        panels = (s.inputs + step - 1) // step
        spread(propagate_panels, (table, count, depth, B, step), parts_of(threads, panels, work), threads)
    else:
        spread(propagate, (table, count, depth, B), parts_of(threads, B, work), threads)


@kernel
def grad_h_part(job, part, parts):
    """Form a part of the rows of ∂ℓ/∂h (B, n) of a dense stage."""
    table, count, depth, grad, B = job
    stages = stage_table(table, count)
    s, above = stages[depth], stages[min(depth + 1, count - 1)]
    start, stop = share(part, parts, B, 1)
    for b in range(start, stop):
        form_grad_h(s.grad_h + b * s.outputs * BYTES, b, s, grad, above)


@kernel
def dense_stage(table, count, depth, grad, B, sgemm, threads):
    """Form the gradients of a stage that propagates all of ∂ℓ/∂h."""
    stages = stage_table(table, count)
    s, above = stages[depth], stages[min(depth + 1, count - 1)]
    n = s.outputs
    width = 1 if grad else above.k if above.k else above.outputs
    spread(grad_h_part, (table, count, depth, grad, B), parts_of(threads, B, B * n * width), threads)
    if s.grad_bias:
        sum_rows(s.grad_h, B, n, s.grad_bias, threads)
    if s.grad_weight:
        product_tn(sgemm, s.grad_h, s.x, s.grad_weight, n, s.inputs, B)
    if s.grad_x:
        product_nn(sgemm, s.grad_h, s.weight, s.grad_x, B, s.inputs, n)


@kernel
def backward(table, count, B, grad, sgemm, scratch, threads):
    """Propagate ∂ℓ/∂z of the last stage; return 0, or 1 + the stage whose gradient is not finite.

    The rows of ∂ℓ/∂W of sparse stages are counted here, for `weight_gradients` to form.
    """
    stages = stage_table(table, count)
    for depth in range(count - 1, -1, -1):
        s = stages[depth]
        if s.k == 0:
            dense_stage(table, count, depth, grad, B, sgemm, threads)
        elif not select(table, count, depth, grad, B, scratch, threads):
            return depth + 1
        else:
            if s.starts:
                s.touched = by_column(s.values, s.columns, B, s.outputs, s.k, s.starts, s.examples, s.weights)
            if s.grad_x:
                propagate_all(table, count, depth, B, threads)
        grad = s.grad_x
    for depth in range(count):
        s = stages[depth]
        if s.kind != NONE and (s.kind != PER_SLOT or B <= s.slots):
            size = s.outputs * (B if s.kind == PER_SLOT else 1)
            memory, following = floats(s.memory, size), floats(s.memory_next, size)
            for j in range(size):
                memory[j] = following[j]
    return 0


@kernel
def by_panels(s, B):
    """Return whether a stage's rows of ∂ℓ/∂W are formed by panels of x."""
    return needs_panels(s.starts, s.outputs, B, s.inputs, s.touched)


@kernel
def weight_part(job, part, parts):
    """Form a part of the rows of ∂ℓ/∂W of every sparse stage that needs no panels."""
    table, count, B = job
    stages = stage_table(table, count)
    for depth in range(count):
        s = stages[depth]
        if s.k and s.rows and not by_panels(s, B):
            lists = s.starts, s.examples, s.weights, s.outputs
            form_part(*lists, s.x, s.inputs, s.indices, s.rows, s.touched, part, parts)


@kernel
def weight_gradients(table, count, B, threads):
    """Form the rows of ∂ℓ/∂W ← g xᵀ of every sparse stage that has room for them."""
    stages, work, rows = stage_table(table, count), 0, 0
    for depth in range(count):
        s = stages[depth]
        if s.k and s.rows:
            list_columns(s.starts, s.outputs, s.indices, s.touched)
            if by_panels(s, B):
                lists, sizes = (s.starts, s.examples, s.weights, s.outputs), (B, s.inputs)
                form_by_panels(*lists, s.x, *sizes, s.indices, s.rows, s.touched, threads)
            else:
                work += B * s.k * s.inputs
                rows = max(rows, s.touched)
    spread(weight_part, (table, count, B), parts_of(threads, rows, work), threads)
