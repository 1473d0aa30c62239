"""Costs of a training step: medians of its phases, arithmetic, the output layer's share, and peak memory."""

import copy
import ctypes
import gc
import logging
import multiprocessing
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.backends import mkldnn
from torch.utils.flop_counter import FlopCounterMode

from ..files import Fields
from ..sparse.layers import hidden_groups
from ..tasks.base import Batch, Task
from ..training.clock import PHASES
from .timed_model import Shapes, TimedModel, Timing, joined

log = logging.getLogger(__name__)

COMPARISONS = ("torch", "dense")
DATA, FORWARD, BP, UPDATE = ([at] for at in range(len(PHASES)))
TIMES = {
    "data": DATA, "forward": FORWARD, "bp": BP, "update": UPDATE, "bp_update": BP + UPDATE,
    "total": DATA + FORWARD + BP + UPDATE,
}  # fmt: skip
COMPARED = ("bp", "bp_update", "total")
SPREAD = {"p10": 10, "p90": 90}
OUTPUT_STEPS = 3
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # man 5 proc
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # malloc.h
SMALL = 64 << 10  # bytes


@dataclass(frozen=True)
class Flops:
    """Additions and multiplications of one dense backward pass, and the hidden layers' share of them.

    The share is that of the forward pass, in which the counter distinguishes layers.
    """

    backward: float
    hidden_share: float

    def at(self, r: float) -> float:
        """Return what remains if hidden layers propagate a share r of their entries."""
        return self.backward * (1 - self.hidden_share * (1 - r))


def row(model: TimedModel, timings: Sequence[Timing], flops: Mapping[Shapes, Flops], cycle: int) -> Fields:
    """Return a model's medians and percentiles over the steps of all repetitions.

    flops: of a dense backward pass, by shapes of the batch. bp_gflops is the dense arithmetic of the
    propagated entries over the time of BP in the same steps; a model that skips zeros among these entries, as
    behind a maximum over time, exceeds what the processor can do.
    """
    steps = joined(timings)
    seconds = in_cycles(steps.seconds, cycle)
    arithmetic = [[flops[shapes].at(model.r) if shapes in flops else np.nan] for shapes in steps.shapes]
    rates = in_cycles(np.array(arithmetic), cycle)[:, 0] / seconds[:, BP[0]]
    spread = {
        f"{name}_{at}_ms": milliseconds(seconds, name, percentile)
        for name in ("bp", "total")
        for at, percentile in SPREAD.items()
    }
    return {
        "name": model.name,
        **medians(seconds),
        **spread,
        "bp_gflops": round(float(np.nanmedian(rates)) / 1e9, 3),
        "steps": len(steps.seconds),
        "k_per_layer": model.k_per_layer,
    }


def in_cycles(steps: np.ndarray, cycle: int) -> np.ndarray:
    """Return the mean of each `cycle` successive steps (steps, ...)."""
    return steps.reshape(-1, cycle, *steps.shape[1:]).mean(1)


def medians(seconds: np.ndarray) -> dict[str, float]:
    """Return the median milliseconds of every phase, and of phases together; seconds (steps, phases)."""
    return {f"{name}_ms": milliseconds(seconds, name) for name in TIMES}


def milliseconds(seconds: np.ndarray, name: str, percentile: float = 50) -> float:
    """Return a percentile over steps of the sum of some phases; seconds (steps, phases)."""
    return round(1000 * float(np.percentile(seconds[:, TIMES[name]].sum(1), percentile)), 5)


def compared(rows: Sequence[Fields]) -> list[Fields]:
    """Return the rows with their speed-ups over the comparison rows; None where such a row is missing."""
    by_name = {row["name"]: row for row in rows}
    return [
        {**row, **{f"vs_{name}": speedups(by_name.get(name), row) for name in COMPARISONS}} for row in rows
    ]


def speedups(comparison: Fields | None, row: Fields) -> dict[str, float] | None:
    """Return the speed-ups of a row over a comparison row by phases (> 1 is faster)."""
    if comparison is None:
        return None
    return {time: round(comparison[f"{time}_ms"] / row[f"{time}_ms"], 4) for time in COMPARED}


