"""Progress of a run: a live line on a terminal, and one plain line an epoch."""

import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType

from hydra.core.hydra_config import HydraConfig
from rich.console import Console
from rich.live import Live
from rich.text import Text

from ..files import Fields
from ..record import scored

log = logging.getLogger(__name__)
BETWEEN = 0.2  # seconds between two updates of the live line
PLAIN_BETWEEN = 60.0  # seconds between two lines within an epoch, where there is no terminal


class Screen(Console):
    """Console whose closed pipe or full disk does not stop a run."""

    def on_broken_pipe(self) -> None:
        self.give_up("the output was closed")

    def give_up(self, why: str) -> None:
        """Stop printing, with a note on stderr."""
        self.quiet = True
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            print(f"{why}; the run continues, and train.log has all of it", file=sys.stderr)


console = Screen(soft_wrap=True)
_name = ""


class ToConsole(logging.Handler):
    """Prints logged lines above the live line."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            console.print(job() + self.format(record), markup=False, highlight=False)
        except OSError as error:
            console.give_up(f"the output takes nothing more ({error.strerror})")
        except ValueError:  # characters that the terminal lacks
            self.handleError(record)


def name_job(name: str) -> None:
    """Name this process's run in its lines, where several processes have one console."""
    global _name
    _name = name


def job() -> str:
    """Return the beginning of a line: number and name of a sweep's job where several have one console."""
    if not (worker() and HydraConfig.initialized()):
        return ""
    return f"#{HydraConfig.get().job.num} {_name}{_name and ': '}"


def worker() -> bool:
    """Return whether another process started this one to run a job."""
    return multiprocessing.current_process().name != "MainProcess"


class Progress:
    """Epoch, loss, dev score, BP and total seconds, and labels per second, named by unit.

    Nothing is drawn while a phase of the clock is open.
    """

    def __init__(self, epochs: int, metric: str, unit: str):
        self._epochs, self._metric, self._unit = epochs, metric, unit
        self._dev = ""
        # no refresh thread: it would run inside timed phases
        live = Live(console=console, auto_refresh=False, transient=True)
        alone = console.is_terminal and not worker()  # workers would draw over each other
        self._live = live if alone else None
        self._next = 0.0 if self._live else time.monotonic() + PLAIN_BETWEEN

    def __enter__(self) -> "Progress":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        if self._live:
            self._live.stop()

    def step(self, epoch: int, step: int, loss: float, labels: int, seconds: Mapping[str, float]) -> None:
        """Show a step; loss is the mean of the epoch so far, labels and seconds are of the whole run."""
        if (now := time.monotonic()) < self._next:
            return
        where = f"epoch {epoch + 1}/{self._epochs}  step {step}  loss {loss:.4f}{self._dev}"
        line = f"{where}  {self._times(labels, seconds)}"
        if self._live:
            self._next = now + BETWEEN
            self._live.update(Text(line, overflow="ellipsis", no_wrap=True), refresh=True)
        else:
            self._next = now + PLAIN_BETWEEN
            log.info(line)

    def epoch(self, row: Fields) -> None:
        """Log an epoch by its row of the history."""
        self._dev = f"  dev {scored(self._metric, row['dev'])}"
        self._next = time.monotonic() + (0.0 if self._live else PLAIN_BETWEEN)
        where = f"epoch {row['epoch']}/{self._epochs}  loss {row['loss']:.4f}{self._dev}"
        log.info("%s  %s", where, self._times(row["labels"], row))

    def _times(self, labels: int, seconds: Mapping[str, float]) -> str:
        speed = f"{labels / seconds['total_s']:,.0f} {self._unit}/s"
        return f"so far: BP {seconds['bp_s']:.1f} s  total {seconds['total_s']:.1f} s  {speed}"
