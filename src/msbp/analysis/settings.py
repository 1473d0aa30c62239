"""What a row of a table asks for: its overrides, composed as `python -m src.train` composes them."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from omegaconf import DictConfig

from ..record import signature

Compose = Callable[[Sequence[str]], DictConfig]


@dataclass(frozen=True)
class Setting:
    """The signature that selects a row's records, and the paper's letters for it; None where it has none."""

    signature: str
    r: float | None = None
    gamma: float | None = None
    hidden: int | None = None


Settle = Callable[[Sequence[str]], Setting | None]


def settings_from(conf: Path, compose: Compose) -> Settle:
    """From overrides, task=... first, to their setting; None where conf has no such task yet."""

    @cache  # rows of several tables and cells of a grid share settings, and composing is slow
    def settled(overrides: tuple[str, ...]) -> Setting | None:
        task = overrides[0].removeprefix("task=")
        if not (conf / "task" / f"{task}.yaml").is_file():
            return None
        cfg = compose(overrides)
        return Setting(signature(cfg), cfg.method.get("r"), cfg.method.get("gamma"), cfg.model.get("hidden"))

    return lambda overrides: settled(tuple(overrides))


def command(shared: Sequence[str], row: Sequence[str], seeds: int) -> str:
    """The shell command that runs what a row lacks; seeds that are on record are not run again."""
    return shlex.join(["python", "-m", "src.train", "-m", *shared, f"seed=range(0,{seeds})", *row])
