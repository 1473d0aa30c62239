"""The checks of the paper's lemmas and theorems that `python -m src.theory` leaves in `theory.json`."""

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from ..files import Fields, parsed
from ..record import validated

NAME = "theory.json"


class Check(BaseModel):
    """One check; where the bound applies to no problem, its numbers may be missing."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)
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


class Theory(BaseModel):
    """All checks; those of Lemma 2 and Theorem 2 are missing in files of earlier versions."""

    lemma_2: list[Lemma2] = []
    lemma_3: list[Lemma3]
    lemma_4: list[Lemma4]
    theorem_1: list[Theorem1]
    theorem_2: list[Theorem2] = []
    broken_by_the_papers_network: list[str]


def read_theory(path: Path, damaged: list[str]) -> Fields | None:
    """Return the checks in a file, if there is one; a damaged file is added to damaged."""
    if not path.exists():
        return None
    try:
        found = parsed(path.read_bytes())
        validated(Theory, found)
        return dict(found)
    except OSError as error:
        damaged.append(f"{path}: {error.strerror}")
    except ValueError as error:
        damaged.append(f"{path}: {error}")
    return None
