"""Files that appear whole or not at all, whenever the writer is killed."""

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
    try:
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
    except OSError as error:
        if error.filename == str(path):
            raise
        raise OSError(error.errno, f"cannot write: {error.strerror or error}", str(path)) from error
    sync(path.parent)


def sync(folder: Path) -> None:
    """Make a rename in folder outlive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
