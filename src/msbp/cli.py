"""Starting an entry point: signals, exit codes, and errors in one paragraph."""

import os
import re
import shlex
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from .config import ROOT

INTERRUPTED = 130  # what a shell reports for a command ended by Ctrl-C
FORESEEN = (HydraException, OmegaConfBaseException, ValueError, ArithmeticError, OSError)


def start(main: Callable[[], None]) -> None:
    """Run a Hydra main; print an error in one paragraph (HYDRA_FULL_ERROR=1 shows the traceback)."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # γ must not crash a C locale
    if "-m" in sys.argv:  # argparse takes it before or after all overrides, not between them
        sys.argv.remove("-m")
        sys.argv.insert(1, "-m")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # ends like Ctrl-C, so that no partial file is left
            signal.signal(number, signal.default_int_handler)
    full = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then hands errors on instead of printing them its own way
    try:
        main()
    except KeyboardInterrupt as interrupt:
        print(f"interrupted; {str(interrupt) or 'nothing was left half made'}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader has ended, as head does
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if full:
            raise
        print(f"error: {explain(error)}", file=sys.stderr)
        sys.exit(1)


def explain(error: BaseException) -> str:
    """Return an error's message in one paragraph, with a hint where the command line was probably misread.

    Errors that are worded for the user have the types FORESEEN; of others the type and the line are named.
    """
    text = str(error).partition("\nConfig search path:")[0]
    refused = re.match(r"ValueError raised while resolving interpolation: (.*)\n    full_key: ", text)
    text = refused[1] if refused else text
    text = re.sub(r"\nTo append to your config use .*", "", text)  # what is appended is refused, too
    first = text.partition("\n")[0]
    if isinstance(error, MemoryError) or "allocate memory" in text or "out of memory" in text:
        return f"not enough memory: a smaller model or batch needs less ({first})"
    if not isinstance(error, FORESEEN):
        return f"{type(error).__name__}: {text}\n{_line(error)}; HYDRA_FULL_ERROR=1 shows the traceback"
    if isinstance(error, HydraException) and error.__cause__:
        text = f"{text}\n{error.__cause__}"
    return text + _hint(text)


def _line(error: BaseException) -> str:
    """Return the last line of this project in an error's traceback, else the last one."""
    frames = traceback.extract_tb(error.__traceback__)
    code = (ROOT / "src", ROOT / "scripts")
    own = [frame for frame in frames if any(Path(frame.filename).is_relative_to(part) for part in code)]
    last = (own or frames)[-1]
    return f"unforeseen, in {last.filename}, line {last.lineno}, {last.name}"


def _hint(text: str) -> str:
    """Return how to write a sweep, or a value that Hydra's grammar would split; empty for other errors."""
    if "Could not override" in text:
        return "\nhint: a setting is named with its part, as in method.gamma=0.5; --cfg job shows all of them"
    if "multirun" in text:
        return (
            "\nhint: several values need -m, as in: python -m src.train -m 'seed=range(0,3)'; a list needs "
            "brackets, as in: only=[mnist,polarity]"
        )
    if "mismatched input" in text or "no viable alternative" in text or "token recognition" in text:
        return (
            "\nhint: quote a value that holds = , ( ) or spaces twice, as in: 'paths.data=\"my data, new\"'"
        )
    if "Config group override must be a string or a list" in text:
        return "\nhint: to choose nothing, leave the choice out"
    return ""


def report_command(outputs: str) -> str:
    """Return the command that renders the runs in outputs, quoted for Hydra and for the shell."""
    place = "" if outputs == str(ROOT / "outputs") else shlex.quote(f'paths.outputs="{outputs}"')
    return f"python -m src.report {place}".rstrip()
