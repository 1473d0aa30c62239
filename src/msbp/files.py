"""Files: written whole or not at all, in UTF-8 whatever the locale; JSON and CSV."""

import csv
import fcntl
import glob
import hashlib
import io
import json
import logging
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

log = logging.getLogger(__name__)

Fields = dict[str, Any]  # plain data by name, as JSON holds it
LONGEST = 100  # bytes of a user's text in a file name; file systems allow 255 in all
SURROGATE = re.compile(r"[\ud800-\udfff]|\\u[dD][89a-fA-F]")  # half of a pair, or the escape of one


@contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that replaces path when the block ends without an error, and is deleted otherwise.

    Of a link the target is replaced, and permissions stay. OSError names path. A killed writer can leave a
    file `.NAME.*.part` beside it, which nothing reads and the next writer deletes.
    """
    with naming(path):
        target = Path(os.path.realpath(path))
        drop_parts(target)
        part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        with _locked(part) as file:
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
    """Name path in an OSError of the block; the system names no file where a disk is full."""
    try:
        yield
    except OSError as error:
        if error.filename == str(path):
            raise
        raise OSError(error.errno, f"cannot write: {error.strerror or error}", str(path)) from error


def check_writable(folder: Path) -> None:
    """Create the folder; OSError names it unless it takes files."""
    with naming(folder):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()


def find_files(folder: Path, name: str) -> Iterator[Path]:
    """Yield each path below folder whose last part is name.

    A folder that is deleted meanwhile holds none (Path.rglob would raise); one that cannot be read is logged.
    """

    def skip(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            log.warning("left out %s: %s", error.filename, error.strerror)

    for parent, folders, names in os.walk(folder, onerror=skip):
        if name in names or name in folders:
            yield Path(parent, name)


def _locked(part: Path) -> IO[bytes]:
    """Return a new file that `drop_parts` leaves alone as long as it is open."""
    while True:
        file = open(part, "x+b")
        with suppress(OSError):  # file systems without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if part.exists():  # not deleted between the two calls
            return file
        file.close()


def file_name(text: object) -> str:
    """Return a user's text as a file name: one part of a path, without separators and leading dots."""
    name = re.sub(r"[^\w.-]", "_", str(text))
    name = re.sub(r"^\.*", lambda dots: "_" * len(dots[0]), name) or "_"
    encoded = name.encode()
    if len(encoded) <= LONGEST:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:8]  # long names that begin alike stay different
    return f"{encoded[:LONGEST].decode(errors='ignore')}-{digest}"


def drop_parts(path: Path) -> None:
    """Delete partial files that killed writers of path left; those of living ones are locked."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        with suppress(OSError), open(part, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()


def sync(folder: Path) -> None:
    """Make a rename in folder outlive a power cut, on file systems that can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def save(contents: Mapping[Path, str | bytes]) -> list[Path]:
    """Write the files whose content differs; return them."""
    encoded = {path: text.encode() if isinstance(text, str) else text for path, text in contents.items()}
    changed = [
        path for path, content in encoded.items() if not (path.is_file() and path.read_bytes() == content)
    ]
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as file:
            file.write(encoded[path])
    return changed


def json_text(value: object, indent: int | None = None) -> str:
    """Return the value in JSON with a final line feed; ValueError for nan and infinity."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent) + "\n"


def parsed(text: bytes | str) -> Any:
    """Return the value of a JSON text; ValueError unless it is whole, in UTF-8, without nan and infinity."""
    try:
        text = text if isinstance(text, str) else text.decode()
        value = json.loads(text, parse_constant=_refuse)
        if SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()  # UTF-8 cannot encode an unpaired surrogate
        return value
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not whole JSON ({error})") from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Return one line a row under the first row's keys; empty where there is no value, or no row."""
    if not rows:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
