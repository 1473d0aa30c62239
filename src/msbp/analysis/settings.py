"""What a row of a table asks for: its overrides, composed as `python -m src.train` composes them."""

import copy
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from ..record import signature

VALUE = re.compile(r"\w+(\.\w+)+=")  # of a key, not the choice of a file
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
    """From overrides, task=... first, to their setting; None where conf has no such task yet.

    Composing is slow, and a grid has many cells: files are composed once for all values that follow.
    """
    composed = cache(compose)

    @cache
    def settled(overrides: tuple[str, ...]) -> Setting | None:
        task = overrides[0].removeprefix("task=")
        if not (conf / "task" / f"{task}.yaml").is_file():
            return None
        values = [word for word in overrides if VALUE.match(word)]
        cfg = copy.deepcopy(composed(tuple(word for word in overrides if word not in values)))
        for value in OverridesParser.create().parse_overrides(values):
            OmegaConf.update(cfg, value.key_or_group, value.value(), merge=True)  # as Hydra does, and last
        return Setting(signature(cfg), cfg.method.get("r"), cfg.method.get("gamma"), cfg.model.get("hidden"))

    return lambda overrides: settled(tuple(overrides))


def command(shared: Sequence[str], row: Sequence[str], seeds: int) -> str:
    """The shell command that runs what a row lacks; seeds that are on record are not run again."""
    return shlex.join(["python", "-m", "src.train", "-m", *shared, f"seed=range(0,{seeds})", *row])
