"""What every entry point shares: where the configuration lies, and how errors reach the user."""

import os
import re
import secrets
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

ROOT = Path(__file__).resolve().parents[2]
CONF = str(ROOT / "conf")
INTERRUPTED = 130  # what a shell reports for a command ended by Ctrl-C
FORESEEN = (HydraException, OmegaConfBaseException, ValueError, ArithmeticError, OSError)

OmegaConf.register_new_resolver("project", lambda folder: str(ROOT / folder), replace=True)
OmegaConf.register_new_resolver(
    "data_dir", lambda: os.environ.get("MSBP_DATA_DIR") or str(ROOT / "data"), replace=True
)
# a name of the user's is a part of a folder's name, never a way to another place
OmegaConf.register_new_resolver("word", lambda name: re.sub(r"[^\w.-]", "_", str(name)), replace=True)
# cached, so that all jobs of one sweep agree on its folder; two runs of the same second still differ
OmegaConf.register_new_resolver("unique", lambda: secrets.token_hex(3), use_cache=True, replace=True)


def compose(overrides: Sequence[str] = (), config: str = "train") -> DictConfig:
    """The configuration that `python -m src.CONFIG OVERRIDES` would run with; also within a Hydra main."""
    application, GlobalHydra.instance().hydra = GlobalHydra.instance().hydra, None
    try:
        with initialize_config_dir(CONF, version_base="1.3"):
            return hydra_compose(config, overrides=list(overrides))
    finally:
        GlobalHydra.instance().hydra = application


def check_keys(cfg: DictConfig, config: str, groups: Collection[str] = ()) -> None:
    """ValueError for a key that neither conf/CONFIG.yaml nor a group adds: nothing would read it."""
    known = {*map(str, OmegaConf.load(f"{CONF}/{config}.yaml")), *groups} - {"defaults", "hydra"}
    for key in map(str, cfg):
        if key not in known:
            meant = " or ".join(places(cfg, key))
            raise ValueError(
                f"there is no key {key}; "
                + (f"was {meant} meant?" if meant else f"want {', '.join(sorted(known))}")
            )


def places(node: Any, name: str, above: str = "") -> Iterator[str]:
    """The dotted keys below a node that end in name."""
    for key in map(str, node) if OmegaConf.is_dict(node) else ():
        if above and key == name:
            yield above + key
        if not OmegaConf.is_missing(node, key) and not OmegaConf.is_interpolation(node, key):
            yield from places(node[key], name, f"{above}{key}.")


def described(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, bytes]:
    """What a run keeps of its command line, by file name; bytes of a foreign locale stay what they were."""
    texts = {"config.yaml": OmegaConf.to_yaml(cfg), "overrides.yaml": OmegaConf.to_yaml(list(overrides))}
    return {name: text.encode("utf-8", "surrogateescape") for name, text in texts.items()}


def folder(key: str, value: Any) -> Path:
    """The folder that a key of the configuration names; ValueError if that is no text."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(
            f"{key} must be the name of a folder, got {value!r}; leave it out for the project's own"
        )
    return Path(value)


OmegaConf.register_new_resolver("folder", lambda key, value: str(folder(key, value)), replace=True)


def report_command(outputs: str) -> str:
    """What renders the runs in outputs; a folder of the user's is quoted for Hydra and for the shell."""
    place = "" if outputs == str(ROOT / "outputs") else shlex.quote(f'paths.outputs="{outputs}"')
    return f"python -m src.report {place}".rstrip()


def start(main: Callable[[], None]) -> None:
    """Run a Hydra main; say an error in one paragraph (HYDRA_FULL_ERROR=1 shows all of it)."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # γ must not crash a C locale
    if "-m" in sys.argv:  # argparse takes it before or after all overrides, not between them
        sys.argv.remove("-m")
        sys.argv.insert(1, "-m")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # ends like Ctrl-C, so that nothing half made is left
            signal.signal(number, signal.default_int_handler)
    full = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then hands errors on instead of printing them its own way
    try:
        main()
    except KeyboardInterrupt as interrupt:
        print(f"interrupted; {str(interrupt) or 'nothing was left half made'}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # who reads has enough, as head has
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if full:
            raise
        print(f"error: {explain(error)}", file=sys.stderr)
        sys.exit(1)


def explain(error: BaseException) -> str:
    """One paragraph: what the error says, and a hint where the command line was probably misread.

    Errors that are worded for the user are of the foreseen types; others are told with their place.
    """
    text = str(error).partition("\nConfig search path:")[0]
    refused = re.match(r"ValueError raised while resolving interpolation: (.*)\n    full_key: ", text)
    text = refused[1] if refused else text
    text = re.sub(r"\nTo append to your config use .*", "", text)  # what is appended is refused, too
    first = text.partition("\n")[0]
    if isinstance(error, MemoryError) or "allocate memory" in text or "out of memory" in text:
        return f"not enough memory: a smaller model or batch needs less ({first})"
    if not isinstance(error, FORESEEN):
        return f"{type(error).__name__}: {text}\n{place(error)}; HYDRA_FULL_ERROR=1 shows how it came to that"
    if isinstance(error, HydraException) and error.__cause__:
        text = f"{text}\n{error.__cause__}"
    return text + hint(text)


def place(error: BaseException) -> str:
    """Where in this project an error came up, or where else if none of its lines took part."""
    frames = traceback.extract_tb(error.__traceback__)
    code = (ROOT / "src", ROOT / "scripts")
    own = [frame for frame in frames if any(Path(frame.filename).is_relative_to(part) for part in code)]
    last = (own or frames)[-1]
    return f"unforeseen, in {last.filename}, line {last.lineno}, {last.name}"


def hint(text: str) -> str:
    """How to write a sweep, or a value that Hydra's grammar would take apart."""
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
