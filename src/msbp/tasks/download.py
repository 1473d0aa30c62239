"""All network access of the project: fetch files that are missing, whole or not at all."""

import hashlib
import logging
import shutil
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from ..files import written_whole

TIMEOUT = 30  # seconds without an answer
log = logging.getLogger(__name__)


def fetch(urls: Sequence[str], target: Path, md5: str | None = None) -> None:
    """Put the first of urls that answers at target, checked by md5; several processes may do so at once.

    Raises OSError naming the file, what failed and what to do.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    failures = []
    for url in urls:
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT) as answer, written_whole(target) as file:
                shutil.copyfileobj(answer, file)
                check(file, md5)
            return
        except (OSError, ValueError) as error:
            failures.append(f"{url}: {error}")
    raise OSError(
        f"{target} is missing and could not be fetched ({'; '.join(failures)}); with a network, run again; "
        "without one, put the file there, or point paths.data or MSBP_DATA_DIR at a folder that has it"
    )


def md5_of(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def warn_of_others(paths: Iterable[Path], md5: str, name: str) -> None:
    """Log that files which are there are not those that would be fetched; md5 is of one after the other."""
    paths = list(paths)
    if md5_of(b"".join(path.read_bytes() for path in paths)) != md5:
        place = paths[0] if len(paths) == 1 else paths[0].parent
        log.warning("%s: not the files of %s, by md5; delete them to have those fetched", place, name)


def check(file: IO[bytes], md5: str | None) -> None:
    """ValueError unless the file has the wanted md5, if one is wanted."""
    file.seek(0)
    found = md5_of(file.read())
    if md5 and found != md5:
        raise ValueError(f"answered with md5 {found}, wanted {md5}")


def mnist(folder: Path, md5: dict[str, str]) -> None:
    """Fetch MNIST's missing .gz files from the mirrors that torchvision lists."""
    from torchvision.datasets import MNIST  # slow to import, and needed only here

    for name, wanted in md5.items():
        if not (folder / name).is_file():
            fetch([mirror + name for mirror in MNIST.mirrors], folder / name, wanted)


def labelled_lines(repository: str, paths: Sequence[Path]) -> None:
    """Write the sentences of a Hub data set, columns text and label of all its splits, to one file a label.

    Files that are there stay. OSError names what failed and what to do.
    """
    missing = {label: path for label, path in enumerate(paths) if not path.is_file()}
    splits = from_hub(repository, missing.values())
    for label, path in missing.items():
        write_lines(
            path, (row["text"] for split in splits.values() for row in split if row["label"] == label)
        )


def parallel_lines(repository: str, split: str, columns: Mapping[str, Path]) -> None:
    """Write columns of a split of a Hub data set to a file each. OSError names what failed and what to do."""
    rows = from_hub(repository, columns.values())[split]
    for column, path in columns.items():
        write_lines(path, (row[column] for row in rows))


def from_hub(repository: str, wanted: Iterable[Path]) -> Any:
    """The splits of a Hub data set, fetched because the wanted files are missing, which an OSError names."""
    from datasets import load_dataset  # slow to import, and needed only here

    try:
        return load_dataset(repository)
    except (OSError, ValueError) as error:
        raise OSError(
            f"{' and '.join(map(str, wanted))} missing, and {repository} could not be fetched ({error}); "
            "with a network, run again; without one, put the files there, or point paths.data or "
            "MSBP_DATA_DIR at a folder that has them"
        ) from error


def write_lines(path: Path, texts: Iterable[str]) -> None:
    """One text a line, whatever spaces are in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as file:
        file.writelines(" ".join(text.split()).encode() + b"\n" for text in texts)
