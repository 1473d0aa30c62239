"""A translator as a run of training left it, read back from the run's folder or from a checkpoint."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import nn

from .config import build
from .tasks.translation import SOURCE_WORDS, TARGET_WORDS, Translation
from .tasks.vocabulary import Words
from .training.checkpoint import read, unpacked, whole

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


def load(path: Path) -> Trained:
    """From the folder of a run, its weights.pt, or a checkpoint; OSError or ValueError says what is wrong."""
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}: {REMEDY}")
    files = files_of(path)
    if files[CONFIG] != path:
        return restored({name: content(file) for name, file in files.items()}, files)
    state = read(path, REMEDY)
    with sound(path):
        parts = {CONFIG: OmegaConf.create(state["settings"]), WEIGHTS: state["model"], **state["keep"]}
    return restored(parts, files)


def files_of(path: Path) -> dict[str, Path]:
    """The files that `load` reads, by the names that they have in the folder of a run."""
    folder = path.parent if path.name == WEIGHTS else path
    return {name: folder / name for name in FILES} if folder.is_dir() else dict.fromkeys(FILES, path)


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
