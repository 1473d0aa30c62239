"""An embedding before a chain: lookup, products shared by equal tokens, gradients summed by token.

Letters: B batch, F tokens an example, V rows of the table, E their width, n outputs of the first stage, k
kept, U distinct tokens of the batch. tokens (B, F) are int32. All arguments are addresses and sizes. Threads
divide the rows of the batch among them, or the tokens, where rows are summed by token.
"""

import numpy as np

from .blas import part_product_nt
from .compile import kernel
from .parallel import LINE, parts_of, share, spread
from .rows import add_weighted
from .simd import BYTES, address_of, aligned, floats, ints, longs

FEW = 8  # a token slot with at most B / 8 distinct tokens has their products formed once


@kernel
def padded(width):
    return (width + LINE - 1) // LINE * LINE


@kernel
def gather_part(job, part, parts):
    ids, tokens, table, x, count, V, E, known = job
    ID, T, W, X = longs(ids, count), ints(tokens, count), floats(table, (V, E)), floats(x, (count, E))
    start, stop = share(part, parts, count, LINE)
    for at in range(start, stop):
        token = ID[at]
        if token < 0 or token >= V:
            known[part] = False
            break
        T[at] = token
        source, row = W[token], X[at]
        for c in range(E):
            row[c] = source[c]


