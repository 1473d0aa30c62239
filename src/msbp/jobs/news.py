"""What scripts/reproduce.py says on stderr: when a job begins and ends, and live lines on a terminal."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from .workers import Worker


class News:
    """Counts jobs and tells how long the rest may take, by the durations of its plan."""

    def __init__(self, plan: Any, total: int, at_once: int):
        self._plan, self._total, self._at_once = plan, total, at_once
        self._numbers: dict[str, int] = {}
        self._seconds, self._expected, self._waiting = 0.0, 0.0, False
        self._console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        # no refresh thread: it would take time from what is timed
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> "News":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, line: str) -> None:
        self._console.print(line)

    def begins(self, worker: Worker) -> None:
        self._waiting = False
        self._numbers[worker.job.key] = len(self._numbers) + 1
        self.say(f"{self._number(worker)} {worker.job.command}")

    def ends(self, worker: Worker, running: Sequence[Worker], pending: Sequence[Any]) -> None:
        code = worker.process.returncode
        if code:
            self.say(f"{self._number(worker)} failed with exit code {code}: {worker.log}")
            return
        training = self._plan.durations.training(worker.job)
        if training:
            self._seconds, self._expected = self._seconds + worker.seconds, self._expected + training
        rest = self.rest(running, pending) if running or pending else ""
        left = f"; about {rest} left" if rest else ""
        self.say(f"{self._number(worker)} done in {duration(worker.seconds)}{left}")

    def goes_on(self, running: Sequence[Worker], pending: Sequence[Any]) -> None:
        if not self._live.is_started:
            return
        rest = self.rest(running, pending)
        lines = [f"{len(running)} running, {len(pending)} to go{f', about {rest} left' if rest else ''}"]
        for worker in running:
            lines.append(f"{self._number(worker)} {duration(worker.seconds)}  {worker.said()}")
        self._live.update(Text("\n".join(lines), overflow="ellipsis", no_wrap=True), refresh=True)

    def waits(self, pending: Sequence[Any]) -> None:
        if not self._waiting:
            self.say(f"waiting for runs of another program in this outputs folder: {len(pending)} jobs to go")
        self._waiting = True

    def rest(self, running: Sequence[Worker], pending: Sequence[Any]) -> str:
        """How long all that is left may take; nothing where nobody knows."""
        more = self._seconds / self._expected if self._expected else 1.0
        since = {worker.job: worker.seconds for worker in running}
        seconds = self._plan.durations.left(pending, since, more, self._at_once)
        return "" if seconds is None else duration(seconds)

    def _number(self, worker: Worker) -> str:
        return f"[{self._numbers[worker.job.key]}/{self._total}]"


def duration(seconds: float) -> str:
    """At a glance: 40 s, 12 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
