"""The machine: its description in records, and its setup so that times and results repeat."""

import ctypes
import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numba
import torch

from ..files import Fields

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4  # malloc.h


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def device_of(name: str, key: str = "trainer.device") -> torch.device:
    """Return the device for cpu, cuda or auto; ValueError, with the key of the name, if there is none."""
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise ValueError(f"{key}=cuda, but torch sees no CUDA device; use {key}=cpu or auto")
    return torch.device("cuda" if there and name != "cpu" else "cpu")


def set_up(threads: int, device: torch.device, keep_memory: bool = True) -> bool:
    """Set threads, algorithms and arithmetic; return whether the allocator keeps freed memory.

    ValueError if there are not so many cores.
    """
    check_threads(threads)
    # Moments of Adam that only decay end as subnormal numbers, which some processors take a hundred times as
    # long for. Set before torch starts its threads, which inherit it.
    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)
    # numba.set_num_threads would start its thread pool at once, and that undoes torch's setting after a fork
    numba.config.NUMBA_NUM_THREADS = threads  # type: ignore[attr-defined]
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS repeats only with this
        torch.use_deterministic_algorithms(True, warn_only=True)
    return keep_memory and keep_freed_memory()


def check_threads(threads: int, key: str = "threads") -> None:
    """Raise ValueError unless this process may use as many cores."""
    if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
        raise ValueError(f"{key} must be a whole number of at least 1, got {threads!r}")
    if threads > cores():
        raise ValueError(f"{key}={threads}, but this process may use {cores()} cores")


def keep_freed_memory(top_pad: int = 64 << 20) -> bool:
    """Have glibc keep freed memory, which it would map anew each step; False where it has no mallopt."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return all([mallopt(M_MMAP_MAX, 0), mallopt(M_TRIM_THRESHOLD, -1), mallopt(M_TOP_PAD, top_pad)])


def waiting_for(device: torch.device) -> Callable[[], None]:
    """Return a function that waits until work queued on the device is done."""
    return partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None


def describe(device: torch.device) -> Fields:
    """Return the record's fields about code and machine; a name or id is "unknown" if there is none."""
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    return {
        "commit": git("rev-parse", "HEAD") or "unknown",
        "dirty": changed(),
        "machine": machine_id(),
        "cpu": cpu(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),  # a plain one: checkpoints hold nothing but data
        "numba": numba.__version__,
        "blas": blas[1] if blas else "unknown",
    }


def timed_under(here: Fields) -> Fields:
    """Return the fields of a description that times depend on."""
    return {key: here[key] for key in ("commit", "machine", "device", "threads", "torch", "numba")}


def changed() -> bool:
    """Return whether git lacks any of this code: changes anywhere, or new files where runs find code."""
    new = "ls-files", "--others", "--exclude-standard", ":/src", ":/conf", ":/scripts"
    return bool(git("status", "--porcelain", "--untracked-files=no") or git(*new))


def git(*words: str) -> str:
    """Return git's output about this code; empty where it is no checkout or there is no git."""
    command = ["git", "-C", str(Path(__file__).parent), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def machine_id() -> str:
    """Return 8 hex digits that distinguish machines and hold nothing else about them."""
    own = Path("/etc/machine-id")
    name = own.read_text() if own.exists() else platform.node()
    return hashlib.sha256(f"{name} {cpu()} {cores()}".encode()).hexdigest()[:8]


def cpu(info: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name, with its family and model, as virtual machines shorten the name."""
    text = info.read_text(encoding="utf-8") if info.exists() else ""
    found = dict(re.findall(r"^(model name|cpu family|model)\s*: *(.*\S)", text, re.MULTILINE))
    name = found.get("model name") or platform.processor() or "unknown"
    family, model = found.get("cpu family"), found.get("model")
    return f"{name} family {family} model {model}" if family and model else name
