"""Paired bootstrap (Koehn 2004) of translations: whether BLEU of two rows differs by more than chance."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..files import parsed, save
from ..record import HYPOTHESES, NAME, validated
from .tables import Table

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU

SAMPLES = 1000
PACKED = "translations"  # the folder of published ones


@dataclass(frozen=True)
class Resampled:
    """BLEU of one run in percent; the mean over samples of the test set, and half its 95 % interval.

    p: how likely chance alone makes such a difference to the first run; None for the first itself.
    """

    bleu: float
    mean: float
    interval: float
    p: float | None


class Translations(BaseModel):
    """Translations of test by one run, the references, and the rule by which BLEU counts."""

    model_config = ConfigDict(extra="forbid", strict=True)

    hypotheses: list[str]
    references: list[list[str]] = Field(min_length=1)
    rule: str = Field(pattern=r"\|case:(lc|mixed)\|.*tok:\w")

    @model_validator(mode="after")
    def _have_a_line_each(self) -> Self:
        if {len(self.hypotheses)} != set(map(len, self.references)):
            raise ValueError("the translations have not as many lines as the references")
        return self

    def packed(self) -> bytes:
        """Return them compressed, the same bytes each time."""
        return gzip.compress(json.dumps(self.model_dump(), ensure_ascii=False).encode(), mtime=0)


class Scored(BaseModel):
    """What is read of a record beside translations."""

    metric_signature: str


def paired_bootstrap(folders: Sequence[Path], samples: int = 1000) -> list[Resampled]:
    """Compare runs with the first of them, by their folders or published files; the same each time.

    ValueError unless all were tested on the same sentences and counted by the same rule.
    """
    from sacrebleu.significance import PairedTest  # takes longer to import than most reports take

    runs = [translations(Path(folder)) for folder in folders]
    for folder, run in zip(folders, runs, strict=True):
        if (run.references, run.rule) != (runs[0].references, runs[0].rule):
            raise ValueError(
                f"{folder} and {folders[0]} differ in test set or BLEU, so they cannot be paired"
            )
    systems: list[tuple[str, Sequence[str]]] = [(str(i), run.hypotheses) for i, run in enumerate(runs)]
    test = PairedTest(systems, {"BLEU": metric(runs[0].rule)}, runs[0].references, "bs", samples)
    results: Any = test()[1]["BLEU"]
    compared: list[Resampled] = []
    for run, result in zip(runs, results, strict=True):
        # where no sample differs more than the whole, as of equal translations, sacreBLEU returns the least p
        p = 1.0 if compared and run.hypotheses == runs[0].hypotheses else result.p_value
        compared.append(Resampled(result.score, float(result.mean), float(result.ci), p))
    return compared


def unpacked(path: Path) -> Translations:
    """Return what `Translations.packed` left in a file; ValueError for anything else."""
    try:
        return validated(Translations, parsed(gzip.decompress(path.read_bytes())))
    except (EOFError, ValueError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} holds no translations: {error}") from error


def publish_translations(runs: pd.DataFrame, folder: Path) -> list[Path]:
    """Write the translations that runs left into the folder of what is published; return their files."""
    folders = [Path(source).parent for source in runs.source]
    files = {
        packed_file(folder, run.signature, run.seed): translations(path).packed()
        for path, run in zip(folders, runs.itertuples(), strict=True)
        if (path / HYPOTHESES).exists()
    }
    save(files)
    return list(files)


def packed_file(folder: Path, signature: str, seed: int) -> Path:
    return folder / PACKED / f"{signature}-{seed}.json.gz"


def translations(folder: Path) -> Translations:
    """Return the translations in the folder of a run, or in a published file.

    FileNotFoundError if it has none, ValueError unless each reference has as many lines.
    """
    if folder.is_file():
        return unpacked(folder)
    references = sorted(folder.glob("references.*.txt"))
    if not references or not (folder / HYPOTHESES).exists():
        raise FileNotFoundError(f"{folder} has no {HYPOTHESES} and references: it is no run of translation")
    try:
        signature = validated(Scored, parsed((folder / NAME).read_bytes())).metric_signature
        hypotheses, *texts = (lines(path) for path in (folder / HYPOTHESES, *references))
        found = {"hypotheses": hypotheses, "references": texts, "rule": signature.partition(";")[0]}
        return validated(Translations, found)
    except ValueError as error:
        raise ValueError(f"{folder} holds no translations: {error}") from error


def lines(path: Path) -> list[str]:
    """Return the lines of a text, which line feeds alone end."""
    return path.read_bytes().decode().removesuffix("\n").split("\n")


def metric(rule: str) -> BLEU:
    """Return the metric of a signature such as nrefs:1|case:lc|eff:no|tok:none|smooth:exp|version:2.6.0."""
    from sacrebleu.metrics import BLEU

    parts = dict(part.split(":", 1) for part in rule.split("|") if ":" in part)
    return BLEU(lowercase=parts["case"] == "lc", tokenize=parts["tok"], force=True)


def bootstrap_notes(table: Table, damaged: list[str]) -> list[str]:
    """Return a sentence for each block with two rows whose runs of equal seeds kept their translations.

    A sentence for each run whose translations cannot be read is added to damaged.
    """
    sentences = []
    for _, block in table.rows.groupby("block"):
        kept = {row: folders(table, row, damaged) for row in block.index}
        parts = []
        for one, two in combinations(block.index, 2):
            if compared := list(compare(kept[one], kept[two])):
                labels = (block.label[row].removeprefix("+ ") for row in (two, one))
                parts.append(f"{' against '.join(labels)} {', '.join(compared)}")
        title = f"Paired bootstrap of {block.title.iloc[0]}, {SAMPLES} samples"
        sentences += [f"{title}: {'; '.join(parts)}."] if parts else []
    return sentences


def folders(table: Table, row: int, damaged: list[str]) -> dict[int, Path]:
    """Return by seed the folders, or published files, with the translations of a row's runs."""
    runs = table.runs[table.runs.row == row]
    paths = {}
    for run in runs.itertuples():
        path = Path(str(run.source)).parent
        packed = packed_file(path, str(run.signature), int(run.seed))
        if (path / HYPOTHESES).exists() or packed.exists():
            chosen = packed if packed.exists() else path
            try:
                translations(chosen)
                paths[int(run.seed)] = chosen
            except (OSError, ValueError) as error:
                damaged += [str(error)] * (str(error) not in damaged)
    return paths


def compare(first: dict[int, Path], second: dict[int, Path]) -> Iterator[str]:
    """Yield difference and p of every seed that both rows have."""
    for seed in sorted(first.keys() & second.keys()):
        try:
            base, other = paired_bootstrap([first[seed], second[seed]], SAMPLES)
        except (OSError, ValueError):  # the table already marks rows that were scored by different rules
            continue
        yield f"{other.bleu - base.bleu + 0.0:+.2f} (p = {other.p:.3f}, seed {seed})"
