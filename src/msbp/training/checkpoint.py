"""Checkpoints: all that a run needs to resume bit for bit, in one file that is whole or absent."""

import io
import math
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from ..files import Fields, written_whole
from ..record import different, signature
from ..sparse import memories, running_states

FORMAT = 1
OWN = "delete it to start this run over, or replace it by a whole one"  # what to do about a damaged file
ANOTHER = "leave out resume= to start from scratch, or name a whole checkpoint"


@dataclass
class Checkpoint:
    """State of one request on disk, with its configuration; that of another request is refused.

    conditions: returns what times depend on besides the configuration, at each save.
    resume: file to start from as long as path does not exist; trainer.epochs may be more than its own.
    data_digest: that of the data; of other data nothing is resumed. Empty if it is not known.
    """

    path: Path
    settings: Fields
    conditions: Callable[[], Fields] = dict
    resume: Path | None = None
    data_digest: str = ""
    earlier: list[Fields] = field(default_factory=list, init=False)  # conditions before a resume

    def save(self, state: Fields) -> None:
        """Replace the checkpoint; a kill or a full disk leaves the one before. OSError names the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        own = {"format": FORMAT, "settings": self.settings, "data_digest": self.data_digest}
        put({**own, "conditions": self.met(), **state}, self.path)

    def load(self) -> Fields | None:
        """Return the saved state, None if there is none; ValueError if it is damaged or another request's."""
        path = self._source()
        return None if path is None else self._checked(path)

    def check_resume(self) -> None:
        """Refuse the file to start from as `load` does, also where nothing is left to start."""
        if self.resume is not None:
            self._checked(existing(self.resume))

    def _checked(self, path: Path) -> Fields:
        """Return the state in a file; ValueError if it is damaged or another request's."""
        remedy = self._remedy(path)
        state = read(path, remedy)
        with whole(path, remedy):
            theirs, digest = state["settings"], state.get("data_digest", "")
            ours = self._with_epochs_of(theirs) if path == self.resume else self.settings
            same = self._key(theirs) == self._key(ours)
            self.earlier = [dict(conditions) for conditions in state["conditions"]]
        if not same:
            keys = different(ours, theirs) or [f"seed: {theirs.get('seed')}"]
            raise ValueError(
                f"{path} is the checkpoint of another run ({'; '.join(keys)}): resume it with its own "
                "settings, or move it away to start this run from scratch"
            )
        if digest and self.data_digest and digest != self.data_digest:
            raise ValueError(
                f"{path} is of other data (digest {digest}, not {self.data_digest}): point paths.data at its "
                "own, or move it away to start this run from scratch"
            )
        return state

    def _with_epochs_of(self, theirs: Fields) -> Fields:
        """Return the settings with the fewer epochs of a checkpoint that is trained on."""
        trainer, epochs = dict(self.settings.get("trainer", {})), theirs.get("trainer", {}).get("epochs")
        if isinstance(epochs, int) and epochs < trainer.get("epochs", 0):
            return {**self.settings, "trainer": trainer | {"epochs": epochs}}
        return self.settings

    def restore(self, take: Callable[[Fields], None]) -> bool:
        """Call take with the saved state; return False if there is none. ValueError if it is not whole."""
        state = self.load()
        if state is None:
            return False
        path = self._source()
        with whole(path, self._remedy(path)):
            take(state)
        return True

    def met(self) -> list[Fields]:
        """Return the conditions of each part of the run, between resumes, the present one last."""
        return [*self.earlier, self.conditions()]

    def disturbed(self) -> list[str]:
        """Return why the times of this run do not compare; nothing if all its parts had equal conditions."""
        met = self.met()
        changed = {key for conditions in met for key in conditions if conditions[key] != met[-1].get(key)}
        reasons = [
            "it went on with other threads" if key == "threads" else f"it went on with another {key}"
            for key in sorted(changed - {"alone"})
        ]
        alone = {conditions.get("alone") for conditions in met}
        if False in alone:
            reasons.append("it ran while another run used the same outputs folder")
        elif alone != {True}:
            reasons.append("its outputs folder has no file locks, so that other runs are not seen")
        return reasons

    def keep(self, folder: Path) -> None:
        """Copy the checkpoint to a folder: this run's, or the finished one that it resumed."""
        with (
            open(self._source() or self.path, "rb") as source,
            written_whole(folder / "checkpoint.pt") as copy,
        ):
            shutil.copyfileobj(source, copy)

    def close(self) -> None:
        """Delete the checkpoint; its run has a record."""
        self.path.unlink(missing_ok=True)

    def _source(self) -> Path | None:
        if self.path.exists():
            return self.path
        return self.resume and existing(self.resume)

    def _remedy(self, path: Path | None) -> str:
        return OWN if path == self.path else ANOTHER

    @staticmethod
    def _key(settings: Fields) -> tuple[str, int | None]:
        return signature(settings), settings.get("seed")


