"""Translate a text file: python -m src.translate checkpoint=RUN input=FILE output=FILE"""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import hydra
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from msbp import machine
from msbp.atomic import written_whole
from msbp.checkpoint import read
from msbp.launch import CONF, start
from msbp.parts import build
from msbp.tasks.parallel import read_lines
from msbp.tasks.translation import SOURCE_WORDS, TARGET_WORDS
from msbp.tasks.vocabulary import Words


@dataclass
class Trained:
    """A model's weights, the configuration of its run, and lines that the run kept, by file name."""

    config: DictConfig
    weights: Mapping[str, Any]
    kept: Mapping[str, list[str]]


@hydra.main(config_path=CONF, config_name="translate", version_base="1.3")
def main(cfg: DictConfig) -> None:
    translate(cfg)


def translate(cfg: DictConfig) -> None:
    """Write a line of translation for each line of the input, when all are done."""
    lines, trained = read_lines(Path(cfg.input)), load(Path(cfg.checkpoint))
    device = machine.device_of(cfg.device)
    machine.set_up(cfg.threads, device)
    changes = {key: cfg[key] for key in ("beam", "alpha") if cfg[key] is not None}
    # not build: a checkpoint says nothing of where data lie, and none are read
    task = replace(instantiate(trained.config.task, _convert_="all"), **changes)
    source, target = (Words(trained.kept[name]) for name in (SOURCE_WORDS, TARGET_WORDS))
    model = build(trained.config.model, source_words=len(source), target_words=len(target))
    model.load_state_dict(trained.weights)
    since = time.perf_counter()
    found = task.translate(model.to(device).eval(), lines, source, target)
    with written_whole(Path(cfg.output)) as file:
        file.writelines(f"{line}\n".encode() for line in found)
    print(f"{len(lines)} lines in {time.perf_counter() - since:.1f} s: {cfg.output}")
    if any(lines) and not any(found):
        print("all of them are empty: the model has learned nothing to say yet", file=sys.stderr)


def load(path: Path) -> Trained:
    """From the folder of a run, its weights.pt, or a checkpoint. Raises OSError or ValueError."""
    folder = path.parent if path.name == "weights.pt" else path
    if not path.exists():
        raise FileNotFoundError(
            f"there is no {path}; checkpoint= takes the folder of a run of translation, its weights.pt, or a "
            "checkpoint"
        )
    if folder.is_dir():
        files = {name: folder / name for name in (SOURCE_WORDS, TARGET_WORDS)}
        kept = {
            name: file.read_bytes().decode().split("\n")[:-1] for name, file in files.items() if file.exists()
        }
        config = OmegaConf.load(folder / "config.yaml")
        weights = torch.load(folder / "weights.pt", map_location="cpu", weights_only=True)
    else:
        state = read(path)
        config, weights, kept = OmegaConf.create(state["settings"]), state["model"], state["keep"]
    if not {SOURCE_WORDS, TARGET_WORDS} <= kept.keys():
        raise ValueError(
            f"{path} has no vocabularies: it is no finished run, or no checkpoint, of translation"
        )
    assert isinstance(config, DictConfig)
    return Trained(config, weights, kept)


if __name__ == "__main__":
    start(main)
