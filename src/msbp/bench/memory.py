"""The memory that a piece of work needs at its peak, as the kernel counts a process's resident pages."""

import ctypes
import gc
import multiprocessing
import re
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import torch

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # man 5 proc
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # malloc.h
SMALL = 64 << 10  # bytes


def peak_mib(work: Callable[[], object]) -> float | None:
    """How far resident memory rises above where it stands while work runs a second time.

    What the first time loads stays out of the count. Both run in a forked process, with one thread and an
    allocator that maps every block that is not small, so that memory counts as long as it is in use. None
    where the system cannot fork or count so.
    """
    if not CLEAR.exists() or "fork" not in multiprocessing.get_all_start_methods():
        return None
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    child = fork.Process(target=report, args=(work, theirs))
    child.start()
    theirs.close()
    with suppress(EOFError):
        return ours.recv()
    child.join()
    raise RuntimeError(f"the process that watched the memory of a row ended with exit code {child.exitcode}")


def report(work: Callable[[], object], to: Connection) -> None:
    """What the forked process does: work twice, and send the MiB by which the second time's peak rises."""
    torch.set_num_threads(1)  # threads do not survive a fork
    map_blocks()
    work()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    CLEAR.write_text(RESET_PEAK)
    before = resident("VmRSS")
    work()
    to.send(max(0.0, resident("VmHWM") - before))


def map_blocks() -> None:
    """Have glibc map and unmap each block that is not small, also where it was told to keep freed memory."""
    with suppress(AttributeError, OSError):  # only glibc has it
        mallopt = ctypes.CDLL(None).mallopt
        for setting, value in ((M_MMAP_MAX, 1 << 20), (M_MMAP_THRESHOLD, SMALL), (M_TRIM_THRESHOLD, SMALL)):
            mallopt(setting, value)


def resident(field: str) -> float:
    """MiB of this process: VmRSS now, VmHWM at the peak."""
    found = re.search(rf"{field}:\s*(\d+) kB", STATUS.read_text())
    assert found, STATUS
    return int(found[1]) / 1024
