"""A translator of a training run, restored from the run's folder or from a checkpoint.

Others may have changed the stored configuration, so nothing but known classes is built. A class is known by
its name: configurations of earlier versions, which name modules that have moved, build today's class.
"""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from textwrap import shorten

from omegaconf import DictConfig, OmegaConf
from torch import nn

from ...config import build
from ...files import Fields
from ...models.seq2seq import Seq2Seq
from ...training.checkpoint import read, unpacked, whole
from .encoding import Words
from .task import SOURCE_WORDS, TARGET_WORDS, Bleu, Translation

KNOWN = {part.__name__: part for part in (Translation, Bleu, Seq2Seq)}
PARTS = "task", "model", "method"  # method is last: a configuration that has it is not truncated
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


def trusted(config: object, allow: Sequence[Path] = ()) -> DictConfig:
    """Return the task, without its corpus, and the model of a stored configuration, resolved within itself.

    All classes that they name are today's: the project's own, or below the folders in `allow`. ValueError for
    other classes, for interpolations that call a resolver, and for a configuration that is cut.
    """
    if not isinstance(config, Mapping) or not set(PARTS) <= config.keys():
        raise ValueError(f"it has not all of {', '.join(PARTS)}")
    tree = {key: config[key] if key in PARTS[:2] else closed(config[key]) for key in config}
    if isinstance(tree["task"], Mapping):
        tree["task"] = {**tree["task"], "corpus": None}  # translating reads no corpus
    for key in PARTS[:2]:
        for path, value in leaves(tree[key], key):
            if calls_resolver(value):
                raise ValueError(f"{path}={value} reads something outside of the configuration")
    resolved = OmegaConf.create(tree)
    parts = {key: OmegaConf.to_container(resolved[key], resolve=True) for key in PARTS[:2]}
    for key, part in parts.items():
        if not isinstance(part, dict) or "_target_" not in part:
            raise ValueError(f"{key} has no _target_")
    return OmegaConf.create({key: current(part, key, allow) for key, part in parts.items()})


def leaves(node: object, key: str) -> Iterator[tuple[str, object]]:
    """Yield all values below a node of plain data by dotted key."""
    if isinstance(node, Mapping):
        for name, value in node.items():
            yield from leaves(value, f"{key}.{name}")
    elif isinstance(node, list):
        for i, value in enumerate(node):
            yield from leaves(value, f"{key}[{i}]")
    else:
        yield key, node


def calls_resolver(value: object) -> bool:
    """Return whether a value may call a resolver: an interpolation of a key has no colon."""
    return isinstance(value, str) and ":" in value.partition("${")[2]


def closed(node: object) -> object:
    """Return a copy of a node whose values that may call a resolver are None."""
    if isinstance(node, Mapping):
        return {name: closed(value) for name, value in node.items()}
    if isinstance(node, list):
        return [closed(value) for value in node]
    return None if calls_resolver(node) else node


def current(node: object, key: str, allow: Sequence[Path]) -> object:
    """Return a copy of a node of plain data whose `_target_`s are trusted and up to date."""
    if isinstance(node, list):
        return [current(value, f"{key}[{i}]", allow) for i, value in enumerate(node)]
    if not isinstance(node, Mapping):
        return node
    copy = {name: current(value, f"{key}.{name}", allow) for name, value in node.items()}
    for name in copy:
        if str(name).startswith("_") and name != "_target_":
            raise ValueError(f"{key}.{name} is not a key of a stored part")
    if "_target_" in copy:
        copy["_target_"] = trusted_class(str(copy["_target_"]), f"{key}._target_", allow)
    return copy


def trusted_class(target: str, key: str, allow: Sequence[Path]) -> str:
    """Return the dotted path of the class that a stored one means today.

    ValueError if it is not to be trusted.
    """
    module, _, name = target.rpartition(".")
    if module.startswith("msbp.") and name in KNOWN:
        return f"{KNOWN[name].__module__}.{name}"
    if lies_below(module, allow):
        kind = getattr(importlib.import_module(module), name, None)
        if isinstance(kind, type) and lies_below(kind.__module__, allow):
            return target
    raise ValueError(
        f"{key}={target} is none of the classes that a translator consists of, {', '.join(KNOWN)}; if you "
        "trust it, name the folder of its module in allow="
    )


def lies_below(module: str, folders: Sequence[Path]) -> bool:
    """Return whether a module and its parent packages, none of which is imported, are files below folders."""
    names, path = module.split("."), None
    for i in range(len(names)):
        spec = PathFinder.find_spec(".".join(names[: i + 1]), path)
        if spec is None:
            return False
        path = spec.submodule_search_locations
        origin = Path(spec.origin).resolve() if spec.origin else None
        if origin and not any(origin.is_relative_to(folder.resolve()) for folder in folders):
            return False
    return bool(spec and spec.origin)
