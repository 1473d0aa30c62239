"""Numerical checks of the paper's bounds: python -m src.theory"""

import sys
import textwrap
from pathlib import Path
from typing import Annotated

import hydra
import torch
from omegaconf import DictConfig
from pydantic import Field

from msbp.analysis.theory import terminal
from msbp.bounds import checks
from msbp.cli import start
from msbp.config import CONF, Options, Paths
from msbp.files import check_writable, json_text, save
from msbp.training import machine

CHECKS = ("lemma_2", "lemma_3", "lemma_4", "theorem_1", "theorem_2")


class TheoryOptions(Options):
    """Options of `python -m src.theory`."""

    seed: Annotated[int, Field(ge=0, lt=2**64)]
    paths: Paths


@hydra.main(config_path=CONF, config_name="theory", version_base="1.3")
def main(cfg: DictConfig) -> None:
    options = TheoryOptions.of(cfg)
    path = Path(options.paths.outputs) / "theory.json"
    check_writable(path.parent)
    results = checks(options.seed)
    here = machine.describe(torch.device("cpu"))
    results |= {name: here[name] for name in ("commit", "dirty", "torch")}
    save({path: json_text(results, indent=1)})
    print(terminal(results), "\nThe paper's own network breaks conditions:", sep="\n")
    for sentence in results["broken_by_the_papers_network"]:
        print(textwrap.fill(sentence, 100, initial_indent="  ", subsequent_indent="    "))
    print(f"written: {path}")
    if not all(row["holds"] for name in CHECKS for row in results[name]):
        sys.exit("a bound was exceeded")


if __name__ == "__main__":
    start(main)
