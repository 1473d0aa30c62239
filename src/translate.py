"""Translate a text file: python -m src.translate checkpoint=RUN input=FILE output=FILE"""

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import hydra
from omegaconf import DictConfig, OmegaConf
from pydantic import Field, PositiveInt

from msbp.cli import start
from msbp.config import CONF, Name, Options
from msbp.files import written_whole
from msbp.tasks.translation.beam_search import Alpha, Width
from msbp.tasks.translation.bitext import read_lines
from msbp.tasks.translation.translator import files_of, load
from msbp.training import machine

PATHS = "checkpoint", "input", "output"


class TranslateOptions(Options):
    """Options of `python -m src.translate`."""

    checkpoint: Name
    input: Name
    output: Name
    beam: Width | None
    alpha: Alpha | None
    threads: PositiveInt
    device: Literal["cpu", "cuda", "auto"]
    allow: Annotated[
        list[Name],
        Field(description="brackets make a list, as in: allow=[my_models]", default_factory=list),
    ]


@hydra.main(config_path=CONF, config_name="translate", version_base="1.3")
def main(cfg: DictConfig) -> None:
    translate(cfg)


def translate(cfg: DictConfig) -> None:
    """Write a line of translation for each line of the input, when all are done."""
    options = options_of(cfg)
    output, lines = output_of(options), read_lines(Path(options.input))
    translator = load(Path(options.checkpoint), [Path(folder) for folder in options.allow])
    device = machine.device_of(options.device, "device")
    machine.set_up(options.threads, device)
    task = translator.task
    task = replace(
        task,
        beam=task.beam if options.beam is None else options.beam,
        alpha=task.alpha if options.alpha is None else options.alpha,
    )
    model, source, target = translator.model.to(device).eval(), translator.source, translator.target
    since = time.perf_counter()
    with written_whole(output) as file:  # before the work: it fails at once where nothing can be written
        translations = task.translate(model, lines, source, target)
        file.writelines(f"{line}\n".encode() for line in translations)
    print(f"{len(lines)} lines in {time.perf_counter() - since:.1f} s: {output}")
    if any(lines) and not any(translations):
        print("all of them are empty: the model needs more training", file=sys.stderr)


def options_of(cfg: DictConfig) -> TranslateOptions:
    """Return the checked options; ValueError names the wrong or missing ones."""
    for key in PATHS:
        if OmegaConf.is_missing(cfg, key):
            raise ValueError(
                f"{key}= is missing: python -m src.translate checkpoint=RUN input=FILE output=FILE"
            )
    return TranslateOptions.of(cfg)


def output_of(options: TranslateOptions) -> Path:
    """Return the file to write; OSError or ValueError if it cannot be written, or would replace an input."""
    output = Path(options.output)
    if output.exists() and not output.is_file():
        raise ValueError(f"output= must name a file, and {output} is a folder or a device")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {output.parent} for output={output}: create it first")
    inputs = {"input": [Path(options.input)], "checkpoint": files_of(Path(options.checkpoint)).values()}
    for key, paths in inputs.items():
        if output.exists() and any(path.exists() and output.samefile(path) for path in paths):
            raise ValueError(f"output={output} would replace what {key}= reads: name another output")
    return output


if __name__ == "__main__":
    start(main)
