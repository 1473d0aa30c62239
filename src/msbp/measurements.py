"""Files that measurements leave besides records: angles, benchmarks, checks of the theory; reading of any.

A damaged file, or line, is never an error: readers add a sentence that names it to the list `damaged`.
"""

import gzip
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .files import Fields, parsed
from .record import (
    HYPOTHESES,
    NAME,
    Amount,
    Count,
    Integer64,
    Model,
    Number,
    Ordinal,
    Positive,
    Ratio,
    validated,
)

RECORDS, BENCHMARKS, THEORY = "records.jsonl", "bench.json", "theory.json"
PACKED = "translations"  # the folder of published ones
WHOLE_PASS = 2  # the first timing rule by which BP is the whole backward pass
EARLIER_RULE = "BP is not shown: it was timed by the earlier rule, which left ∂ℓ/∂W to the update"
ROUNDING = 1e-5  # milliseconds
Result = Mapping[str, Any]  # of a benchmark
Radians = Annotated[float, Field(ge=0, le=math.pi)]


class Stored(BaseModel):
    """A part of a file; fields that analysis does not read are kept."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


class DivergedRun(Stored):
    """A run that ended without a record, because its numbers were not finite."""

    signature: str
    seed: Integer64
    epoch: Ordinal
    step: Count
    reason: str


class AngleConfig(Stored):
    """The run in which an angle was measured."""

    signature: str
    seed: Integer64
    method: str


class AngleParts(Stored):
    """Angles in radians, by module and together; those of single modules are extra fields."""

    total: Radians
    hidden: Radians


class Departure(Stored):
    """Distance of the estimated gradient from the true one, by the length of that."""

    weight: Amount
    bias: Amount


class Angle(Stored):
    """One measurement of the gradient estimation angle, a line of `angles.jsonl`."""

    config: AngleConfig
    k: Integer64
    step: Count
    epoch: Amount
    angle: AngleParts
    departure: Departure | None = None


class SpeedUps(Stored):
    bp: Positive
    bp_update: Positive
    total: Positive


class RowTimes(Stored):
    """Milliseconds of one model's step."""

    name: str
    forward_ms: Positive
    bp_ms: Positive
    update_ms: Positive
    bp_update_ms: Positive
    total_ms: Positive


class BenchmarkRow(RowTimes):
    """Milliseconds of one model's step, over all repetitions, with its costs and speed-ups."""

    bp_p10_ms: Positive
    bp_p90_ms: Positive
    bp_materialised_ms: Positive | None = None  # by rule 1 of timing
    bp_gflops: Amount
    peak_mib: Number | None
    steps: Ordinal
    k_per_layer: dict[str, Integer64]
    vs_torch: SpeedUps | None
    vs_dense: SpeedUps | None


class Repetition(Stored):
    """Milliseconds of the rows of models that were built anew."""

    rows: list[RowTimes]


class Rows(Stored):
    """The rows of a case or of a point of a sweep; files of earlier versions lack repetitions."""

    cpu_share: Amount = 1.0
    rows: list[BenchmarkRow] = Field(min_length=1)
    repetitions: list[Repetition] = []


class Point(Rows):
    value: Number | str | bool | None


class Protocol(Stored):
    """The number of times that the models were built anew; 1 in files of earlier versions, which omit it."""

    repetitions: Ordinal = 1


class Benchmark(Stored):
    """One case alone, with rows; a sweep has a key and points instead."""

    case: str
    sweep: str | None
    threads: Ordinal
    allocator: str
    cpu: str
    torch: str
    blas: str
    commit: str
    dirty: bool
    settings: str = ""
    timing_rule: Ordinal = 1
    protocol: Protocol = Protocol()


class Case(Benchmark, Rows):
    pass


class Sweep(Benchmark):
    key: str
    points: list[Point]


class StepPart(Stored):
    """Milliseconds of a part of a phase, and the bytes and operations that it needs at least."""

    phase: str
    part: str
    ms: Positive
    bytes: Count
    flops: Count


class Breakdown(Benchmark):
    """The parts of a step of one row, and the machine's rates of operations and of memory.

    rows_gb_s: of memory for rows that lie apart; files of earlier versions omit it.
    """

    row: str
    steps: Ordinal
    step_ms: Positive
    peak_gflops: Positive
    peak_gb_s: Positive
    rows_gb_s: Positive | None = None
    parts: list[StepPart] = Field(min_length=1)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        """Return the breakdown; ValueError unless the parts sum to the step."""
        total = sum(part.ms for part in self.parts)
        if abs(total - self.step_ms) > ROUNDING * (1 + len(self.parts)):
            raise ValueError(f"parts sum to {total:.5f} ms, and step_ms is {self.step_ms:.5f}")
        return self


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


class Scored(Stored):
    """The fields of a record that tables of its translations need."""

    metric_signature: str


class Check(Stored):
    """One check of a lemma or theorem; where the bound applies to no problem, its numbers may be missing."""

    holds: bool
    applies: bool | Count | dict[str, Count] = True

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        missing = [name for name in type(self).model_fields if getattr(self, name) in (None, [])]
        if self.applies and missing:
            raise ValueError(f"{', '.join(missing)} is missing")
        return self


