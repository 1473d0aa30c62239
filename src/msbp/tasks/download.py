"""All network access of the project: fetches the files of a corpus that are missing, whole or not at all."""

import hashlib
import logging
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pooch

from ..files import written_whole

if TYPE_CHECKING:
    from datasets import DatasetDict

TIMEOUT = 30  # seconds without an answer
LISTED = 4  # file names in a message
log = logging.getLogger(__name__)
pooch.get_logger().setLevel(logging.WARNING)  # it would log the name of a temporary file


@dataclass(frozen=True)
class Remote:
    """A file that can be fetched: the addresses of its copies, and its MD5 sum if that is known."""

    urls: Sequence[str]
    md5: str | None = None


def require(files: Mapping[Path, Remote], offline: bool = False, instead: str = "") -> None:
    """Fetch those of the files that do not exist. FileNotFoundError as `unavailable` words it."""
    absent = [path for path in files if not path.is_file()]
    if absent and offline:
        raise unavailable(absent, instead=instead)
    for path in absent:
        fetch(files[path], path, instead)


def fetch(remote: Remote, target: Path, instead: str = "") -> None:
    """Write a copy of a remote file to target; several processes may do so at once."""
    with retrieved(remote, [target], instead) as copy, writing([target], instead):
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(copy, "rb") as source, written_whole(target) as file:
            shutil.copyfileobj(source, file)


@contextmanager
def retrieved(remote: Remote, targets: Sequence[Path], instead: str = "") -> Iterator[Path]:
    """Yield a temporary copy of a remote file, from its first address with these contents."""
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        for url in remote.urls:
            try:
                copy = pooch.retrieve(
                    url,
                    known_hash=remote.md5 and f"md5:{remote.md5}",
                    fname="copy",
                    path=folder,
                    downloader=pooch.HTTPDownloader(timeout=TIMEOUT),
                )
            except (OSError, ValueError) as error:
                failures.append(f"{url}: {error}")
            else:
                log.info("fetched %s", url)
                break
        else:
            raise unavailable(targets, f"could not be fetched ({'; '.join(failures)})", instead)
        yield Path(copy)


@contextmanager
def writing(targets: Sequence[Path], instead: str = "") -> Iterator[None]:
    """Turn an OSError of the block into the error for targets that cannot be written."""
    try:
        yield
    except OSError as error:
        reason = f"the folder cannot be written ({error.strerror or error})"
        raise unavailable(targets, reason, instead) from error


def unavailable(
    paths: Sequence[Path], reason: str = "paths.offline=true", instead: str = ""
) -> FileNotFoundError:
    """Return the error for files that are missing and cannot be fetched.

    `instead` names a task on open data.
    """
    names = ", ".join(path.name for path in paths[:LISTED])
    more = f" and {len(paths) - LISTED} more files" if len(paths) > LISTED else ""
    alternative = f"; task={instead} runs on open data" if instead else ""
    return FileNotFoundError(
        f"no {names}{more} under {paths[0].parent}, and {reason}: put the files there, point paths.data or "
        "MSBP_DATA_DIR at a folder that has them or can be written, or run once with a network and "
        f"paths.offline=false{alternative}"
    )


def md5_of(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def warn_of_others(paths: Iterable[Path], md5: str, name: str) -> None:
    """Log that existing files differ from those that would be fetched; md5 is of their concatenation."""
    paths = list(paths)
    if md5_of(b"".join(path.read_bytes() for path in paths)) != md5:
        location = paths[0] if len(paths) == 1 else paths[0].parent
        log.warning("%s: not the files of %s, by md5; delete them to have those fetched", location, name)


def labelled_lines(repository: str, paths: Sequence[Path], offline: bool = False) -> None:
    """Write the sentences of a Hub data set, columns text and label of all its splits, to one file a label.

    Existing files stay. FileNotFoundError as `unavailable` words it.
    """
    absent = {label: path for label, path in enumerate(paths) if not path.is_file()}
    if absent:
        splits = from_hub(repository, list(absent.values()), offline)
        for label, path in absent.items():
            write_lines(
                path, (row["text"] for split in splits.values() for row in split if row["label"] == label)
            )


def parallel_lines(
    repository: str, split: str, columns: Mapping[str, Path], offline: bool = False, instead: str = ""
) -> None:
    """Write columns of a split of a Hub data set to a file each, those that do not exist."""
    absent = {column: path for column, path in columns.items() if not path.is_file()}
    if absent:
        rows = from_hub(repository, list(absent.values()), offline, instead)[split]
        for column, path in absent.items():
            write_lines(path, (row[column] for row in rows), instead)


def from_hub(
    repository: str, targets: Sequence[Path], offline: bool = False, instead: str = ""
) -> "DatasetDict":
    """Return the splits of a Hub data set, of which the targets are parts."""
    if offline:
        raise unavailable(targets, instead=instead)
    from datasets import load_dataset  # slow to import, and needed only here

    try:
        return load_dataset(repository)
    except (OSError, ValueError) as error:
        raise unavailable(targets, f"{repository} could not be fetched ({error})", instead) from error


def write_lines(path: Path, texts: Iterable[str], instead: str = "") -> None:
    """Write one text a line, its words apart by single spaces."""
    with writing([path], instead):
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as file:
            file.writelines(" ".join(text.split()).encode() + b"\n" for text in texts)
