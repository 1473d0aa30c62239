"""Arrays kept between runs: keyed by what they were computed from, recomputed if damaged."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from ..files import written_whole

Arrays = Mapping[str, np.ndarray]
NAME = "written_as"  # the array that holds the name that a file was written under
log = logging.getLogger(__name__)


def key(digest: str, *settings: object) -> str:
    """Return 16 hex digits over a digest of the data, the settings, and the code of this package."""
    key = hashlib.blake2b(digest.encode(), digest_size=8)
    folder = Path(__file__).parent
    for path in sorted(folder.rglob("*.py")):
        key.update(hashlib.blake2b(path.read_bytes()).digest())
    key.update(repr(settings).encode())
    return key.hexdigest()


def cached(path: Path | None, compute: Callable[[], Arrays]) -> Arrays:
    """Return the arrays in the .npz file `path`, or compute and, where possible, write them."""
    if path is None:
        return compute()
    try:
        # np.load alone leaves a damaged file open
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            stored = {name: arrays[name] for name in arrays.files}  # reading checks each array's checksum
            if (name := str(stored.pop(NAME))) != path.name:
                raise ValueError(f"was written as {name}")
            return stored
    except FileNotFoundError:
        pass
    except Exception as error:  # numpy and zipfile raise many kinds for bytes that they did not write
        log.warning("%s is damaged (%r) and is computed again", path, error)
    computed = compute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as out:
            np.savez(out, **{NAME: np.array(path.name)}, **computed)  # type: ignore[arg-type]
    except OSError as error:
        log.warning("%s is not kept for the next run: %s", path, error)
    return computed