def existing(resume: Path) -> Path:
    """Return the file to start from; FileNotFoundError if there is none."""
    if not resume.is_file():
        what = "a folder, not a" if resume.is_dir() else "no"
        raise FileNotFoundError(
            f"there is {what} checkpoint {resume}; leave out resume= to start from scratch"
        )
    return resume


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the state_dict, which the plain model of the same sizes loads too."""
    put(model.state_dict(), path)


def put(content: Fields, path: Path) -> None:
    """Write content whole or not at all; OSError names the file."""
    packed = io.BytesIO()  # torch's own writer hides the reason of a failure
    torch.save(content, packed)
    with written_whole(path) as file:
        file.write(packed.getbuffer())


def read(path: Path, remedy: str = "name a whole one") -> Fields:
    """Return the content of a checkpoint file, without running code in it; ValueError if it is none."""
    with whole(path, remedy):
        state = unpacked(path)
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise ValueError(f"{path} is not a checkpoint of this program, format {FORMAT}: {remedy}")
    return state


def unpacked(path: Path) -> object:
    """Return what `put` wrote, without running code in it; any error if it is damaged."""
    content = io.BytesIO(path.read_bytes())  # so that an OSError is the disk's, not a damaged archive's
    with zipfile.ZipFile(content) as parts:  # torch does not check the sums
        broken = parts.testzip()
    if broken:
        raise ValueError(f"its part {broken} is altered")
    content.seek(0)
    return torch.load(content, map_location="cpu", weights_only=True)


@contextmanager
def whole(path: Path | None, remedy: str, what: str = "checkpoint") -> Iterator[None]:
    """Raise errors of the block as ValueError that names path, as damaged, and the remedy.

    A cut or foreign file, or one with other fields, fails in many ways inside torch, pickle and zipfile.
    """
    try:
        yield
    except (OSError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0]
        reason = f"no {reason}" if isinstance(error, KeyError) else reason
        raise ValueError(f"{path} is no whole {what} ({reason}): {remedy}") from error


def drop_finished(path: Path, epochs: int) -> None:
    """Delete a checkpoint after the last epoch: there is nothing to resume."""
    with suppress(OSError, ValueError):
        state = read(path)
        with whole(path, ""):
            finished = state["state"]["epoch"] >= epochs
        if finished:
            path.unlink()


def capture(model: nn.Module, optimizer: torch.optim.Optimizer) -> Fields:
    """Return weights, gradient memories and what else of layers moves on, optimizer and random state."""
    return {
        "model": model.state_dict(),
        "memories": {name: memory.m for name, memory in memories(model).items()},
        "running": {name: each.state for name, each in running_states(model).items()},
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
        "cuda_rng": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
    }


def restore(
    state: Fields, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int | None = None
) -> None:
    """Set what `capture` returned; ValueError names the field that cannot be of a run of so many steps."""
    for key in not_finite({part: state[part] for part in ("model", "memories", "optimizer")}):
        raise ValueError(f"{key} is not finite")
    if steps is not None:
        _check_optimizer(state["optimizer"], optimizer, steps)
    model.load_state_dict(state["model"])
    for name, memory in memories(model).items():
        memory.load(state["memories"][name])
    for name, each in running_states(model).items():
        each.load(state["running"][name])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    if state["cuda_rng"]:
        torch.cuda.set_rng_state_all(state["cuda_rng"])


def not_finite(tree: object, key: str = "") -> Iterator[str]:
    """Yield the dotted keys of numbers and tensors in nested containers that are not all finite."""
    if isinstance(tree, Mapping):
        for name, value in tree.items():
            yield from not_finite(value, f"{key}.{name}" if key else str(name))
    elif isinstance(tree, list | tuple):
        for number, value in enumerate(tree):
            yield from not_finite(value, f"{key}[{number}]")
    elif isinstance(tree, float) and not math.isfinite(tree):
        yield key
    elif isinstance(tree, Tensor) and tree.is_floating_point() and not torch.isfinite(tree).all():
        yield key


def _check_optimizer(kept: Fields, optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Raise ValueError for shapes or counts of steps that would lead a kernel out of its arrays."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for index, state in kept["state"].items():
        shape = parameters[index].shape
        shapes = dict.fromkeys(("exp_avg", "exp_avg_sq", "momentum_buffer"), shape) | {"last_step": shape[:1]}
        for name, value in state.items():
            key, counts = f"optimizer.state[{index}].{name}", torch.as_tensor(value)
            if isinstance(value, Tensor) and value.shape != shapes.get(name, value.shape):
                raise ValueError(f"{key} has the shape {tuple(value.shape)}, its parameter {tuple(shape)}")
            counted = name == "step" or not counts.is_floating_point()
            if counted and counts.numel() and not 0 <= counts.min() <= counts.max() <= steps:
                raise ValueError(f"{key} is not within the {steps} steps of the run")
