"""Models of the files that measurements leave besides records: angles, benchmarks, checks of the theory."""

from collections.abc import Iterable, Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..record import validated

RECORDS, BENCHMARKS, THEORY = "records.jsonl", "bench.json", "theory.json"
DIVERGED = "diverged.json"  # in the folder of a run that did, in place of a record
WHOLE_PASS = 2  # the first timing rule by which BP is the whole backward pass
EARLIER_RULE = "BP is not shown: it was timed by the earlier rule, which left ∂ℓ/∂W to the update"
ROUNDING = 1e-5  # milliseconds
Result = Mapping[str, Any]  # of a benchmark


class Stored(BaseModel):
    """A part of a file; fields that analysis does not read are kept."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


class DivergedRun(Stored):
    """A run that ended without a record, because its numbers were not finite."""

    signature: str
    seed: int
    epoch: int
    step: int
    reason: str


class AngleConfig(Stored):
    """The run in which an angle was measured."""

    signature: str
    seed: int
    method: str


class AngleParts(Stored):
    """Angles in radians, by module and together; those of single modules are extra fields."""

    total: float
    hidden: float


class Angle(Stored):
    """One measurement of the gradient estimation angle, a line of `angles.jsonl`."""

    config: AngleConfig
    k: int
    step: int = Field(ge=0)
    epoch: float
    angle: AngleParts


class SpeedUps(Stored):
    bp: float
    bp_update: float
    total: float


class BenchmarkRow(Stored):
    """Milliseconds of one model's step."""

    name: str
    forward_ms: float
    bp_ms: float
    update_ms: float
    bp_update_ms: float
    total_ms: float
    bp_p10_ms: float
    bp_p90_ms: float
    bp_materialised_ms: float | None = None  # by rule 1 of timing
    bp_gflops: float
    peak_mib: float | None
    steps: int
    k_per_layer: dict[str, int]
    vs_torch: SpeedUps | None
    vs_dense: SpeedUps | None


class Point(Stored):
    value: float | str | bool | None
    rows: list[BenchmarkRow]


class Protocol(Stored):
    """The number of times that the models were built anew; 1 in files of earlier versions, which omit it."""

    repetitions: int = 1


class Benchmark(Stored):
    """One case alone, with rows; a sweep has a key and points instead."""

    case: str
    sweep: str | None
    threads: int
    allocator: str
    cpu: str
    torch: str
    blas: str
    commit: str
    dirty: bool
    settings: str = ""
    timing_rule: int = Field(default=1, ge=1)
    protocol: Protocol = Protocol()


class Case(Benchmark):
    rows: list[BenchmarkRow]


class Sweep(Benchmark):
    key: str
    points: list[Point]


class StepPart(Stored):
    """Milliseconds of a part of a phase, and the bytes and operations that it needs at least."""

    phase: str
    part: str
    ms: float = Field(ge=0)
    bytes: int = Field(ge=0)
    flops: int = Field(ge=0)


class Breakdown(Benchmark):
    """The parts of a step of one row, and the machine's rates of operations and of memory."""

    row: str
    steps: int
    step_ms: float = Field(gt=0)
    peak_gflops: float = Field(gt=0)
    peak_gb_s: float = Field(gt=0)
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
    applies: bool | int | dict[str, int] = True

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        missing = [name for name in type(self).model_fields if getattr(self, name) in (None, [])]
        if self.applies and missing:
            raise ValueError(f"{', '.join(missing)} is missing")
        return self


class Lemma2(Check):
    rho: float
    trials: int
    least_margin: float


class Lemma3(Check):
    """The margins of several parts, with the number of problems to which the bound of each applies."""

    r: float
    applies: dict[str, int]
    least_margin: dict[str, float | None]

    @model_validator(mode="after")
    def _counts_every_part(self) -> Self:
        if not self.least_margin.keys() <= self.applies.keys():
            raise ValueError("applies has not the parts of least_margin")
        return self


class Lemma4(Check):
    theta: float
    applies: int
    r: list[float] = []
    largest_angle: float | None = None


class Theorem1(Check):
    r: float
    mu_over_L: float
    applies: bool
    steps: int | None = None
    sin_theta: float | None = None
    largest_factor: float | None = None


class Theorem2(Check):
    theta: float
    applies: int
    trials: int = 0
    r: float | None = None
    sizes: list[int] = []
    largest_angle: list[float] = []


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