class WithLoss(nn.Module):
    """A model and its loss as one module, in which the counter knows the model's layers by name."""

    def __init__(self, task: Task, model: nn.Module):
        super().__init__()
        self.task, self.model = task, model

    def forward(self, *batch: Tensor) -> Tensor:
        return self.task.loss(self.model, batch)


def backward_flops(task: Task, model: nn.Module, examples: Mapping[Shapes, Batch]) -> dict[Shapes, Flops]:
    """Return the arithmetic of each example's backward pass, for a model of plain torch layers.

    The model and the random state are left unchanged.
    """
    whole = WithLoss(task, copy.deepcopy(model))
    hidden = [f"WithLoss.model.{name}" for group in hidden_groups(model) or () for name in group]
    enabled = mkldnn.enabled
    mkldnn.enabled = False  # type: ignore[assignment]  # an LSTM of oneDNN is one operation to the counter
    try:
        with torch.random.fork_rng():
            return {shapes: count(whole, batch, hidden) for shapes, batch in examples.items()}
    finally:
        mkldnn.enabled = enabled


def count(whole: WithLoss, batch: Batch, hidden: Sequence[str]) -> Flops:
    """Return the arithmetic of one batch's backward pass, with matrix products and convolutions counted."""
    with FlopCounterMode(display=False) as counter:
        loss = whole(*batch)
        layers, forward = counter.get_flop_counts(), counter.get_total_flops()
        loss.backward()
    in_hidden = sum(sum(layers[name].values()) for name in hidden)
    return Flops(counter.get_total_flops() - forward, in_hidden / forward)


def output_share(model: TimedModel) -> float | None:
    """Return the dense output layer's share of some further steps' backward passes.

    No method makes this layer sparse. None if it is not a layer of its own.
    """
    layer = getattr(model.run.model, "output", None)
    if type(layer) is not nn.Linear:
        return None
    seconds = 0.0

    def start(*_: object) -> None:
        nonlocal seconds
        seconds -= time.perf_counter()

    def stop(*_: object) -> None:
        nonlocal seconds
        seconds += time.perf_counter()

    hooks = [layer.register_full_backward_pre_hook(start), layer.register_full_backward_hook(stop)]
    try:
        steps = model.steps(OUTPUT_STEPS)
    finally:
        for hook in hooks:
            hook.remove()
    return round(seconds / float(steps.seconds[:, BP].sum()), 3)


def peak_mib(name: str, work: Callable[[], object]) -> float | None:
    """Return the rise of resident memory while work runs for the second time, in MiB.

    What the first time loads is not counted. Both run in a forked process, with one thread and an allocator
    that maps every block that is not small, so that memory counts as long as it is in use. None where the
    system cannot fork or count so, and with a warning that has the name where the process fails or is killed.
    """
    if not CLEAR.exists() or "fork" not in multiprocessing.get_all_start_methods():
        return None
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    child = fork.Process(target=_send_peak, args=(work, theirs))
    try:
        child.start()
        theirs.close()
        return round(ours.recv(), 2)
    except EOFError:
        child.join()
        why = f"its process ended with exit code {child.exitcode}"
    except OSError as error:  # such as no memory for another process
        why = str(error)
    log.warning("memory of %s is not measured: %s; more free memory may help", name, why)
    return None


def _send_peak(work: Callable[[], object], to: Connection) -> None:
    """Run work twice, and send by how many MiB the second time's peak is above its start."""
    torch.set_num_threads(1)  # threads do not survive a fork
    _map_blocks()
    work()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    CLEAR.write_text(RESET_PEAK)
    before = _resident("VmRSS")
    work()
    to.send(max(0.0, _resident("VmHWM") - before))


def _map_blocks() -> None:
    """Have glibc map and unmap each block that is not small, even if it was set to keep freed memory."""
    with suppress(AttributeError, OSError):  # only glibc has it
        mallopt = ctypes.CDLL(None).mallopt
        for setting, value in ((M_MMAP_MAX, 1 << 20), (M_MMAP_THRESHOLD, SMALL), (M_TRIM_THRESHOLD, SMALL)):
            mallopt(setting, value)


def _resident(field: str) -> float:
    """Return MiB of this process: VmRSS now, VmHWM at the peak."""
    match = re.search(rf"{field}:\s*(\d+) kB", STATUS.read_text())
    assert match, STATUS
    return int(match[1]) / 1024
