"""The parts of a kernel that computes several: it runs again, on copies, with some of them switched off.

A replay returns seconds by part; only their ratio counts, as the call itself is timed elsewhere. It comes
before the call, which writes all outputs anew. Letters: B batch, n outputs, i inputs of a stage, k kept.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable

import numpy as np

from ..optim import kernels as optimizers
from ..sparse.kernels import chain_backward, chain_forward, lstm_backward, lstm_forward
from . import kernel_work as parts
from .kernel_work import Call, Kernel, floats, integers, records

TRIALS = 3
Seconds = dict[str, float]
Replay = Callable[[Kernel, Call], Seconds]


def fastest(kernel: Kernel, call: Call, prepare: Callable[[], object] = lambda: None) -> float:
    """Return the least seconds of some calls, with `prepare` before each."""
    spent = []
    for _ in range(TRIALS):
        prepare()
        start = time.perf_counter()
        kernel(*call.values())
        spent.append(time.perf_counter() - start)
    return min(spent)


def rest(whole: float, others: Iterable[float]) -> float:
    """Return what others leave of the whole; at least 0, as each was timed by itself."""
    return max(0.0, whole - sum(others))


class Copies:
    """Copies of arrays that a kernel changes, in place of their addresses in a table."""

    def __init__(self) -> None:
        self._pairs: list[tuple[np.ndarray, np.ndarray]] = []

    def put(self, record: np.void, name: str, array: np.ndarray) -> np.ndarray:
        """Have the record refer to a copy of the array that it refers to; return the copy."""
        copy = array.copy()
        self._pairs.append((copy, array))
        record[name] = copy.ctypes.data
        return copy

    def restore(self) -> None:
        """Set every copy to its array."""
        for copy, array in self._pairs:
            copy[...] = array


def forward(kernel: Kernel, call: Call) -> Seconds:
    """Return seconds of the products, by BLAS or by columns, and of the loop over rows behind them."""
    copies, table = Copies(), records(call["table"], call["count"], chain_forward.STAGE).copy()
    B = call["B"]
    for s in table:
        for name in ("z", *(["slope"] if s["slope"] else [])):
            copies.put(s, name, floats(int(s[name]), B, int(s["outputs"])))
    for s, below in zip(table[1:], table[:-1], strict=True):
        s["x"] = below["z"]
    call = call | {"table": table.ctypes.data}
    sweep = fastest(kernel, call | {"given": call["count"]}, copies.restore)
    whole = fastest(kernel, call, copies.restore)
    return {parts.PRODUCTS: rest(whole, [sweep]), parts.SWEEP: sweep}


def backward(kernel: Kernel, call: Call) -> Seconds:
    """Return seconds of every stage alone, from a given ∂ℓ/∂z, without ∂ℓ/∂x and ∂ℓ/∂W; the rest is ∂ℓ/∂x."""
    original = records(call["table"], call["count"], chain_forward.STAGE)
    B, copies, table = call["B"], Copies(), original.copy()
    seconds: Seconds = defaultdict(float)
    for s in table:
        if s["kind"]:
            rows = int(s["slots"]) if s["kind"] == chain_forward.PER_SLOT else 1
            copies.put(s, "memory", floats(int(s["memory"]), rows, int(s["outputs"])))

    def timed(record: np.ndarray, grad: int) -> float:
        kept = record.copy()

        def prepare() -> None:
            copies.restore()
            record[:] = kept  # where a search starts

        one = call | {"table": record.ctypes.data, "count": len(record), "grad": grad}
        return fastest(kernel, one, prepare)

    whole = timed(table, call["grad"])
    copies.restore()
    if kernel(*(call | {"table": table.ctypes.data}).values()):
        return {parts.SELECTION: whole}  # a gradient that is not finite
    above = None
    for depth in range(len(table) - 1, -1, -1):
        grad = np.ascontiguousarray(received(above, B)) if above is not None else None
        stage = original[depth : depth + 1].copy()
        stage["memory"], stage["grad_x"] = table[depth]["memory"], 0
        address = call["grad"] if grad is None else grad.ctypes.data
        lists = "starts" if stage["k"][0] else "grad_weight"
        full = timed(stage, address)
        stage[lists] = 0
        bare = timed(stage, address)
        seconds[parts.BY_COLUMN if stage["k"][0] else parts.DENSE_GRAD_W] += rest(full, [bare])
        seconds[parts.SELECTION if stage["k"][0] else parts.GRAD_X] += bare
        above = table[depth]
    seconds[parts.GRAD_X] += rest(whole, seconds.values())
    return {part: spent for part, spent in seconds.items() if spent}


def received(above: np.void, B: int) -> np.ndarray:
    """Return ∂ℓ/∂z (B, i) that a stage passes down, from its entries or from all of its ∂ℓ/∂h."""
    n, i, k = (int(above[name]) for name in ("outputs", "inputs", "k"))
    g = floats(int(above["grad_h"]), B, n) if not k else np.zeros((B, n), np.float32)
    if k:
        values, columns = floats(int(above["values"]), B, k), integers(int(above["columns"]), B, k)
        np.add.at(g, (np.arange(B)[:, None], columns), values)
    return g @ floats(int(above["weight"]), n, i)


def adam(kernel: Kernel, call: Call) -> Seconds:
    """Return seconds of dense parameters, and of row-sparse ones' rows with gradient and without, each alone.

    Neither is the rest of both: rows in order are read faster than rows among which some are skipped.
    """
    copies, table = Copies(), records(call["table"], call["count"], optimizers.UPDATE).copy()
    steps = []
    for r in table:
        n, i = int(r["n"]), int(r["i"])
        for name in ("weight", "first", "second"):
            copies.put(r, name, floats(int(r[name]), n, i))
        if r["rows"]:
            last = integers(int(r["last_step"]), n)
            steps.append((copies.put(r, "last_step", last), last, indices(r)))
    sparse, dense = table[table["rows"] != 0], table[table["rows"] == 0]
    without = sparse.copy()
    without["u"] = 0

    def seconds(chosen: np.ndarray, gradient: bool) -> float:
        def prepare() -> None:  # the last step is 0 of rows that never had a gradient: they are skipped
            for mine, last, touched in steps:
                mine[:] = 0 if gradient else last
                mine[touched] = last[touched] if gradient else 0

        if not len(chosen):
            return 0.0
        return fastest(kernel, call | {"table": chosen.ctypes.data, "count": len(chosen)}, prepare)

    spent = {parts.UPDATED: seconds(sparse, True), parts.DRIFT: seconds(without, False)}
    spent[parts.DENSE_UPDATE] = seconds(dense, True)
    return {part: each for part, each in spent.items() if each}


def indices(r: np.void) -> np.ndarray:
    """Return which rows of a parameter have a gradient."""
    return integers(int(r["indices"]), int(r["u"]), 2)[:, 0] if r["u"] else np.empty(0, np.int32)


def one_step(kernel: Kernel, call: Call, changed: dict[str, int], through: str) -> Seconds:
    """Return seconds of all rows of an LSTM as one time step, without recurrent products, and of the rest.

    changed: the size of each array that the kernel reads and writes. through: the part of the products.
    """
    N, H = int(parts.rows_of_steps(call).sum()), call["H"]
    kept = {name: floats(call[name], size).copy() for name, size in changed.items() if call[name]}
    copies = {name: array.copy() for name, array in kept.items()}
    states = [name for name in ("h", "c", "grad_h", "grad_c") if name in call]
    wide = {name: np.zeros(N * H, np.float32) for name in states}
    alone = {"from_zero": True, "to_start": False, "per_slot": False, "count": 1}
    steps = np.array([0, N], np.int64)

    def restore() -> None:
        for name, array in kept.items():
            copies[name][:] = array

    whole = call | {name: array.ctypes.data for name, array in copies.items()}
    one = whole | {name: array.ctypes.data for name, array in wide.items()}
    one |= {name: value for name, value in alone.items() if name in call} | {"steps": steps.ctypes.data}
    element_wise = fastest(kernel, one, restore)
    part = parts.GATES if through == parts.PRODUCTS else parts.GATE_GRADIENTS
    return {part: element_wise, through: rest(fastest(kernel, whole, restore), [element_wise])}


def through_time(kernel: Kernel, call: Call) -> Seconds:
    """Return seconds of gates and states, and of the products with weight_hh."""
    rows, H = parts.rows_of_steps(call), call["H"]
    N, B = int(rows.sum()), int(rows.max())
    return one_step(kernel, call, {"gates": 4 * N * H, "h": B * H, "c": B * H}, parts.PRODUCTS)


def back_through_time(kernel: Kernel, call: Call) -> Seconds:
    """Return seconds of the gates' gradients, with selection, and of the products with weight_hh."""
    B, H = int(parts.rows_of_steps(call).max()), call["H"]
    changed = {"grad_h": B * H, "grad_c": B * H}
    if "memory" in call:
        slots = B if call["per_slot"] else 1
        changed |= {"memory": slots * 4 * H, "total": slots * 4 * H, "bias": 4 * H}
        changed |= {"distance": 2 * call["groups"]}  # of int64
    return one_step(kernel, call, changed, parts.GRAD_X)


REPLAYS: dict[Kernel, Replay] = {
    chain_forward.forward: forward,
    chain_backward.backward: backward,
    lstm_forward.forward: through_time,
    lstm_backward.sparse_backward: back_through_time,
    lstm_backward.dense_backward: back_through_time,
    optimizers.adam: adam,
}
