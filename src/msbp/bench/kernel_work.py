"""The kernels that a training step calls from Python: which parts of a step each computes, and their work.

Work is the least that a part needs: every operand passes once between memory and processor, and additions,
multiplications, divisions and roots of floats count as one operation each; comparisons and whole numbers do
not count. Letters as in the kernels: B batch, i inputs, n outputs, k kept, u rows with gradient, m = 4H.
"""

import ctypes
import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..optim import kernels as optimizers
from ..sparse.kernels import (
    chain_backward,
    chain_forward,
    conv,
    embedding,
    lstm_backward,
    lstm_forward,
    rows,
    skip_zeros,
)
from ..sparse.kernels.embedding import FEW
from ..sparse.kernels.simd import BYTES

Kernel = Any  # numba's dispatchers have no public class
Call = dict[str, Any]  # a kernel's arguments by name

PRODUCTS, SWEEP, LOSS, LOOKUP = "products", "bias, activation, dropout", "loss", "lookup"
GRAD_X, SELECTION, BY_COLUMN, GRAD_W = "∂x", "selection and memory", "entries by column", "∂W"
DENSE_GRAD_W, GRAD_TABLE, MASK = "∂W of dense layers", "∂ of the embedding", "dropout"
GATES, GATE_GRADIENTS, WINDOWS, PACKING = "gates", "∂gates, selection and memory", "windows", "packing of W"
UPDATED, DRIFT, DENSE_UPDATE = "rows with gradient", "rows without gradient", "dense parameters"
ROOTS = 12, 7  # operations of Adam for a number with and without gradient
SQUASHED, UNSQUASHED = 112, 24  # operations of an LSTM's gates and of their gradients, for each unit


class Work(NamedTuple):
    """Bytes that are read and written, and operations."""

    bytes: float = 0
    flops: float = 0

    def plus(self, bytes: float, flops: float) -> "Work":
        """Return the work with more added to it."""
        return Work(self.bytes + bytes, self.flops + flops)


Works = dict[str, Work]  # by part


def arguments(kernel: Kernel, values: tuple) -> Call:
    """Return the arguments of a call by their names."""
    code = kernel.py_func.__code__
    return dict(zip(code.co_varnames[: code.co_argcount], values, strict=True))


def memory(address: int, size: int) -> memoryview:
    """Return bytes at an address."""
    return memoryview((ctypes.c_byte * size).from_address(address))


def records(address: int, count: int, dtype: np.dtype) -> np.ndarray:
    """Return the records of a kernel's table, on its memory."""
    return np.frombuffer(memory(address, count * dtype.itemsize), dtype)


def floats(address: int, *shape: int) -> np.ndarray:
    """Return floats at an address, on their memory."""
    return np.frombuffer(memory(address, BYTES * math.prod(shape)), np.float32).reshape(shape)


def integers(address: int, *shape: int) -> np.ndarray:
    """Return int32 numbers at an address, on their memory."""
    return np.frombuffer(memory(address, BYTES * math.prod(shape)), np.int32).reshape(shape)


def stages(call: Call) -> list[dict[str, int]]:
    """Return the records of a chain, by name."""
    table = records(call["table"], call["count"], chain_forward.STAGE)
    return [{name: int(record[name]) for name in record.dtype.names} for record in table]


def product(rows: float, inner: float, columns: float) -> Work:
    """Return the work of a dense product (rows, inner) (inner, columns)."""
    return Work(BYTES * (rows * inner + inner * columns + rows * columns), 2.0 * rows * inner * columns)


def multiplied(s: dict[str, int], B: int) -> float:
    """Return how many numbers of x (B, i) a stage multiplies: not the columns of zeros it skips."""
    n, i, lanes = s["outputs"], s["inputs"], skip_zeros.LANES
    used = [int(block.any(0).sum()) for block in np.array_split(floats(s["x"], B, i), range(lanes, B, lanes))]
    return float(lanes * sum(used) if skip_zeros.worth_it.py_func(used[0], B, n, i) else B * i)


def of_forward(call: Call) -> Works:
    products, sweep, B = Work(), Work(), call["B"]
    for depth, s in enumerate(stages(call)):
        n, i = s["outputs"], s["inputs"]
        if depth >= call["given"]:
            products = products.plus(product(B, i, n).bytes, 2.0 * multiplied(s, B) * n)
        sweep = sweep.plus(BYTES * B * n * (3 if s["slope"] else 2), 2.0 * B * n)
    return {PRODUCTS: products, SWEEP: sweep}


