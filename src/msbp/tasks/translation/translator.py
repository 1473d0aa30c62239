"""A translator of a training run, restored from the run's folder or from a checkpoint."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

from omegaconf import OmegaConf
from torch import nn

from ...config import build
from ...files import Fields
from ...training.checkpoint import read, unpacked, whole
from .stored import trusted
from .task import SOURCE_WORDS, TARGET_WORDS, Translation
from .vocabulary import Words

CONFIG, WEIGHTS = "config.yaml", "weights.pt"
FILES = (CONFIG, WEIGHTS, SOURCE_WORDS, TARGET_WORDS)
REMEDY = "name the folder of a whole run of translation, its weights.pt, or a checkpoint"


@dataclass
class Translator:
    """The task and the model of a run, and the words of both sides."""

    task: Translation
    model: nn.Module
    source: Words
    target: Words


def load(path: Path, allow: Sequence[Path] = ()) -> Translator:
    """Restore from the folder of a run, its weights.pt, or a checkpoint; OSError or ValueError name the file.

    allow: folders whose classes the run may name besides the project's own.
    """
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}: {REMEDY}")
    files = files_of(path)
    if files[CONFIG] != path:
        return restored({name: content(file) for name, file in files.items()}, files, allow)
    state = read(path, REMEDY)
    with sound(path):
        parts = {CONFIG: state["settings"], WEIGHTS: state["model"], **state["keep"]}
    return restored(parts, files, allow)


def files_of(path: Path) -> dict[str, Path]:
    """Return the files that `load` reads, by their names in the folder of a run."""
    folder = path.parent if path.name == WEIGHTS else path
    return {name: folder / name for name in FILES} if folder.is_dir() else dict.fromkeys(FILES, path)


def sound(path: Path) -> AbstractContextManager[None]:
    """Turn an error of the block into a ValueError that blames a file of the run."""
    return whole(path, REMEDY, "part of a run of translation")


def content(file: Path) -> object:
    """Return the content of a file in the folder of a run. ValueError if it is absent or damaged."""
    if not file.exists():
        raise ValueError(f"there is no {file}, which a finished run of translation has: {REMEDY}")
    with sound(file):
        if file.name == WEIGHTS:
            return unpacked(file)
        text = file.read_bytes().decode()
        if not text.endswith("\n"):
            raise ValueError("its last line has no end")
        if file.name == CONFIG:
            return OmegaConf.to_container(OmegaConf.create(text), resolve=False)
        return text.split("\n")[:-1]


def restored(parts: Fields, files: Mapping[str, Path], allow: Sequence[Path]) -> Translator:
    """Return the translator of the contents of files; ValueError names those that are damaged."""
    with sound(files[CONFIG]):
        config = trusted(parts[CONFIG], allow)
        task = build(config.task)
        if not isinstance(task, Translation):
            raise ValueError(f"its task is {type(task).__name__}, not Translation")
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
        first = str(error).partition("\n\t")[2].partition("\n")[0]  # torch lists all tensors
        reason = shorten(first or str(error), 200, placeholder=" ...")
        paths = ", ".join(dict.fromkeys(map(str, files.values())))
        raise ValueError(f"{paths} do not fit together ({reason}): {REMEDY}") from error
    return Translator(task, model, source, target)
