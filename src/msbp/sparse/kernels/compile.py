"""The decorator of all kernels: numba's compiler with a cache that depends on every kernel file.

numba refreshes a cached function when its own file changes, not when a kernel that was inlined into it
does. So the name of the cache folder has a digest of all kernel files. It is beside them, or a temporary
folder of the user's if that cannot be written.
"""

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import config as numba_config

HERE = Path(__file__).parent
config: Any = numba_config


def _digest() -> str:
    content = b"".join(file.read_bytes() for file in sorted(HERE.glob("*.py")))
    return hashlib.sha256(content).hexdigest()[:12]


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
    """Return the folder of compiled kernels: in the user's NUMBA_CACHE_DIR if that is set and writable."""
    name, user = f"kernels-{_digest()}", os.getuid() if hasattr(os, "getuid") else "user"
    choices = [Path(config.CACHE_DIR) / name] if config.CACHE_DIR else []
    # a single level below the temporary folder: the owner of one in between could swap what lies under it
    choices += [HERE / "__pycache__" / name, Path(tempfile.gettempdir()) / f"msbp-{user}-{name}"]
    for folder in choices:
        if _writable(folder):
            return str(folder)
    return tempfile.mkdtemp(prefix="msbp-kernels-")


FOLDER = cache_folder()


def kernel(function: Callable) -> Any:
    """Compile on first use, without the GIL and without threads of its own.

    Sums may be reordered and products fused, which makes them fast; NaN, infinity and exact division stay.
    """
    before, config.CACHE_DIR = config.CACHE_DIR, FOLDER
    try:
        flags = {"nsz", "reassoc", "contract"}
        return njit(cache=True, nogil=True, error_model="numpy", fastmath=flags)(function)
    finally:
        config.CACHE_DIR = before