def of_backward(call: Call) -> Works:
    works: Works = defaultdict(Work)
    B = call["B"]
    for depth, s in enumerate(stages(call)):
        n, i, k = s["outputs"], s["inputs"], s["k"]
        if k:
            memory = 3 * n if s["kind"] else 0
            flops = 2.0 * B * n if s["kind"] else 0.0
            works[SELECTION] = works[SELECTION].plus(BYTES * (2 * B * n + memory + 2 * B * k), flops)
        if k and s["starts"]:
            works[BY_COLUMN] = works[BY_COLUMN].plus(4 * BYTES * B * k, 0)
        elif s["grad_weight"]:
            works[DENSE_GRAD_W] = works[DENSE_GRAD_W].plus(*product(n, B, i))
        if depth or s["grad_x"]:
            works[GRAD_X] = works[GRAD_X].plus(*(entries_times(s, B, i) if k else product(B, n, i)))
    return dict(works)


def entries_times(s: dict[str, int], B: int, width: int) -> Work:
    """Return the work of entries (B, k) times rows of a matrix, of which each is read once."""
    read = s["touched"] if s["starts"] else min(s["outputs"], B * s["k"])
    return Work(BYTES * (read * width + B * width + 2 * B * s["k"]), 2.0 * B * s["k"] * width)


def of_weight_gradients(call: Call) -> Works:
    work = Work()
    for s in stages(call):
        if s["k"] and s["rows"]:
            work = work.plus(*entries_times(s, call["B"], s["inputs"]))
    return {GRAD_W: work}


def of_cross_entropy(call: Call) -> Works:
    size = call["B"] * call["C"]
    return {LOSS: Work(2 * BYTES * size, 5 * size)}


