"""Commands as processes of their own, side by side or one at a time, over every program that shares a folder.

A job and the machine are locked by flock; a child inherits its locks, so that they last as long as it does,
also where the program that started it was killed. Children of a killed program are asked to stop.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from ..training.locks import held

LOOK = 0.5  # seconds between two looks at the children
AGAIN = 2.0  # seconds until a job of another program is looked at again


class Job(Protocol):
    """words: what comes after `python`; command: the same, as a user types it.

    alone: nothing else may run meanwhile, for its times count.
    """

    @property
    def key(self) -> str: ...
    @property
    def words(self) -> Sequence[str]: ...
    @property
    def command(self) -> str: ...
    @property
    def alone(self) -> bool: ...


@dataclass
class Worker:
    """A job in progress; log takes what it prints."""

    job: Job
    log: Path
    process: subprocess.Popen
    locks: list[IO[bytes]]
    since: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since

    def ended(self) -> bool:
        if self.process.poll() is None:
            return False
        for lock in self.locks:
            lock.close()
        return True

    def said(self) -> str:
        """The last line that it printed."""
        lines = self.log.read_bytes()[-2000:].decode("utf-8", "replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "")


class Voice(Protocol):
    """Who is told how things go."""

    def begins(self, worker: Worker) -> None: ...
    def ends(self, worker: Worker, running: Sequence[Worker], pending: Sequence[Job]) -> None: ...
    def goes_on(self, running: Sequence[Worker], pending: Sequence[Job]) -> None: ...
    def waits(self, pending: Sequence[Job]) -> None: ...


def work(
    plan: Callable[[], Sequence[Job]],
    folder: Path,
    at_once: int,
    voice: Voice,
    environment: Mapping[str, str],
) -> list[Worker]:
    """Do what plan lists until nothing is left of it but what was tried; give what failed.

    plan is asked again whenever a job has ended, so that what other programs finish leaves it by itself.
    Whatever ends this function, its children are stopped first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    running: list[Worker] = []
    tried: dict[str, Worker] = {}
    try:
        while True:
            pending = [job for job in plan() if job.key not in tried]
            for job in pending:
                if len(running) < at_once and (locks := lock(folder, job)):
                    if job.key not in {still.key for still in plan()}:  # another program has just done it
                        release(locks)
                        continue
                    worker = tried[job.key] = start(job, folder, locks, environment)
                    running.append(worker)
                    voice.begins(worker)
            pending = [job for job in pending if job.key not in tried]
            if not running and not pending:
                break
            if not running:
                voice.waits(pending)
                time.sleep(AGAIN)
            else:
                ended = wait(running, pending, voice)
                running.remove(ended)
                voice.ends(ended, running, pending)
    finally:
        stop(running)
    undone = {job.key for job in plan()}
    return [worker for worker in tried.values() if worker.process.returncode or worker.job.key in undone]


def wait(running: Sequence[Worker], pending: Sequence[Job], voice: Voice) -> Worker:
    """The first of them that ends."""
    while True:
        for worker in running:
            if worker.ended():
                return worker
        voice.goes_on(running, pending)
        time.sleep(LOOK)


def lock(folder: Path, job: Job) -> list[IO[bytes]]:
    """Locks on the job and on the machine, whole for a job alone; nothing where another has one of them."""
    locks: list[IO[bytes]] = []
    for name, shared in ((f"{job.key}.lock", False), ("machine.lock", not job.alone)):
        locks.append(open(folder / name, "ab"))
        if not held(locks[-1], wait=False, shared=shared):
            release(locks)
            return []
    return locks


def release(locks: Sequence[IO[bytes]]) -> None:
    for lock in locks:
        lock.close()


def start(job: Job, folder: Path, locks: list[IO[bytes]], environment: Mapping[str, str]) -> Worker:
    """The job in a session of its own, so that a terminal's Ctrl-C does not reach it past this program."""
    command = [sys.executable, "-m", "msbp.jobs.tied", str(os.getpid()), *job.words]
    log = folder / f"{job.key}.log"
    with open(log, "wb") as out:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[lock.fileno() for lock in locks],
        )
    return Worker(job, log, process, locks)


def stop(running: Sequence[Worker]) -> None:
    """Ask them to stop and wait until they have saved where they are; a second Ctrl-C kills them."""
    for worker in running:
        with suppress(ProcessLookupError):
            worker.process.send_signal(signal.SIGTERM)
    try:
        for worker in running:
            worker.process.wait()
    except KeyboardInterrupt:
        for worker in running:
            worker.process.kill()
            worker.process.wait()
    for worker in running:
        worker.ended()
