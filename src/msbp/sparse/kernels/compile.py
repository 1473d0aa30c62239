"""The decorator of all kernels: numba's compiler, with a cache that depends on every kernel file.

numba refreshes a cached function when its own file changes, not when a kernel that was inlined into it
does. So the name of the cache folder has a digest of all files of this folder; a file of kernels elsewhere
(optim/kernels.py) calls these and its own. It is beside them, or a temporary
folder of the user's if that cannot be written.
"""

import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
from numba import njit
from numba.core import config as numba_config
from numba.core import event
from numba.core.dispatcher import Dispatcher

from .kernel_cache import KernelCache, report

HERE = Path(__file__).parent
config: Any = numba_config


def _digest() -> str:
    content = b"".join(file.read_bytes() for file in sorted(HERE.glob("*.py")))
    return hashlib.sha256(content + numba.__version__.encode()).hexdigest()[:12]


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mine = not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()
        private = not folder.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        with tempfile.TemporaryFile(dir=folder):
            return mine and private  # machine code is loaded from here, so nobody else may write to it
    except OSError:
        return False


def cache_folder() -> str:
    """Return the folder of compiled kernels: in the user's NUMBA_CACHE_DIR if that is set and writable.

    Empty if no folder can be written.
    """
    name, user = f"kernels-{_digest()}", os.getuid() if hasattr(os, "getuid") else "user"
    choices = [Path(config.CACHE_DIR) / name] if config.CACHE_DIR else []
    choices += [HERE / "__pycache__" / name]
    with suppress(OSError):  # no temporary folder
        # a single level below it: the owner of one in between could swap what lies under it
        choices += [Path(tempfile.gettempdir()) / f"msbp-{user}-{name}"]
    for folder in choices:
        if _writable(folder):
            return str(folder)
    with suppress(OSError):
        return tempfile.mkdtemp(prefix="msbp-kernels-")
    report("no folder can be written, NUMBA_CACHE_DIR names one")
    return ""


FOLDER = cache_folder()


def kernel(function: Callable) -> Dispatcher:
    """Compile on first use, without the GIL and without threads of its own.

    Sums may be reordered and products fused, which makes them fast; NaN, infinity and exact division stay.
    """
    flags = {"nsz", "reassoc", "contract"}
    compiled: Any = njit(nogil=True, error_model="numpy", fastmath=flags)(function)
    before, config.CACHE_DIR = config.CACHE_DIR, FOLDER
    try:
        if FOLDER:
            compiled._cache = KernelCache(function)  # as enable_caching() sets numba's own
    except RuntimeError:
        report(f"{FOLDER} cannot be written")
    finally:
        config.CACHE_DIR = before
    return compiled


def called_by(compiled: Dispatcher) -> Iterator[Dispatcher]:
    """Yield the kernels that a kernel calls, at any depth, some of them repeatedly."""
    function = compiled.py_func
    for name in function.__code__.co_names:
        below = function.__globals__.get(name)
        if below is not None and isinstance(getattr(below, "_cache", None), KernelCache):
            yield below
            yield from called_by(below)


class _Announcement(event.Listener):
    """Writes to stderr that kernels compile: how far, on a terminal, else one line a process."""

    def __init__(self) -> None:
        self._open: list[Dispatcher] = []  # a kernel, and those that it calls
        self._total = self._done = 0
        self._said = False

    def on_start(self, event: event.Event) -> None:
        compiled = event.data["dispatcher"]
        if not isinstance(compiled._cache, KernelCache):
            return
        if not self._open:
            below = {compiled, *called_by(compiled)}
            self._total, self._done = len([each for each in below if not each.overloads]), 0
        self._open.append(compiled)
        self._show()

    def on_end(self, event: event.Event) -> None:
        compiled = event.data["dispatcher"]
        if compiled not in self._open:
            return
        self._open.remove(compiled)
        self._done += 1
        self._show()

    def _show(self) -> None:
        with suppress(OSError, ValueError, AttributeError):  # stderr may be closed, or none at all
            text = "compiling kernels, which are cached for later runs"
            if not sys.stderr.isatty():
                if not self._said:
                    print(f"{text}: about half a minute", file=sys.stderr, flush=True)
            elif self._open:
                name = self._open[0].py_func.__name__
                far = f"{text}: {name}, {min(self._done, self._total)} of {self._total}"
                print(f"\r{far}\x1b[K", end="", file=sys.stderr, flush=True)
            else:
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        self._said = True


ANNOUNCEMENT = _Announcement()
event.register("numba:compile", ANNOUNCEMENT)