@kernel
def gather(ids, tokens, table, x, count, V, E, threads):
    """Copy ids (int64) to tokens (int32), and their rows of the table (V, E) to x (count, E).

    Return False if an id is not in the table.
    """
    parts = parts_of(threads, count // LINE, count * E)
    known = np.ones(parts, np.bool_)
    spread(gather_part, (ids, tokens, table, x, count, V, E, known), parts, threads)
    return known.all()


@kernel
def number(tokens, count, stride, seen, numbers, unique, most):
    """Number the distinct tokens among tokens[0], tokens[stride], ...; return how many, or -1 if more
    than `most`.

    numbers[at] is the number of a token, unique lists the tokens. seen (V + 1, 2) holds mark and
    number of each; its last row counts the marks.
    """
    seen[-1, 0] += 1
    mark, distinct = seen[-1, 0], 0
    for at in range(0, count * stride, stride):
        token = tokens[at]
        if seen[token, 0] != mark:
            if distinct == most:
                return -1
            seen[token, 0], seen[token, 1] = mark, distinct
            unique[distinct] = token
            distinct += 1
        numbers[at] = seen[token, 1]
    return distinct


@kernel
def add_shared(job, part, parts):
    """Add the shared products (·, n) of `few` slots to a part of the rows of z (B, n)."""
    z, shared, numbers, B, F, n, few = job
    N, line, ones = ints(numbers, (B, F)), np.empty(few, np.int32), np.ones(few, np.float32)
    start, stop = share(part, parts, B, 1)
    for b in range(start, stop):
        for q in range(few):
            line[q] = N[b, q]
        add_weighted(z + b * n * BYTES, shared, n, address_of(line), address_of(ones), few)


@kernel
def first_product(tokens, table, x, weight, z, B, F, V, E, n, seen, numbers, shared, room, sgemm, threads):
    """z (B, n) = x weightᵀ for looked-up x (B, F E).

    Where a token slot has few distinct tokens, their products are formed once, as rows of `shared` (room, n),
    and added up; neighbouring slots that have many share one product of BLAS. numbers (B, F) is scratch.
    """
    T, N, S, W = ints(tokens, B * F), ints(numbers, (B, F)), ints(seen, (V + 1, 2)), floats(table, (V, E))
    unique, lines = np.empty(room, np.int32), np.empty((room, E), np.float32)
    width, used, few, many = F * E, 0, 0, 0
    flat = ints(numbers, B * F)
    floats(z, B * n)[:] = 0
    for f in range(F + 1):
        distinct = number(T[f:], B, F, S, flat[f:], unique, min(B // FEW, room - used)) if f < F else 0
        if distinct < 0:
            many += 1
            continue
        if many:
            at = (f - many) * E
            part_product_nt(sgemm, x + at * BYTES, width, weight + at * BYTES, width, 1, z, B, n, many * E)
            many = 0
        if f == F:
            break
        for q in range(distinct):
            source, row = W[unique[q]], lines[q]
            for c in range(E):
                row[c] = source[c]
        out, slice_of_weight = shared + used * n * BYTES, weight + f * E * BYTES
        part_product_nt(sgemm, address_of(lines), E, slice_of_weight, width, 0, out, distinct, n, E)
        for b in range(B):
            N[b, few] = N[b, f] + used  # slots with few tokens move together
        few, used = few + 1, used + distinct
    job = (z, shared, numbers, B, F, n, few)
    spread(add_shared, job, parts_of(threads, B, B * n * few), threads)


@kernel
def number_all(tokens, count, V, seen, numbers, unique):
    """Number the distinct tokens of a batch; return U."""
    T, S, N = ints(tokens, count), ints(seen, (V + 1, 2)), ints(numbers, count)
    return number(T, count, 1, S, N, ints(unique, count), count)


@kernel
def owners(numbers, count, U, parts):
    """Return the part that sums the gradient of each token (U), such that all have about as many lookups."""
    N, owner, lookups = ints(numbers, count), np.zeros(U, np.int64), np.zeros(U, np.int64)
    if parts == 1:
        return owner
    load = np.zeros(parts, np.int64)
    for at in range(count):
        lookups[N[at]] += 1
    for u in range(U):
        owner[u] = np.argmin(load)
        load[owner[u]] += lookups[u]
    return owner


@kernel
def copy_slice(weight, f, F, E, packed):
    """Copy the columns of slot f of the weight (n, F, E) to packed (n, ·)."""
    n = len(packed)
    W = floats(weight, (n, F, E))
    for j in range(n):
        source, row = W[j, f], packed[j]
        for c in range(E):
            row[c] = source[c]


@kernel
def sum_factors(job, part, parts):
    """As gradient_from_factors, for the tokens of a part; each packs every slice of W, into its own cache."""
    values, columns, numbers, weight, out, B, F, E, n, k, owner = job
    U, P = owner.size, padded(E)
    wide, packed = aligned(U * P).reshape((U, P)), aligned(n * P).reshape((n, P))
    N, D = ints(numbers, (B, F)), floats(out, (U, E))
    for f in range(F):
        copy_slice(weight, f, F, E, packed)
        for b in range(B):
            if owner[N[b, f]] == part:
                at, of = b * k * BYTES, N[b, f] * P * BYTES
                add_weighted(address_of(wide) + of, address_of(packed), P, columns + at, values + at, k)
    for u in range(U):
        if owner[u] == part:
            source, row = wide[u], D[u]
            for c in range(E):
                row[c] = source[c]


@kernel
def gradient_from_factors(values, columns, numbers, weight, out, B, F, E, n, k, U, threads):
    """out (U, E) = ∂ℓ/∂x = g W summed by token, slot after slot, so that a slice of W stays in cache."""
    parts = min(threads, parts_of(threads, U, B * F * k * E))
    owner = owners(numbers, B * F, U, parts)
    spread(sum_factors, (values, columns, numbers, weight, out, B, F, E, n, k, owner), parts, threads)


@kernel
def sum_lookups(job, part, parts):
    """As gradient_from_rows, for the tokens of a part."""
    grad_x, numbers, out, count, E, owner = job
    X, N, D = floats(grad_x, (count, E)), ints(numbers, count), floats(out, (owner.size, E))
    for u in range(owner.size):
        if owner[u] == part:
            D[u, :] = 0
    for at in range(count):
        if owner[N[at]] == part:
            source, row = X[at], D[N[at]]
            for c in range(E):
                row[c] += source[c]


@kernel
def gradient_from_rows(grad_x, numbers, out, B, F, E, U, threads):
    """out (U, E) = ∂ℓ/∂x (B, F E) summed by token."""
    parts = min(threads, parts_of(threads, U, B * F * E))
    job = (grad_x, numbers, out, B * F, E, owners(numbers, B * F, U, parts))
    spread(sum_lookups, job, parts, threads)
