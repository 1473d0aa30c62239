"""Translate a text file: python -m src.translate checkpoint=RUN input=FILE output=FILE"""

import sys
import time
from dataclasses import replace
from pathlib import Path

import hydra
from omegaconf import DictConfig, OmegaConf

from msbp import machine
from msbp.files import written_whole
from msbp.launch import CONF, check_keys, start
from msbp.tasks.parallel import read_lines
from msbp.trained import files_of, load


@hydra.main(config_path=CONF, config_name="translate", version_base="1.3")
def main(cfg: DictConfig) -> None:
    check_keys(cfg, "translate")
    translate(cfg)


def translate(cfg: DictConfig) -> None:
    """Write a line of translation for each line of the input, when all are done."""
    output, lines = place(cfg), read_lines(named(cfg, "input"))
    trained = load(named(cfg, "checkpoint"))
    device = machine.device_of(cfg.device, "device")
    machine.set_up(cfg.threads, device)
    try:
        task = replace(trained.task, **{key: cfg[key] for key in ("beam", "alpha") if cfg[key] is not None})
    except ValueError as error:
        raise ValueError(str(error).removeprefix("task.")) from error  # here the keys are its own
    since = time.perf_counter()
    with written_whole(output) as file:  # before the work: it fails at once where nothing can be written
        found = task.translate(trained.model.to(device).eval(), lines, trained.source, trained.target)
        file.writelines(f"{line}\n".encode() for line in found)
    print(f"{len(lines)} lines in {time.perf_counter() - since:.1f} s: {output}")
    if any(lines) and not any(found):
        print("all of them are empty: the model has learned nothing to say yet", file=sys.stderr)


def named(cfg: DictConfig, key: str) -> Path:
    """The path that a key names; ValueError if that is nothing."""
    if OmegaConf.is_missing(cfg, key):
        raise ValueError(f"{key}= is missing: python -m src.translate checkpoint=RUN input=FILE output=FILE")
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
    read = {"input": [named(cfg, "input")], "checkpoint": files_of(named(cfg, "checkpoint")).values()}
    for key, paths in read.items():
        if output.exists() and any(path.exists() and output.samefile(path) for path in paths):
            raise ValueError(f"output={output} would replace what {key}= reads: name another output")
    return output


if __name__ == "__main__":
    start(main)
