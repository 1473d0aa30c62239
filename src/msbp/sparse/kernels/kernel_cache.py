"""Compiled kernels on disk: what is missing, damaged or not writable is compiled anew.

numba's own cache loads any bytes as machine code, fails on a full disk, and lets processes that compile at
the same time overwrite each other's index. Here every file begins with a digest of what follows, no failure
to read or write is an error, and a process waits for another one that compiles the same kernel.
"""

import fcntl
import hashlib
import logging
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from numba.core import caching

log = logging.getLogger(__name__)
DIGEST = hashlib.sha256().digest_size  # bytes that a file begins with
PATIENCE = 60.0  # seconds to wait for a process that may be stopped or have failed, before compiling, too
_reported: set[str] = set()


class _Compiled(caching.CompileResultCacheImpl):
    """numba's reading and writing of machine code, in no other folder than the one that is set."""

    def __init__(self, function: Callable):
        self._locator_classes = [caching.UserProvidedCacheLocator]
        super().__init__(function)


class KernelCache(caching.FunctionCache):
    """The cache of one kernel, as numba's dispatchers call it; its lock is held while the kernel compiles.

    RuntimeError if the folder that is set cannot be written.
    """

    _impl_class = _Compiled

    def __init__(self, function: Callable):
        super().__init__(function)
        numbas = self._cache_file
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, numbas._source_stamp)
        self._lock_path = Path(self._cache_path, f"{self._impl.filename_base}.lock")
        self._lock: IO[bytes] | None = None

    def load_overload(self, sig: object, target_context: object) -> object:
        """Return the kernel for a signature; None, with the lock, where it has to be compiled."""
        loaded = self._load(sig, target_context)
        if loaded is None:
            self._wait()
            loaded = self._load(sig, target_context)  # by now it may be there
        if loaded is not None:
            self._release()
        return loaded

    def save_overload(self, sig: object, data: object) -> None:
        """Write a compiled kernel, where that is possible, and release the lock."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            report(f"{self._cache_path} cannot be written ({error.strerror or error})")
        finally:
            self._release()

    def _release(self) -> None:
        """Let other processes compile this kernel."""
        if self._lock:
            with suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_UN)  # also of a copy that a forked process has
            self._lock.close()
            self._lock = None

    def _load(self, sig: object, target_context: object) -> object:
        try:
            return super().load_overload(sig, target_context)
        except OSError as error:
            report(f"{self._cache_path} cannot be read ({error.strerror or error})")
            return None

    def _wait(self) -> None:
        """Take the lock as soon as no other process has it; at once where there are no locks."""
        if self._lock:
            return
        end = time.monotonic() + PATIENCE
        with suppress(OSError):
            os.makedirs(self._cache_path, exist_ok=True)
            self._lock = open(self._lock_path, "ab")
            while time.monotonic() < end:
                try:
                    fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(0.02)


class _Files(caching.IndexDataCacheFile):
    """Index and machine code of one kernel; a damaged file counts as missing."""

    def _load_index(self) -> dict[object, str]:
        stamp, names = _read(self._index_path) or (None, {})
        return names if stamp == self._source_stamp else {}

    def _save_index(self, overloads: dict[object, str]) -> None:
        self._write(self._index_path, (self._source_stamp, overloads))

    def _load_data(self, name: str) -> object:
        return _read(self._data_path(name))

    def _save_data(self, name: str, data: object) -> None:
        self._write(self._data_path(name), data)

    def _data_name(self, number: int) -> str:
        return super()._data_name(secrets.randbits(60))  # an index that misses a file never leads to another

    def _write(self, path: str, value: object) -> None:
        content = self._dump(value)
        with self._open_for_write(path) as file:
            file.write(hashlib.sha256(content).digest() + content)


def _read(path: str) -> Any:
    """Return what a file holds; None if there is none or it is damaged."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        return None
    if hashlib.sha256(content[DIGEST:]).digest() != content[:DIGEST]:
        report(f"{path} is damaged")
        return None
    return caching.pickle.loads(content[DIGEST:])


def report(reason: str) -> None:
    """Log once a process why a kernel is compiled anew."""
    if not _reported:
        log.warning("%s: kernels are compiled anew; the results are the same", reason)
    _reported.add(reason)
