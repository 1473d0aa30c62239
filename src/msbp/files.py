"""Files: written whole or not at all, in UTF-8 whatever the locale; JSON and CSV."""

import csv
import glob
import io
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from .kinds import fits


@contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that replaces path when the block ends without an error, and is deleted otherwise.

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
    """Name path in an OSError of the block; the system names no file where a disk is full."""
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


def json_text(value: Any, indent: int | None = None) -> str:
    """Return the value in JSON with a final line feed; ValueError for nan and infinity."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent) + "\n"


def parsed(text: bytes | str) -> Any:
    """Return the value of a JSON text; ValueError unless it is whole and without nan and infinity."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not whole JSON ({error})") from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one line a row under the first row's keys; empty where there is no value, or no row."""
    if not rows:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def check(tree: Any, kinds: Mapping[str, Any], name: str) -> None:
    """Raise ValueError unless the values of tree at these dotted keys, * for any, are of these kinds."""
    if not isinstance(tree, dict):
        raise ValueError(f"not a {name} but a {type(tree).__name__}")
    wrong = [key for key, kind in kinds.items() if not all(fits(value, kind) for value in at(tree, key))]
    if wrong:
        raise ValueError(f"missing or of the wrong type in a {name}: {', '.join(wrong)}")


def at(tree: Any, key: str) -> list[Any]:
    """Return the values of a tree at a dotted key; Ellipsis for a missing one."""
    name, _, rest = key.partition(".")
    here = tree if isinstance(tree, dict) else {}
    below = list(here.values()) if name == "*" else [here.get(name, ...)]
    return [value for one in below for value in at(one, rest)] if rest else below
