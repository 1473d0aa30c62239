"""Starting an entry point: signals, exit codes, and errors in one paragraph."""

import itertools
import logging
import os
import re
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, Override, QuotedString
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from .config import CONF, ROOT, compose, unknown_key

log = logging.getLogger(__name__)
INTERRUPTED = 130  # what a shell reports for a command ended by Ctrl-C
SHOW = ("--cfg", "-c", "--info", "-i")  # options of Hydra that show a run instead of making it
FILES = re.compile(r"(?:paths\.\w+|checkpoint|input|output|resume|hydra\.run\.dir)$")  # keys that name one
FORESEEN = (HydraException, OmegaConfBaseException, YAMLError, ValueError, ArithmeticError, OSError)


def start(main: Callable[[], object], sweeps: bool = False) -> None:
    """Run a Hydra main; print an error in one paragraph (HYDRA_FULL_ERROR=1 shows the traceback).

    sweeps: whether the entry point takes -m, for several runs.
    """
    _open_streams()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # ends like Ctrl-C, so that no partial file is left
            signal.signal(number, signal.default_int_handler)
    full = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then hands errors on instead of printing them its own way
    try:
        overrides = _overrides()
        _check_sweep(sweeps, overrides)
        _check_choices(overrides)
        main()
        sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        _end(INTERRUPTED, f"interrupted; {str(interrupt) or 'no partial file is left'}")
    except BrokenPipeError:  # the reader has ended, as head does
        _end(1)
    except Exception as error:
        if full:
            raise
        _end(1, f"error: {explain(error)}")


class Failures(Callback):
    """Logs each job of a sweep that fails, as it does: the sweep goes on and raises the first error alone.

    Without a sweep it ends a job whose reader has ended, before Hydra reports that as an error.
    """

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: object) -> None:
        if job_return.status != JobStatus.FAILED:
            return
        error: Any = job_return._return_value
        if config.hydra.mode.name == "MULTIRUN":
            log.error("%s failed: %s", " ".join(job_return.overrides or ()), explain(error))
        elif isinstance(error, BrokenPipeError):
            _end(1)


def _open_streams() -> None:
    """Open standard streams that are closed, and have characters that the terminal lacks printed as ?."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # closed by the caller; other files would get its number
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # γ must not crash a C locale


def _end(code: int, message: str = "") -> NoReturn:
    """Print a message and exit, without an error where the streams take nothing more."""
    with suppress(OSError):
        print(message, end="\n" * bool(message), file=sys.stderr, flush=True)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)


def _check_sweep(sweeps: bool, overrides: Sequence[Override]) -> None:
    """Move -m to the front, where Hydra takes it; ValueError if the sweep is empty or there may be none.

    Of a sweep, also of an experiment's own, the options that show a run show its first one.
    """
    words = [word for word in sys.argv[1:] if word not in ("-m", "--multirun")]
    multirun = len(words) < len(sys.argv) - 1
    if multirun and not sweeps:
        raise ValueError("-m is for python -m src.train, which makes several runs; leave it out")
    if multirun:
        sys.argv[1:] = ["-m", *words]
    swept = {each.input_line: _first(each) for each in overrides if multirun and each.is_sweep_override()}
    if sweeps and any(word.partition("=")[0] in SHOW for word in words):
        listed = _first_of_experiment(overrides)
        if multirun or listed:  # Hydra takes these options without -m only
            shown = [*(swept.get(word, word) for word in words), *listed]
            sys.argv[1:] = sorted(shown, key=lambda word: "=" in word and word[0] != "-")  # overrides last
            print("a sweep; this is its first run:", *swept.values(), *listed, file=sys.stderr)


def _first_of_experiment(overrides: Sequence[Override]) -> list[str]:
    """Return the first values of the sweep that the chosen experiment lists, but of keys on the command line.

    Values that a sweeper chooses are left as they are configured.
    """
    given = {each.get_key_element().lstrip("+~"): each for each in overrides}
    name = given["experiment"].value() if "experiment" in given else None
    path = Path(CONF, "experiment", f"{name}.yaml")
    if not path.is_file():
        return []
    params = OmegaConf.select(OmegaConf.load(path), "hydra.sweeper.params") or {}
    lines = [f"{key}={value}" for key, value in params.items() if key not in given]
    listed = OverridesParser.create().parse_overrides(lines)
    discrete = [each for each in listed if not each.is_sweep_override() or each.is_discrete_sweep()]
    return [_first(each) if each.is_sweep_override() else str(each.input_line) for each in discrete]


def _first(sweep: Override) -> str:
    """Return a sweep's first override, or all of it where a sweeper chooses; ValueError if it has none."""
    if not sweep.is_discrete_sweep() or isinstance(sweep.value(), Glob):
        return str(sweep.input_line)
    for value in sweep.sweep_string_iterator():
        return f"{sweep.get_key_element()}={value}"
    raise ValueError(f"{sweep.input_line}: there is nothing to run; range(0,3) is 0, 1, 2")


def _overrides() -> list[Override]:
    """Return the assignments of the command line; ValueError names one that cannot be read."""
    parser, overrides = OverridesParser.create(), []
    for word in (word for word in sys.argv[1:] if "=" in word and word[0] != "-"):
        try:
            overrides.append(parser.parse_override(word))
        except HydraException as error:
            raise ValueError(f"cannot read the argument {word!r}: {error}") from error
        if not re.match(r"[+~]*[^+~=@]", word):
            raise ValueError(f"the argument {word!r} has no key before =, as in seed=3")
    return overrides


