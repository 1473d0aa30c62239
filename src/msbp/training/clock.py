"""Seconds per phase of training, which `Run.step` in trainer.py delimits; other work is not timed."""

import math
import time
from collections.abc import Callable

PHASES = ("data", "forward", "backward", "update")


class Clock:
    """A stopwatch per phase, opened as `with clock("backward"): ...`; one phase at a time.

    now: time source in seconds.  wait: called at both ends of a phase, so that work queued on a device counts
    in the phase that queued it.  work: source of this process's seconds of processor time.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.perf_counter,
        wait: Callable[[], None] = lambda: None,
        work: Callable[[], float] = time.process_time,
    ):
        self._now, self._wait, self._work = now, wait, work
        self._worked = 0.0  # within phases; read outside of what is timed
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._open = ""
        self._phase = ""
        self._since = 0.0

    def __call__(self, phase: str) -> "Clock":
        if phase not in self._seconds:
            raise ValueError(f"no phase {phase!r}; phases are {', '.join(PHASES)}")
        self._phase = phase
        return self

    def __enter__(self) -> None:
        if self._open:
            raise RuntimeError(f"phase {self._phase!r} was opened while {self._open!r} was running")
        self._open = self._phase
        self._wait()
        self._worked -= self._work()
        self._since = self._now()

    def __exit__(self, *_: object) -> None:
        self._wait()
        self._seconds[self._open] += self._now() - self._since
        self._worked += self._work()
        self._open = ""

    @property
    def phase(self) -> str:
        """The open phase; empty between phases."""
        return self._open

    def __getitem__(self, phase: str) -> float:
        return self._seconds[phase]

    @property
    def total(self) -> float:
        """Seconds of all phases."""
        return sum(self._seconds.values())

    @property
    def processor_share(self) -> float:
        """Processor time over wall time of all phases; well below 1 if other processes had the processor."""
        return self._worked / self.total if self.total else 1.0

    def seconds(self) -> dict[str, float]:
        """Return seconds so far by their names in a record; total_s is the sum of the phases."""
        names = {"data": "data_s", "forward": "forward_s", "backward": "bp_s", "update": "update_s"}
        return {names[phase]: spent for phase, spent in self._seconds.items()} | {"total_s": self.total}

    def state_dict(self) -> dict[str, float]:
        return self._seconds | {"processor": self._worked}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Set what `state_dict` returned; ValueError names seconds that are none."""
        seconds = {name: float(state[name]) for name in (*PHASES, "processor")}
        for name, spent in seconds.items():
            if not 0 <= spent < math.inf:
                raise ValueError(f"clock.{name} is {spent}")
        self._worked = seconds.pop("processor")
        self._seconds = seconds
