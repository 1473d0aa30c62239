"""Files that appear whole or not at all, whenever the writer is killed."""

import glob
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, which takes path's place when the block ends well and is dropped otherwise.

    Of a link the target is replaced, and permissions stay. OSError names path. A killed writer can leave a
    file `.NAME.*.part` beside it, which nothing reads.
    """
    with naming(path):
        target = Path(os.path.realpath(path))
        part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        with open(part, "x+b") as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if target.exists():
                    shutil.copymode(target, part)
                os.replace(part, target)
            except BaseException:
                os.unlink(part)
                raise
    sync(target.parent)


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
