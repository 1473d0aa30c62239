"""Ctrl-C and SIGTERM as a question asked between two steps, so that no step is cut in half."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Asked:
    """Whether the user wants to stop."""

    def __init__(self) -> None:
        self.now = False

    def __bool__(self) -> bool:
        return self.now


@contextmanager
def between_steps() -> Iterator[Asked]:
    """Within the block the first Ctrl-C or SIGTERM only sets the flag; a second one interrupts at once."""
    asked = Asked()

    def ask(number: int, frame: FrameType | None) -> None:
        asked.now = True
        for each in before:
            signal.signal(each, signal.default_int_handler)

    before = {}
    if threading.current_thread() is threading.main_thread():  # only there may handlers be set
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:  # a background job of a script ignores Ctrl-C
                before[number] = signal.signal(number, ask)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
