"""Models of the files that measurements leave besides records: angles, benchmarks, checks of the theory."""

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..record import Amount, Count, Integer64, Number, Ordinal, Positive, Ratio, validated

RECORDS, BENCHMARKS, THEORY = "records.jsonl", "bench.json", "theory.json"
DIVERGED = "diverged.json"  # in the folder of a run that did, in place of a record
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
    rows: list[BenchmarkRow]
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
    """The parts of a step of one row, and the machine's rates of operations and of memory."""

    row: str
    steps: Ordinal
    step_ms: Positive
    peak_gflops: Positive
    peak_gb_s: Positive
    parts: list[StepPart] = Field(min_length=1)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        """Return the breakdown; ValueError unless the parts sum to the step."""
        total = sum(part.ms for part in self.parts)
        if abs(total - self.step_ms) > ROUNDING * (1 + len(self.parts)):
            raise ValueError(f"parts sum to {total:.5f} ms, and step_ms is {self.step_ms:.5f}")
        return self


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


def separated(results: Iterable[Result]) -> tuple[list[Result], list[Result]]:
    """Return the results with rows, and those with the parts of a step."""
    every = list(results)
    return [each for each in every if not breaks_down(each)], [each for each in every if breaks_down(each)]