def _check_choices(overrides: Sequence[Override]) -> None:
    """Raise ValueError for a choice of a group that is no name; Hydra fails, or does not name the key."""
    for override in overrides:
        group, value = override.get_key_element().lstrip("+~"), override.value()
        if override.is_sweep_override() and not isinstance(value, ChoiceSweep):
            continue  # Hydra lists the files of a glob itself
        choices = value.list if isinstance(value, ChoiceSweep) else [value]
        names = [choice if isinstance(choice, list) else [choice] for choice in choices if choice is not None]
        is_name = (isinstance(name, str | QuotedString) for name in itertools.chain(*names))
        if Path(CONF, group).is_dir() and not all(is_name):
            raise ValueError(f"{override.input_line}: a choice is the name of a file of conf/{group}")


def explain(error: BaseException) -> str:
    """Return an error's message in one paragraph, with a hint where the command line was probably misread.

    Errors that are worded for the user have the types FORESEEN; of others the type and the line are named.
    """
    text = str(error).partition("\nConfig search path:")[0]
    refused = re.match(r"ValueError raised while resolving interpolation: (.*)\n    full_key: ", text)
    text = refused[1] if refused else text
    if unknown := re.match(r"Could not override '([\w.]+)'", text):
        return _unknown(unknown[1])
    text = re.sub(r"\nTo append to your config use .*", "", text)  # what is appended is refused, too
    first = text.partition("\n")[0]
    if isinstance(error, MemoryError) or "allocate memory" in text or "out of memory" in text:
        return f"not enough memory: a smaller model or batch needs less ({first})"
    if not isinstance(error, FORESEEN):
        return f"{type(error).__name__}: {text}\n{_line(error)}; HYDRA_FULL_ERROR=1 shows the traceback"
    if isinstance(error, HydraException) and error.__cause__:
        text = f"{text}\n{error.__cause__}"
    return _named(text) + _hint(text)


def _named(text: str) -> str:
    """Return a message about a file, after the word of the command line that names it or its folder."""
    words = [word.partition("=") for word in sys.argv[1:]]
    for key, _, value in sorted(words, key=lambda word: -len(word[2])):
        path = value.strip("\"'").rstrip("/")
        named = path and FILES.match(key) and re.search(rf"(?<![\w/.-]){re.escape(path)}(?![\w.-])", text)
        if named and f"{key}=" not in text and not ("." in key and key in text):
            return f"{key}={value}: {text}"
    return text


def _unknown(key: str) -> str:
    """Return the message that a run has no such key, with the choice that lacks it and the keys it has."""
    parent, _, name = key.rpartition(".")
    entry = re.split(r"[/.]", sys.argv[0].removesuffix(".py"))[-1]
    entry = entry if Path(CONF, f"{entry}.yaml").is_file() else "train"
    for words in _choices(key, parent):
        try:
            cfg = compose(words, entry, hydra=True)
        except Exception:  # of another word, too; its message comes when this one is mended
            break
        choices = {name.rpartition("@")[2]: file for name, file in cfg.hydra.runtime.choices.items()}
        if not parent:  # groups of which nothing is chosen are no keys yet
            known = {word for word in (*map(str, cfg), *choices) if word.isidentifier()}
            return unknown_key(cfg, key, known - {"hydra"})
        node = OmegaConf.select(cfg, parent)
        if OmegaConf.is_dict(node) and name not in node:
            where = f"{parent}={choices[parent]}" if choices.get(parent) else parent
            keys = ", ".join(sorted(each for each in map(str, node) if not each.startswith("_")))
            return f"{key}: {where} has no {name}; it has {keys or 'no keys'}"
    return f"there is no key {key}; --cfg job shows all of them"


def _choices(key: str, parent: str) -> Iterator[list[str]]:
    """Yield the words but for a key's, of each sweep the first, once for each choice of its parent."""
    words, chosen = list[str](), [list[str]()]
    for each in _overrides():
        name = each.get_key_element().lstrip("+~")
        listed = each.is_sweep_override() and each.is_discrete_sweep() and not isinstance(each.value(), Glob)
        if name == parent and listed:
            chosen = [[f"{name}={value}"] for value in each.sweep_string_iterator()]
        elif name != key:
            words.append(_first(each) if each.is_sweep_override() else str(each.input_line))
    return ([*words, *choice] for choice in chosen)


def _line(error: BaseException) -> str:
    """Return the last line of this project in an error's traceback, else the last one."""
    frames = traceback.extract_tb(error.__traceback__)
    code = (ROOT / "src", ROOT / "scripts")
    own = [frame for frame in frames if any(Path(frame.filename).is_relative_to(part) for part in code)]
    last = (own or frames)[-1]
    return f"unforeseen, in {last.filename}, line {last.lineno}, {last.name}"


def _hint(text: str) -> str:
    """Return how to write a sweep, or a value that Hydra's grammar would split; empty for other errors."""
    if "multirun" in text:
        return (
            "\nhint: several values need -m, as in: python -m src.train -m 'seed=range(0,3)'; a list needs "
            "brackets, as in: only=[mnist,polarity]"
        )
    if re.search("(mismatched|extraneous) input|no viable alternative|token recognition|NoViableAlt", text):
        return (
            "\nhint: quote a value that holds = , ( ) spaces or letters beyond a to z twice, as in: "
            "'paths.data=\"my data, new\"'"
        )
    if "Config group override must be a string or a list" in text:
        return "\nhint: to choose nothing, leave the choice out"
    return ""


def report_command(outputs: str) -> str:
    """Return the command that renders the runs in outputs, quoted for Hydra and for the shell."""
    if outputs == str(ROOT / "outputs"):
        return "python -m src.report"
    # Hydra takes a backslash as it is, unless a quote or another backslash before a quote follows
    quoted = re.sub(r'(\\*)("|$)', lambda match: 2 * match[1] + (match[2] and '\\"'), outputs)
    return f"""python -m src.report {shlex.quote(f'paths.outputs="{quoted}"')}"""
