"""What a benchmark says on stderr while it goes on; nothing is drawn while a step is timed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress


class Voice:
    """Plain lines, and bars where stderr is a terminal."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

    def say(self, line: str) -> None:
        self._console.print(line)

    @contextmanager
    def bar(self, title: str) -> Iterator[Callable[[float], None]]:
        """A function to be told the part that is done, from 0 to 1."""
        live = self._console.is_terminal
        if not live:
            self.say(title)
        # no refresh thread: it would run inside timed steps
        with Progress(console=self._console, auto_refresh=False, disable=not live) as progress:
            task = progress.add_task(title, total=1.0)
            yield lambda part: progress.update(task, completed=part, refresh=True)
