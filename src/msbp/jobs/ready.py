"""Whether runs could read their data, tried in a process of its own: it takes time, memory and torch."""

import multiprocessing
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from ..config import build, compose
from .tied import tie


def unready(runs: Iterable[Sequence[str]]) -> dict[Sequence[str], str]:
    """Those of these overrides whose data cannot be read, and why not; what is free is fetched first."""
    every = list(runs)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, initializer=tie, initargs=(os.getpid(),)) as pool:
        return {overrides: why for overrides, why in zip(every, pool.map(lack, every), strict=True) if why}


def lack(overrides: Sequence[str]) -> str:
    """What the data of a run lack, in a line; nothing if they are there and whole."""
    try:
        read(overrides)
    except (OSError, ValueError) as error:
        return str(error).partition("\n")[0] or repr(error)
    return ""


def read(overrides: Sequence[str]) -> Any:
    """The data of a run, as its task reads them. OSError or ValueError name what is missing or malformed."""
    cfg = compose(overrides)
    return build(cfg.task).splits(cfg.seed)