def of_first_product(call: Call) -> Works:
    B, F, E, n = (call[name] for name in ("B", "F", "E", "n"))
    distinct = [len(np.unique(slot)) for slot in integers(call["tokens"], B, F).T]
    multiplied = sum(few * E + B if few <= B // FEW else B * E for few in distinct)
    return {PRODUCTS: Work(product(B, F * E, n).bytes, 2.0 * multiplied * n)}


def of_gradient_from_factors(call: Call) -> Works:
    B, F, E, n, k, U = (call[name] for name in ("B", "F", "E", "n", "k", "U"))
    moved = n * F * E + U * E + 2 * B * k
    return {GRAD_TABLE: Work(BYTES * moved, 2.0 * B * F * k * E)}


def of_gradient_from_rows(call: Call) -> Works:
    size = call["B"] * call["F"] * call["E"]
    return {GRAD_TABLE: Work(BYTES * (size + call["U"] * call["E"]), size)}


def of_entries_product(call: Call) -> Works:
    N, k, m, n = (call[name] for name in ("N", "k", "m", "n"))
    return {GRAD_X: Work(BYTES * (m * n + N * n + 2 * N * k), 2.0 * N * k * n)}


def of_transposed_product(call: Call) -> Works:
    N, m, n = (call[name] for name in ("N", "m", "n"))
    lists = -(-N // rows.CHUNK) * m
    entries = int(integers(call["starts"], lists + 1)[-1])
    return {GRAD_W: Work(BYTES * (N * n + m * n + 2 * entries), 2.0 * entries * n)}


def rows_of_steps(call: Call) -> np.ndarray:
    """Return the number of rows of each time step."""
    return np.frombuffer(memory(call["steps"], 16 * call["count"]), np.int64)[1::2]


def of_lstm_forward(call: Call) -> Works:
    N, H = int(rows_of_steps(call).sum()), call["H"]
    return {PRODUCTS: product(N, H, 4 * H), GATES: Work(15 * BYTES * N * H, SQUASHED * N * H)}


def of_dense_backward(call: Call) -> Works:
    N, H = int(rows_of_steps(call).sum()), call["H"]
    gates = Work(14 * BYTES * N * H, UNSQUASHED * N * H)
    return {GRAD_X: product(N, 4 * H, H), GATE_GRADIENTS: gates}


def of_sparse_backward(call: Call) -> Works:
    N, H, k = int(rows_of_steps(call).sum()), call["H"], call["groups"] * call["k"]
    carried = 12 * N * H if call["memory"] else 0
    gates = Work(BYTES * (10 * N * H + carried + 2 * N * k), UNSQUASHED * N * H + carried)
    through = Work(BYTES * (4 * H * H + N * H + 2 * N * k), 2.0 * N * k * H)
    return {GRAD_X: through, GATE_GRADIENTS: gates}


def of_adam(call: Call) -> Works:
    works: Works = defaultdict(Work)
    horizon = call["powers1"].size - 1
    for r in records(call["table"], call["count"], optimizers.UPDATE):
        n, i, u = int(r["n"]), int(r["i"]), int(r["u"])
        if not r["rows"]:
            works[DENSE_UPDATE] = works[DENSE_UPDATE].plus(7 * BYTES * n * i, ROOTS[0] * n * i)
            continue
        last = integers(int(r["last_step"]), n)
        drifting = int(((last > 0) & (r["step"] - last <= horizon)).sum()) - u  # with gradient the age is 0
        works[UPDATED] = works[UPDATED].plus(7 * BYTES * u * i, ROOTS[0] * u * i)
        works[DRIFT] = works[DRIFT].plus(4 * BYTES * drifting * i, ROOTS[1] * drifting * i)
    return dict(works)


def of_sgd(call: Call) -> Works:
    works: Works = defaultdict(Work)
    for r in records(call["table"], call["count"], optimizers.UPDATE):
        moved, operations = (5, 4) if r["first"] else (3, 2)
        touched = int(r["n"]) if r["first"] or not r["rows"] else int(r["u"])
        size, part = touched * int(r["i"]), UPDATED if r["rows"] else DENSE_UPDATE
        works[part] = works[part].plus(moved * BYTES * size, operations * size)
    return dict(works)


def of_arrays(part: str, flops: Callable[[Call], float] = lambda call: 0.0) -> Callable[[Call], Works]:
    """Return the work of a kernel that reads or writes each of its arrays once."""

    def works(call: Call) -> Works:
        return {part: Work(sum(a.nbytes for a in call.values() if isinstance(a, np.ndarray)), flops(call))}

    return works


def moved(part: str, numbers: Callable[[Call], float], flops: float = 0) -> Callable[[Call], Works]:
    """Return the work of a kernel that moves so many numbers of 4 bytes, with `flops` operations on each."""

    def works(call: Call) -> Works:
        return {part: Work(BYTES * numbers(call), flops * numbers(call))}

    return works


def scattered(call: Call) -> float:
    """Return the operations of a convolution's entries times windows of rows."""
    matrix = call.get("weight", call.get("grad_weight"))
    assert matrix is not None
    return 2.0 * np.count_nonzero(call["values"]) * matrix.shape[1] * matrix.shape[2]


WORKS: dict[Kernel, Callable[[Call], Works]] = {
    chain_forward.forward: of_forward,
    chain_forward.cross_entropy: of_cross_entropy,
    chain_forward.drop: moved(MASK, lambda call: 2 * call["size"], 0.5),
    chain_backward.backward: of_backward,
    chain_backward.weight_gradients: of_weight_gradients,
    embedding.gather: moved(LOOKUP, lambda call: call["count"] * (2 * call["E"] + 3)),
    embedding.first_product: of_first_product,
    embedding.number_all: moved(GRAD_TABLE, lambda call: 4 * call["count"]),
    embedding.gradient_from_factors: of_gradient_from_factors,
    embedding.gradient_from_rows: of_gradient_from_rows,
    lstm_forward.pack_rows: moved(PACKING, lambda call: 2 * call["m"] * call["n"]),
    lstm_forward.forward: of_lstm_forward,
    lstm_backward.gate_gradients: moved(GATE_GRADIENTS, lambda call: 14 * call["n"] * call["H"], 2),
    lstm_backward.dense_backward: of_dense_backward,
    lstm_backward.sparse_backward: of_sparse_backward,
    rows.product: of_entries_product,
    rows.pack: moved(PACKING, lambda call: 2 * call["m"] * call["n"]),
    rows.by_chunk: moved(BY_COLUMN, lambda call: 4 * call["N"] * call["k"]),
    rows.transposed_product: of_transposed_product,
    conv.widen: of_arrays(WINDOWS),
    conv.best_windows: of_arrays(
        WINDOWS, lambda call: 1.0 * len(call["index"]) * call["window"] * call["bias"].size
    ),
    conv.rows_with_gradient: of_arrays(SELECTION),
    conv.keep_entries: of_arrays(SELECTION, lambda call: 2.0 * call["v"].size),
    conv.keep_largest: of_arrays(SELECTION),
    conv.weight_gradient: of_arrays(GRAD_W, scattered),
    conv.input_gradient: of_arrays(GRAD_X, scattered),
    optimizers.adam: of_adam,
    optimizers.sgd: of_sgd,
}
