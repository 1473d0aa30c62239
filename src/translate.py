"""Translate a text file: python -m src.translate checkpoint=RUN input=FILE output=FILE"""

import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Any

import hydra
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch import nn

from msbp import machine
from msbp.atomic import written_whole
from msbp.checkpoint import read, unpacked, whole
from msbp.launch import CONF, start
from msbp.parts import build
from msbp.tasks.parallel import read_lines
from msbp.tasks.translation import SOURCE_WORDS, TARGET_WORDS, Translation
from msbp.tasks.vocabulary import Words

CONFIG, WEIGHTS = "config.yaml", "weights.pt"
FILES = (CONFIG, WEIGHTS, SOURCE_WORDS, TARGET_WORDS)
REMEDY = "name the folder of a whole run of translation, its weights.pt, or a checkpoint"


@dataclass
class Trained:
    """A translator as a run left it: its task, its model and the words of both sides."""

    task: Translation
    model: nn.Module
    source: Words
    target: Words


@hydra.main(config_path=CONF, config_name="translate", version_base="1.3")
def main(cfg: DictConfig) -> None:
    translate(cfg)


def translate(cfg: DictConfig) -> None:
    """Write a line of translation for each line of the input, when all are done."""
    output, lines = place(cfg), read_lines(named(cfg, "input"))
    trained = load(named(cfg, "checkpoint"))
    device = machine.device_of(cfg.device, "device")
    machine.set_up(cfg.threads, device)
    task = replace(trained.task, **{key: cfg[key] for key in ("beam", "alpha") if cfg[key] is not None})
    since = time.perf_counter()
    with written_whole(output) as file:  # before the work: it fails at once where nothing can be written
        found = task.translate(trained.model.to(device).eval(), lines, trained.source, trained.target)
        file.writelines(f"{line}\n".encode() for line in found)
    print(f"{len(lines)} lines in {time.perf_counter() - since:.1f} s: {output}")
    if any(lines) and not any(found):
        print("all of them are empty: the model has learned nothing to say yet", file=sys.stderr)


def named(cfg: DictConfig, key: str) -> Path:
    """The path that a key names; ValueError if that is nothing."""
    if cfg[key] is None or not str(cfg[key]).strip():
        raise ValueError(f"{key}= must name a file, got {cfg[key]!r}")
    return Path(str(cfg[key]))


def place(cfg: DictConfig) -> Path:
    """Where to write; OSError or ValueError if no file can be there, or if it would replace what is read."""
    output = named(cfg, "output")
    if output.exists() and not output.is_file():
        raise ValueError(f"output= must name a file, and {output} is a folder or a device")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {output.parent} for output={output}: make it first")
    for key in ("input", "checkpoint"):
        path = named(cfg, key)
        if output.exists() and path.exists() and output.samefile(path):
            raise ValueError(f"output= and {key}= are one file, {output}: name another output")
    return output


def load(path: Path) -> Trained:
    """From the folder of a run, its weights.pt, or a checkpoint; OSError or ValueError says what is wrong."""
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}: {REMEDY}")
    folder = path.parent if path.name == WEIGHTS else path
    if folder.is_dir():
        files = {name: folder / name for name in FILES}
        return restored({name: content(file) for name, file in files.items()}, files)
    state = read(path, REMEDY)
    with sound(path):
        parts = {CONFIG: OmegaConf.create(state["settings"]), WEIGHTS: state["model"], **state["keep"]}
    return restored(parts, dict.fromkeys(FILES, path))


def sound(path: Path) -> AbstractContextManager[None]:
    """What fails within is the fault of a file of the run."""
    return whole(path, REMEDY, "part of a run of translation")


def content(file: Path) -> Any:
    """What a file in the folder of a run holds. ValueError if it is absent or damaged."""
    if not file.exists():
        raise ValueError(f"there is no {file}, which a finished run of translation has: {REMEDY}")
    with sound(file):
        if file.name == WEIGHTS:
            return unpacked(file)
        text = file.read_bytes().decode()
        if not text.endswith("\n"):
            raise ValueError("its last line has no end")
        return OmegaConf.create(text) if file.name == CONFIG else text.split("\n")[:-1]


def restored(parts: Mapping[str, Any], files: Mapping[str, Path]) -> Trained:
    """The translator that parts make, which come from files; ValueError names those that are damaged."""
    with sound(files[CONFIG]):
        task, config = translation(parts[CONFIG]), parts[CONFIG]
    words = []
    for name in (SOURCE_WORDS, TARGET_WORDS):
        with sound(files[name]):
            words.append(Words(parts[name]))
    source, target = words
    with sound(files[CONFIG]):
        model = build(config.model, source_words=len(source), target_words=len(target))
    try:
        model.load_state_dict(parts[WEIGHTS])
    except Exception as error:
        first = str(error).partition("\n\t")[2].partition("\n")[0]  # torch tells of all tensors
        reason = shorten(first or str(error), 200, placeholder=" ...")
        places = ", ".join(dict.fromkeys(map(str, files.values())))
        raise ValueError(f"{places} do not fit together ({reason}): {REMEDY}") from error
    return Trained(task, model, source, target)


def translation(config: Any) -> Translation:
    """The task of a run's configuration; ValueError if that is cut, or has another task."""
    # method comes last: where it is, nothing before it is cut away
    if not OmegaConf.is_dict(config) or not {"task", "model", "method"} <= config.keys():
        raise ValueError("it has not all of task, model and method")
    try:  # not build: a checkpoint says nothing of where data lie, and none are read
        task = instantiate(config.task, _convert_="all")
    except InstantiationException as error:
        raise ValueError(str(error.__cause__ or error)) from error
    if not isinstance(task, Translation):
        raise ValueError("its task is no translation")
    return task


if __name__ == "__main__":
    start(main)
