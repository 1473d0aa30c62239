"""Paired bootstrap (Koehn 2004) of translations: whether BLEU of two rows differs by more than chance."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..files import save
from ..record import HYPOTHESES, NAME
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


@dataclass(frozen=True)
class Translations:
    """Translations of test by one run, the references, and the rule by which BLEU counts."""

    hypotheses: list[str]
    references: list[list[str]]
    rule: str

    def packed(self) -> bytes:
        """Return them compressed, the same bytes each time."""
        return gzip.compress(json.dumps(asdict(self), ensure_ascii=False).encode(), mtime=0)


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
        return Translations(**json.loads(gzip.decompress(path.read_bytes())))
    except (EOFError, TypeError, gzip.BadGzipFile, zlib.error) as error:
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
    record = json.loads((folder / NAME).read_bytes())
    texts = [lines(path) for path in (folder / HYPOTHESES, *references)]
    if len(set(map(len, texts))) > 1:
        raise ValueError(f"{folder}: {HYPOTHESES} has not as many lines as the references")
    return Translations(texts[0], texts[1:], record["metric_signature"].partition(";")[0])


def lines(path: Path) -> list[str]:
    """Return the lines of a text, which line feeds alone end."""
    return path.read_bytes().decode().removesuffix("\n").split("\n")


def metric(rule: str) -> BLEU:
    """Return the metric of a signature such as nrefs:1|case:lc|eff:no|tok:none|smooth:exp|version:2.6.0."""
    from sacrebleu.metrics import BLEU

    parts = dict(part.split(":", 1) for part in rule.split("|") if ":" in part)
    return BLEU(lowercase=parts["case"] == "lc", tokenize=parts["tok"], force=True)


def bootstrap_notes(table: Table) -> list[str]:
    """Return a sentence for each block with two rows whose runs of equal seeds kept their translations."""
    sentences = []
    for _, block in table.rows.groupby("block"):
        kept = {row: folders(table, row) for row in block.index}
        parts = []
        for one, two in combinations(block.index, 2):
            if compared := list(compare(kept[one], kept[two])):
                labels = (block.label[row].removeprefix("+ ") for row in (two, one))
                parts.append(f"{' against '.join(labels)} {', '.join(compared)}")
        title = f"Paired bootstrap of {block.title.iloc[0]}, {SAMPLES} samples"
        sentences += [f"{title}: {'; '.join(parts)}."] if parts else []
    return sentences


def folders(table: Table, row: int) -> dict[int, Path]:
    """Return by seed the folders, or published files, with the translations of a row's runs."""
    runs = table.runs[table.runs.row == row]
    paths = {}
    for run in runs.itertuples():
        path = Path(str(run.source)).parent
        packed = packed_file(path, str(run.signature), int(run.seed))
        if (path / HYPOTHESES).exists() or packed.exists():
            paths[int(run.seed)] = packed if packed.exists() else path
    return paths


def compare(first: dict[int, Path], second: dict[int, Path]) -> Iterator[str]:
    """Yield difference and p of every seed that both rows have."""
    for seed in sorted(first.keys() & second.keys()):
        try:
            base, other = paired_bootstrap([first[seed], second[seed]], SAMPLES)
        except (OSError, ValueError):  # the table already marks rows that were scored by different rules
            continue
        yield f"{other.bleu - base.bleu + 0.0:+.2f} (p = {other.p:.3f}, seed {seed})"