class Lemma2(Check):
    rho: Amount
    trials: Count
    least_margin: Number


class Lemma3(Check):
    """The margins of several parts, with the number of problems to which the bound of each applies."""

    r: Ratio
    applies: dict[str, Count]
    least_margin: dict[str, Number | None]

    @model_validator(mode="after")
    def _counts_every_part(self) -> Self:
        if not self.least_margin.keys() <= self.applies.keys():
            raise ValueError("applies has not the parts of least_margin")
        return self


class Lemma4(Check):
    theta: Radians
    applies: Count
    r: list[Ratio] = []
    largest_angle: Radians | None = None


class Theorem1(Check):
    r: Ratio
    mu_over_L: Amount
    applies: bool
    steps: Count | None = None
    sin_theta: Number | None = None
    largest_factor: Number | None = None


class Theorem2(Check):
    theta: Radians
    applies: Count
    trials: Count = 0
    r: Ratio | None = None
    sizes: list[Ordinal] = []
    largest_angle: list[Radians] = []


class Theory(Stored):
    """The checks that `python -m src.theory` leaves; files of earlier versions lack two of them."""

    lemma_2: list[Lemma2] = []
    lemma_3: list[Lemma3]
    lemma_4: list[Lemma4]
    theorem_1: list[Theorem1]
    theorem_2: list[Theorem2] = []
    broken_by_the_papers_network: list[str]


def checked(value: Any) -> Result:
    """Return the value; ValueError unless it is the result of a benchmark."""
    if isinstance(value, dict) and breaks_down(value):
        validated(Breakdown, value)
    else:
        validated(Sweep if isinstance(value, dict) and value.get("sweep") else Case, value)
    return value


def breaks_down(result: Result) -> bool:
    """Return whether a result has the parts of a step, and no rows."""
    return "parts" in result


def by_default(result: Result) -> bool:
    """Return whether a result is of a whole case or sweep with the default allocator, on one thread.

    A sweep over threads is on as many as its points say.
    """
    options = result["threads"], result["allocator"], result.get("settings") or ""
    return options == (1, "keep", "") and not breaks_down(result)


def separated(results: Iterable[Result]) -> tuple[list[Result], list[Result]]:
    """Return the results with rows, and those with the parts of a step."""
    every = list(results)
    return [each for each in every if not breaks_down(each)], [each for each in every if breaks_down(each)]


def contents(paths: Iterable[Path], damaged: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the files with their texts; those that cannot be read are added to damaged."""
    for path in paths:
        try:
            yield str(path), path.read_bytes().decode("utf-8", errors="surrogateescape")
        except OSError as error:
            damaged.append(f"{path}: {error.strerror}")


def lines(path: Path, damaged: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the lines of a file, if there is one, with its name and their numbers."""
    for source, text in contents([path] if path.exists() else [], damaged):
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield f"{source} line {number}", line


def validated_each(
    model: type[Model], texts: Iterable[tuple[str, str]], damaged: list[str], prefix: str = ""
) -> Iterator[tuple[str, Fields, Model]]:
    """Yield source, value and model of the texts that hold one; the others are added to damaged."""
    for source, text in texts:
        try:
            value = parsed(text)
            yield source, value, validated(model, value)
        except ValueError as error:
            damaged.append(f"{source}: {prefix}{error}")


def read_theory(path: Path, damaged: list[str]) -> Fields | None:
    """Return the checks in a file, if there is one; a damaged file is added to damaged."""
    texts = contents([path] if path.exists() else [], damaged)
    return next((value for _, value, _ in validated_each(Theory, texts, damaged)), None)


def read_benchmarks(path: Path, damaged: list[str]) -> list[Result]:
    """Return the results of a folder, a file each, or of a file, which may hold a list of them."""
    listed = not path.is_dir()
    results: list[Result] = []
    for source, text in contents([path] * path.exists() if listed else sorted(path.glob("*.json")), damaged):
        try:
            value = parsed(text)
        except ValueError as error:
            damaged.append(f"{source}: {error}")
            continue
        several = listed and isinstance(value, list)
        for number, each in enumerate(value if several else [value], 1):
            try:
                results.append(checked(each))
            except ValueError as error:
                damaged.append(f"{source}{f' result {number}' * several}: {error}")
    return results


def unpacked(path: Path) -> Translations:
    """Return what `Translations.packed` left in a file; ValueError for anything else."""
    try:
        return validated(Translations, parsed(gzip.decompress(path.read_bytes())))
    except (EOFError, ValueError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} holds no translations: {error}") from error


def packed_file(folder: Path, signature: str, seed: int) -> Path:
    return folder / PACKED / f"{signature}-{seed}.json.gz"


def read_translations(folder: Path) -> Translations:
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
        hypotheses, *texts = (text_lines(path) for path in (folder / HYPOTHESES, *references))
        found = {"hypotheses": hypotheses, "references": texts, "rule": signature.partition(";")[0]}
        return validated(Translations, found)
    except ValueError as error:
        raise ValueError(f"{folder} holds no translations: {error}") from error


def text_lines(path: Path) -> list[str]:
    """Return the lines of a text, which line feeds alone end."""
    return path.read_bytes().decode().removesuffix("\n").split("\n")
