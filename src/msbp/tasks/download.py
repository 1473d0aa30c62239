"""All network access of the project: fetch files that are missing, whole or not at all."""

import hashlib
import shutil
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from ..atomic import written_whole

TIMEOUT = 30  # seconds without an answer


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


def check(file: IO[bytes], md5: str | None) -> None:
    file.seek(0)
    found = hashlib.md5(file.read(), usedforsecurity=False).hexdigest()
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
    from datasets import load_dataset  # slow to import, and needed only here

    missing = {label: path for label, path in enumerate(paths) if not path.is_file()}
    names = " and ".join(map(str, missing.values()))
    try:
        splits = load_dataset(repository)
    except (OSError, ValueError) as error:
        raise OSError(
            f"{names} missing, and {repository} could not be fetched ({error}); with a network, run again; "
            "without one, put the files there, or point paths.data or MSBP_DATA_DIR at a folder that has them"
        ) from error
    for label, path in missing.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        texts = (row["text"] for split in splits.values() for row in split if row["label"] == label)
        with written_whole(path) as file:
            file.writelines(" ".join(text.split()).encode() + b"\n" for text in texts)
