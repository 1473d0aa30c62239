"""Breakdown of a training step's time: its kernels by part, torch's operations, and the Python between them.

The same batches are trained on three times: with the kernels timed, which gives all milliseconds of kernels
and of the step; with torch's operations timed; and with kernels of several parts replayed, which gives their
ratio, and all bytes and operations. What is left of a phase is Python, with torch's small operations.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numba.core.dispatcher import Dispatcher
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from ..files import Fields
from ..training.clock import PHASES, Clock
from .kernel_work import WORKS, Kernel, Work, arguments
from .replays import REPLAYS
from .timed_model import TimedModel

TORCH_PRODUCTS, TORCH_OTHERS, PYTHON = "torch: products", "torch: other operations", "Python between"
SMALL = 32 << 10  # bytes below which the way to one of torch's operations takes longer than itself
LOOKUPS = {"index", "index_select", "embedding", "gather"}  # read as much as they write
REPLAYED = 24  # steps at most that are replayed
TRIMMED = 10, 90  # percentiles of total time within which steps count
PACKAGES = "msbp.sparse.", "msbp.optim."
FEWEST, MOST = 1 << 16, 1 << 28  # bytes over which the rate of memory is measured
SIDE, RATED = 1024, 0.3  # of a product that gives the rate of operations; seconds
Key = tuple[str, Any]  # phase, and kernel or part


def measure(model: TimedModel, seconds: float, cycle: int) -> Fields:
    """Return the parts of a model's step, and the rates of the machine that bound them."""
    kernels, totals, share = time_kernels(model, seconds, cycle)
    steps = min(len(totals), REPLAYED // cycle * cycle or cycle)
    ratios, works = replay(model, steps)
    spent = split(kernels, ratios)
    for key, (seconds_of, work) in time_torch(model, steps).items():
        spent[key], works[key] = seconds_of, work
    phases = dict(zip(PHASES, totals[within(totals)].mean(0), strict=True))
    rows = list(parts(phases, spent, works))
    moved = sum(work.bytes for work in works.values())
    return {
        "cpu_share": round(share, 3),
        "steps": len(totals),
        "step_ms": milliseconds(sum(phases.values())),
        "peak_gflops": round(operations_rate() / 1e9, 2),
        "peak_gb_s": round(memory_rate(moved) / 1e9, 2),
        "parts": rows,
    } | row_rate_of(model, moved)


def time_kernels(model: TimedModel, seconds: float, cycle: int) -> tuple[dict[Key, float], np.ndarray, float]:
    """Return seconds a step by phase and kernel, of the phases (steps, phases), and the processor's share."""
    clock, spent, now = model.run.clock, defaultdict[Key, float](float), time.perf_counter

    def timed(kernel: Kernel) -> Callable:
        def run(*args: object) -> object:
            start = now()
            result = kernel(*args)
            spent[clock.phase, kernel] += now() - start
            return result

        return run

    steps, totals, model_steps = [], [], 0
    model.rewind()
    wall, processor = now(), time.process_time()
    with replaced(timed):
        while model_steps < 3 * cycle or model_steps % cycle or now() - wall < seconds:
            spent.clear()
            totals.append(model.steps(1).seconds[0])
            steps.append(dict(spent))
            model_steps += 1
    share = (time.process_time() - processor) / (now() - wall)
    seconds_of, kept = np.array(totals), within(np.array(totals))
    chosen = [step for step, keep in zip(steps, kept, strict=True) if keep]
    keys = dict.fromkeys(key for step in chosen for key in step)
    return {key: sum(s.get(key, 0.0) for s in chosen) / len(chosen) for key in keys}, seconds_of, share


def within(totals: np.ndarray) -> np.ndarray:
    """Return which steps (steps, phases) count: all but those that took longest and shortest."""
    whole = totals.sum(1)
    low, high = np.percentile(whole, TRIMMED)
    return (low <= whole) & (whole <= high)


def replay(model: TimedModel, steps: int) -> tuple[dict[tuple[str, Kernel, str], float], dict[Key, Work]]:
    """Return each part's share of its phase and kernel, and the work a step of the phase's parts."""
    clock = model.run.clock
    spent: dict[tuple[str, Kernel, str], float] = defaultdict(float)
    works: dict[Key, Work] = defaultdict(Work)

    def replayed(kernel: Kernel) -> Callable:
        def run(*args: object) -> object:
            call, phase = arguments(kernel, args), clock.phase
            shares = REPLAYS[kernel](kernel, call) if kernel in REPLAYS else {}
            result = kernel(*args)
            for part, work in WORKS[kernel](call).items():
                works[phase, part] = works[phase, part].plus(work.bytes / steps, work.flops / steps)
                if kernel not in REPLAYS:
                    shares[part] = 1.0
            for part, seconds in shares.items():
                spent[phase, kernel, part] += seconds
            return result

        return run

    model.rewind()
    with replaced(replayed):
        model.steps(steps)
    whole: dict[Key, float] = defaultdict(float)
    for (phase, kernel, _), seconds in spent.items():
        whole[phase, kernel] += seconds
    return {key: seconds / whole[key[:2]] for key, seconds in spent.items() if whole[key[:2]]}, works


def split(kernels: dict[Key, float], ratios: dict[tuple[str, Kernel, str], float]) -> dict[Key, float]:
    """Return seconds by phase and part from those of the kernels and the shares of their parts."""
    spent: dict[Key, float] = defaultdict(float)
    for (phase, kernel, part), ratio in ratios.items():
        spent[phase, part] += ratio * kernels.get((phase, kernel), 0.0)
    return spent


class TorchWork(TorchDispatchMode):
    """Times torch's operations in the phases of a clock; small ones, views and allocations are Python's."""

    def __init__(self, clock: Clock):
        super().__init__()
        self.clock = clock
        self.seconds: dict[Key, float] = defaultdict(float)
        self.works: dict[Key, Work] = defaultdict(Work)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        start = time.perf_counter()
        out = func(*args, **kwargs)
        spent = time.perf_counter() - start
        name = func._schema.name.removeprefix("aten::").removesuffix("_")  # in place or not
        moved = 2 * bytes_of(out) if name in LOOKUPS else bytes_of((args, kwargs, out))
        if self.clock.phase and moved > SMALL and not func.is_view and "empty" not in name:
            count = flop_registry.get(getattr(torch.ops.aten, name, None))
            flops = count(*args, **kwargs, out_val=out) if count else 0
            key = self.clock.phase, TORCH_PRODUCTS if count else TORCH_OTHERS
            self.seconds[key] += spent
            self.works[key] = self.works[key].plus(moved, flops)
        return out


def bytes_of(tree: object) -> int:
    """Return the bytes of all tensors that an operation has, each once."""
    tensors = {id(leaf): leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def time_torch(model: TimedModel, steps: int) -> dict[Key, tuple[float, Work]]:
    """Return seconds and work a step of torch's products and other operations, by phase."""
    model.rewind()
    with TorchWork(model.run.clock) as measured:
        model.steps(steps)
    return {
        key: (seconds / steps, Work(*(number / steps for number in measured.works[key])))
        for key, seconds in measured.seconds.items()
    }


def parts(phases: dict[str, float], spent: dict[Key, float], works: dict[Key, Work]) -> Iterator[Fields]:
    """Yield the parts of each phase, which sum to it: torch's operations are cut to what kernels leave."""
    for phase, whole in phases.items():
        mine = {part: seconds for (at, part), seconds in spent.items() if at == phase and seconds}
        if phase == PHASES[0]:
            mine = {phase: whole}  # making a batch is one part
            works[phase, phase] = works.pop((phase, TORCH_OTHERS), Work())
        theirs = [part for part in (TORCH_PRODUCTS, TORCH_OTHERS) if part in mine]
        left = max(0.0, whole - sum(seconds for part, seconds in mine.items() if part not in theirs))
        scale = min(1.0, left / (sum(mine[part] for part in theirs) or 1.0))
        mine |= {part: scale * mine[part] for part in theirs}
        between = whole - sum(mine.values())
        for part, seconds in (*mine.items(), (PYTHON, between)):
            work = works.get((phase, part), Work())
            if round(1000 * seconds, 5):
                named = {"phase": phase, "part": part, "ms": milliseconds(seconds)}
                yield named | {"bytes": round(work.bytes), "flops": round(work.flops)}


def milliseconds(seconds: float) -> float:
    return round(1000 * float(seconds), 5)


@contextmanager
def replaced(make: Callable[[Kernel], Callable]) -> Iterator[None]:
    """Have Python call make(kernel) in place of each kernel of a step, within this context.

    Kernels must be compiled: a kernel that compiles within it finds no other kernels.
    """
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(PACKAGES)]
    instead = {kernel: make(kernel) for kernel in WORKS}
    put = [
        (vars(module), name, kernel)
        for module in modules
        for name, kernel in vars(module).items()
        if isinstance(kernel, Dispatcher) and kernel in instead
    ]
    try:
        for names, name, kernel in put:
            names[name] = instead[kernel]
        yield
    finally:
        for names, name, kernel in put:
            names[name] = kernel


def operations_rate() -> float:
    """Return the operations per second of a dense product by torch, with the present number of threads."""
    a, b = torch.rand(2, SIDE, SIDE, device="cpu")
    return 2.0 * SIDE**3 / least(lambda: torch.mm(a, b))


def memory_rate(size: float) -> float:
    """Return the bytes per second of adding vectors, on as many bytes in all as a step moves."""
    count = int(min(max(size, FEWEST), MOST)) // 12
    a, b, c = torch.ones(3, count, device="cpu")
    return 12.0 * count / least(lambda: torch.add(a, b, out=c))


def row_rate_of(model: TimedModel, size: float) -> Fields:
    """Return the rate of memory by rows, if there are weights of which the optimizer updates some rows."""
    weights = [p.detach() for p, state in model.run.optimizer.state.items() if "last_step" in state]
    return {"rows_gb_s": round(row_rate(weights, size) / 1e9, 2)} if weights else {}


def row_rate(weights: Sequence[Tensor], size: float) -> float:
    """Return the bytes per second of copying a third of the rows of weights, drawn at random, by torch.

    Rows that lie apart are read and written more slowly than all of them: each begins a new run of addresses.
    The weights are repeated until they have as many bytes as a step moves.
    """
    random, copies = torch.Generator().manual_seed(0), []
    for _ in range(max(1, round(min(size, MOST) / bytes_of(weights)))):
        for weight in map(torch.clone, weights):
            rows = torch.randperm(len(weight), generator=random)[: max(1, len(weight) // 3)].sort().values
            copies.append((weight, rows, weight[rows]))

    def copy() -> None:
        for weight, rows, out in copies:
            torch.index_select(weight, 0, rows, out=out)

    return 2.0 * sum(bytes_of(out) for _, _, out in copies) / least(copy)


def least(work: Callable[[], object]) -> float:
    """Return the least seconds that work takes."""
    spent, end = list[float](), time.perf_counter() + RATED
    while len(spent) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        spent.append(time.perf_counter() - start)
    return min(spent)
