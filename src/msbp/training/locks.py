"""Locks: one process a request or a publication, one run a folder, and detection of runs beside this one.

All by flock on files in the outputs folder: a lock ends with its process, however that ends.
"""

import errno
import fcntl
import glob
import logging
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ..files import drop_parts, naming, written_whole
from ..record import NAME

log = logging.getLogger(__name__)
NO_LOCKS = errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL  # of file systems


@contextmanager
def request(checkpoints: Path, key: str, *, again: bool) -> Iterator[Path]:
    """Lock the request named key and yield the path of its checkpoint; wait while another process has it.

    again: do not wait but take another path, so that one request can run several times at once. Partial
    checkpoints that a killed process left there are deleted.
    """
    checkpoints.mkdir(parents=True, exist_ok=True)
    name, number = key, 1
    while True:
        with open(checkpoints / f"{name}.lock", "ab") as lock:
            if acquire(lock, wait=False) is False:
                if again:
                    number += 1
                    name = f"{key}.{number}"
                    continue
                log.info("the same request is running in another process: waiting for it")
                acquire(lock, wait=True)
            drop_parts(checkpoints / f"{name}.pt")
            yield checkpoints / f"{name}.pt"
            return


@contextmanager
def publication(folder: Path) -> Iterator[None]:
    """Lock the folder of what is published, by a file beside it; wait while another process has it."""
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f".{folder.name}.lock"), "ab") as lock:
        if acquire(lock, wait=False) is False:
            log.warning("another process writes what is published in %s: waiting for it", folder)
            acquire(lock, wait=True)
        yield


def acquire(lock: IO[bytes], *, wait: bool, shared: bool = False) -> bool | None:
    """Acquire a lock; return False if another process has it and wait is False, None without locks."""
    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return None
    return True


@contextmanager
def run_folder(folder: Path, files: dict[str, bytes]) -> Iterator[None]:
    """Lock folder for one run: write its files, and log to its train.log within the block.

    FileExistsError if the folder holds a finished run, or one with other files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "train.log", "ab") as lock:
        free = acquire(lock, wait=False) is not False and not (folder / NAME).exists()
        there = [name for name in files if (folder / name).exists()]
        if not free or any((folder / name).read_bytes() != files[name] for name in there):
            raise FileExistsError(
                f"{folder} holds another run: leave out hydra.run.dir, or name a new folder"
            )
        for name, content in files.items():
            with written_whole(folder / name) as file:
                file.write(content)
        handler = Log(folder / "train.log", encoding="utf-8", errors="backslashreplace")
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logging.getLogger().addHandler(handler)
        try:
            yield
        except BaseException as error:  # the log has the whole of it, the console a paragraph
            why = (type(error), error, error.__traceback__)
            handler.handle(log.makeRecord(log.name, logging.ERROR, __file__, 0, "the run failed", (), why))
            raise
        finally:
            logging.getLogger().removeHandler(handler)
            handler.close()


class Log(logging.FileHandler):
    """Log that ignores a full disk: the files that a run needs report it."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass

    def close(self) -> None:
        with suppress(OSError):
            super().close()


def drop_abandoned(outputs: Path, files: Mapping[str, bytes]) -> None:
    """Delete the folders of runs without a record and without a process that have these files.

    Empty folders stay: another process may have created one and not yet locked it.
    """
    for pattern in ("runs/*/train.log", "sweeps/*/*/train.log"):
        for name in glob.glob(pattern, root_dir=outputs):
            with suppress(OSError):  # deleted meanwhile
                _drop_if_abandoned((outputs / name).parent, files)


def _drop_if_abandoned(folder: Path, files: Mapping[str, bytes]) -> None:
    if all((folder / name).exists() and (folder / name).read_bytes() == files[name] for name in files):
        with open(folder / "train.log", "ab") as lock:
            if acquire(lock, wait=False) and not (folder / NAME).exists():  # its process may just have ended
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def detect_concurrent(folder: Path) -> Iterator[Callable[[], bool | None]]:
    """Detect other runs; yield a function that returns whether this one was alone so far, None if unknown.

    Runs meet if one begins while the other is running; they are seen through their outputs folder.
    """
    token = secrets.token_bytes(8)
    latest = folder / "latest"
    with open(folder / "running.lock", "ab") as running:
        with open(folder / "starting.lock", "ab") as turn:
            if acquire(turn, wait=True) is None:
                log.warning(
                    "%s cannot be locked: equal requests may run twice, times do not compare", turn.name
                )
                yield lambda: None
                return
            # trading one kind of lock for the other is not atomic: one run at a time
            alone = acquire(running, wait=False)
            acquire(running, wait=True, shared=True)
            with naming(latest):
                latest.write_bytes(token)
        yield lambda: alone and latest.read_bytes() == token
