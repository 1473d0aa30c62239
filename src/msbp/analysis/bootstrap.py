"""Whether translations differ by more than chance: paired bootstrap (Koehn 2004), from what runs left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from ..record import HYPOTHESES, NAME


@dataclass(frozen=True)
class Resampled:
    """BLEU of one run in percent; the mean over samples of the test set, and half its 95 % interval.

    p: how likely chance alone makes such a difference to the first run; None for the first itself.
    """

    bleu: float
    mean: float
    interval: float
    p: float | None


@dataclass(frozen=True)
class Translations:
    """What a run left: its translations of test, the references, and the rule by which BLEU counts."""

    hypotheses: list[str]
    references: list[list[str]]
    rule: str


def paired_bootstrap(folders: Sequence[Path], samples: int = 1000) -> list[Resampled]:
    """Runs against the first of them, by their folders; the same each time.

    ValueError unless all were tested on the same sentences and counted by the same rule.
    """
    runs = [translations(Path(folder)) for folder in folders]
    for folder, run in zip(folders, runs, strict=True):
        if (run.references, run.rule) != (runs[0].references, runs[0].rule):
            raise ValueError(
                f"{folder} and {folders[0]} differ in test set or BLEU, so they cannot be paired"
            )
    systems: list[tuple[str, Sequence[str]]] = [(str(i), run.hypotheses) for i, run in enumerate(runs)]
    test = PairedTest(systems, {"BLEU": metric(runs[0].rule)}, runs[0].references, "bs", samples)
    results: Any = test()[1]["BLEU"]
    found: list[Resampled] = []
    for run, result in zip(runs, results, strict=True):
        # where no sample differs more than the whole, as of equal translations, sacreBLEU says the least p
        p = 1.0 if found and run.hypotheses == runs[0].hypotheses else result.p_value
        found.append(Resampled(result.score, float(result.mean), float(result.ci), p))
    return found


def translations(folder: Path) -> Translations:
    """What the run in folder left. FileNotFoundError if it left no translations, ValueError
    unless each reference has as many lines as they."""
    references = sorted(folder.glob("references.*.txt"))
    if not references or not (folder / HYPOTHESES).exists():
        raise FileNotFoundError(f"{folder} has no {HYPOTHESES} and references: it is no run of translation")
    record = json.loads((folder / NAME).read_bytes())
    texts = [lines(path) for path in (folder / HYPOTHESES, *references)]
    if len(set(map(len, texts))) > 1:
        raise ValueError(f"{folder}: {HYPOTHESES} has not as many lines as the references")
    return Translations(texts[0], texts[1:], record["metric_signature"].partition(";")[0])


def lines(path: Path) -> list[str]:
    """The lines of a text, which line feeds alone end."""
    return path.read_bytes().decode().removesuffix("\n").split("\n")


def metric(rule: str) -> BLEU:
    """sacreBLEU's counter by its signature, nrefs:1|case:lc|eff:no|tok:none|smooth:exp|version:2.6.0."""
    parts = dict(part.split(":", 1) for part in rule.split("|") if ":" in part)
    return BLEU(lowercase=parts["case"] == "lc", tokenize=parts["tok"], force=True)
