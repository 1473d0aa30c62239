"""Work in other processes: commands side by side, and a first look at the data of runs."""

import ctypes
import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import groupby
from pathlib import Path
from threading import Lock

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .config import build, compose
from .files import file_name
from .training.locks import acquire

PR_SET_PDEATHSIG = 1  # prctl.h
LOOK = 0.5  # seconds between two looks at the logs
WAIT = 30  # seconds between two attempts at jobs that another program is in the way of


@dataclass(frozen=True)
class Job:
    """One command: a run of one seed, or other measurements. alone: its times count, so nothing else may run.

    key: equal for equal requests, and a file name. words: what comes after `python`. overrides: the run's,
    but for its seed; none for other measurements.
    """

    key: str
    words: tuple[str, ...]
    alone: bool
    overrides: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command for a shell, in the project's top folder."""
        return shlex.join(["python", *self.words])

    @property
    def task(self) -> str:
        """Name of the task; empty for what is no run."""
        return self.overrides[0].removeprefix("task=") if self.overrides else ""

    @property
    def data(self) -> tuple[str, ...]:
        """Overrides that choose the data."""
        return tuple(word for word in self.overrides if word.startswith(("task", "experiment=", "paths.")))


class Runner:
    """Runs jobs as processes, whose output goes to a log each in folder.

    needed: returns by key the jobs that are still to be done, as they are to be run now. Several programs may
    share the work of a folder: no job runs in two of them at once, and none beside one that must be alone.
    """

    def __init__(self, folder: Path, needed: Callable[[], Mapping[str, Job]], environment: Mapping[str, str]):
        self._folder, self._needed, self._environment = folder, needed, environment
        self._running: dict[Path, subprocess.Popen] = {}
        self._stopped, self._turn = False, Lock()
        console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        line = TextColumn("{task.description}", markup=False)
        columns = MofNCompleteColumn(), BarColumn(20), TimeRemainingColumn(compact=True), line
        # no refresh thread: it would take time from what is timed
        self._progress = Progress(
            *columns, console=console, transient=True, auto_refresh=False, disable=not console.is_terminal
        )

    def run(self, jobs: Sequence[Job], at_once: int) -> list[str]:
        """Run each job once, at_once side by side if they need not be alone; return a text for each failure.

        Whatever ends this, its processes are stopped first.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        left, waiting, codes = list(jobs), list[Job](), dict[str, int | None]()
        undone: Collection[str] = ()
        with self._progress as progress:
            bar = progress.add_task("", total=len(jobs))
            while left:
                for alone, some in groupby(left, lambda job: job.alone):
                    with ThreadPoolExecutor(1 if alone else at_once) as pool:
                        futures = {job.key: pool.submit(self._run, job) for job in some}
                        try:
                            while wait(futures.values(), LOOK).not_done:
                                done = sum(code is not None for code in codes.values())
                                done += sum(future.done() for future in futures.values())
                                progress.update(bar, completed=done, description=self._last(), refresh=True)
                        except BaseException:
                            self._stop(pool)
                            raise
                    codes |= {key: future.result() for key, future in futures.items()}
                undone = self._needed()
                left = [job for job in left if codes[job.key] is None and job.key in undone]
                if left and left != waiting:
                    progress.print(f"waiting for another program, before {len(left)} jobs")
                waiting = left
                time.sleep(WAIT if left else 0)
        return [self._failure(job, codes[job.key]) for job in jobs if codes[job.key] or job.key in undone]

    def _run(self, job: Job) -> int | None:
        """Run the job unless another program has done it; return its exit code.

        None if another runs it now, or any job beside which this one must not run. The log is the job's lock,
        which its process holds even where this program is killed.
        """
        with open(self._folder / "jobs.lock", "ab") as machine, open(self._log(job), "ab") as log:
            locks = acquire(machine, wait=False, shared=not job.alone), acquire(log, wait=False)
            if False in locks:
                return None
            with self._turn:
                now = self._needed().get(job.key)
            if now is None:
                return 0
            log.truncate(0)
            begun = time.monotonic()
            # in a session of its own, so that a terminal's Ctrl-C does not reach it past this program
            with subprocess.Popen(
                [sys.executable, *now.words], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env=self._environment, start_new_session=True, preexec_fn=partial(end_with, os.getpid()),
            ) as process:  # fmt: skip
                self._running[self._log(job)] = process
                if self._stopped:
                    process.terminate()
                self._progress.print(now.command)
                code = process.wait()
                del self._running[self._log(job)]
        how = f"failed with exit code {code}: {self._log(job)}" if code else "done"
        self._progress.print(f"{how} in {timedelta(seconds=round(time.monotonic() - begun))}: {now.command}")
        return code

    def _stop(self, pool: ThreadPoolExecutor) -> None:
        """Terminate the processes, and wait until they have saved; a second Ctrl-C kills them."""
        self._stopped = True
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list(self._running.values()):
            process.terminate()
        try:
            pool.shutdown()
        except KeyboardInterrupt:
            for process in list(self._running.values()):
                process.kill()

    def _log(self, job: Job) -> Path:
        return self._folder / f"{file_name(job.key)}.log"

    def _last(self) -> str:
        """Return the last line of each running process."""
        return "  ".join(last_line(log) for log in list(self._running))

    def _failure(self, job: Job, code: int | None) -> str:
        what = f"failed with exit code {code}" if code else "ended well, but its record is still missing"
        return f"{job.command}\n  {what}: {self._log(job)}\n  {last_line(self._log(job))}"


def last_line(log: Path) -> str:
    """Return the last line of a log that is not blank."""
    lines = log.read_bytes()[-2000:].decode("utf-8", "replace").split("\n") if log.exists() else []
    return next((line for line in reversed(lines) if line.strip()), "")


def end_with(parent: int) -> None:
    """Have the kernel send SIGTERM to this process when its parent, of that id, has ended, however it did."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != parent:
        sys.exit(f"process {parent} ended before this one began")


def without_data(runs: Iterable[Sequence[str]]) -> dict[Sequence[str], str]:
    """Return those of these overrides whose data cannot be read, and why; what is free is fetched first.

    In a process of its own: reading takes memory, and torch.
    """
    every = list(runs)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, initializer=end_with, initargs=(os.getpid(),)) as pool:
        return {run: why for run, why in zip(every, pool.map(missing_data, every), strict=True) if why}


def missing_data(overrides: Sequence[str]) -> str:
    """Return in a line why the data of a run cannot be read; empty if they can."""
    cfg = compose(overrides)
    try:
        build(cfg.task).splits(cfg.seed)
    except (OSError, ValueError) as error:
        return str(error).partition("\n")[0] or repr(error)
    return ""
