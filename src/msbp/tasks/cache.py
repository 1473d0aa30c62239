"""Arrays that took long to make, kept between runs: found by what they were made from, remade if damaged."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from ..files import written_whole

Arrays = Mapping[str, np.ndarray]
MADE_AS = "made_as"  # the array that says what name a file was written under
log = logging.getLogger(__name__)


def key(files: Iterable[Path], *settings: object) -> str:
    """16 hex digits over the content of the files, the settings and the code of the tasks."""
    digest = hashlib.blake2b(digest_size=8)
    for path in [*files, *sorted(Path(__file__).parent.glob("*.py"))]:
        digest.update(hashlib.blake2b(path.read_bytes()).digest())
    digest.update(repr(settings).encode())
    return digest.hexdigest()


def kept(path: Path | None, make: Callable[[], Arrays]) -> Arrays:
    """The arrays in the .npz file `path`, or what `make` gives, which is then written there if it can be."""
    if path is None:
        return make()
    try:
        # np.load alone leaves a damaged file open
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}  # reading checks each array's checksum
            if (name := str(found.pop(MADE_AS))) != path.name:
                raise ValueError(f"was written as {name}")
            return found
    except FileNotFoundError:
        pass
    except Exception as error:  # numpy and zipfile raise many kinds for bytes that they did not write
        log.warning("%s is damaged (%r) and is made again", path, error)
    made = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as out:
            np.savez(out, **{MADE_AS: np.array(path.name)}, **made)  # type: ignore[arg-type]
    except OSError as error:
        log.warning("%s is not kept for the next run: %s", path, error)
    return made
