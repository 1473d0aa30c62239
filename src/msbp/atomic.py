"""Files that appear whole or not at all, whenever the writer is killed."""

import glob
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, which takes path's place when the block ends well and is dropped otherwise.

    OSError names path. A killed writer can leave a file `.NAME.*.part` beside it, which nothing reads.
    """
    with naming(path):
        descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        try:
            with os.fdopen(descriptor, "w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.chmod(part, 0o644)
            os.replace(part, path)
        except BaseException:
            os.unlink(part)
            raise
    sync(path.parent)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError within the block is one of writing path; the system names no file where a disk is full."""
    try:
        yield
    except OSError as error:
        if error.filename == str(path):
            raise
        raise OSError(error.errno, f"cannot write: {error.strerror or error}", str(path)) from error


def drop_parts(path: Path) -> None:
    """Delete what killed writers left of path; nobody else may be writing it."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        part.unlink(missing_ok=True)


def sync(folder: Path) -> None:
    """Make a rename in folder outlive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
