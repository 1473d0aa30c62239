"""Models of the files in conf/table, figure, grid, claim and margin, which people edit by hand."""

import re
from collections.abc import Sequence
from pathlib import Path
from pydoc import locate
from typing import Annotated, Any, Literal, Self

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator
from yaml import YAMLError

from .record import Count, Gamma, Number, Ordinal, Positive, validated

Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Margin = Annotated[float, Field(ge=0)]
Seeds = Annotated[int, Field(ge=1, le=10_000)]
Column = Literal[
    "bp_s", "bp_update_s", "total_s", "score", "dev", "dropped_entries", "dropped_norm", "other_bleu"
]
Printed = Literal["bp_s", "bp_update_s", "total_s", "score", "dev"]
ELSEWHERE = {"seed": "the key seeds, as a number of them", "task": "the block's key task"}
OURS = "msbp."  # functions elsewhere may read keys of their own


def _unlike(labels: Sequence[str]) -> None:
    """Raise ValueError where two labels are the same."""
    twice = [label for number, label in enumerate(labels) if label in labels[:number]]
    if twice:
        raise ValueError(f"{twice[0]!r} is there twice")


def _function(name: str) -> str:
    """Return the name; ValueError unless it is a function's."""
    if not callable(locate(name)):
        raise ValueError(f"there is no function {name}")
    return name


def _assignment(word: str) -> str:
    """Return the word; ValueError unless it is an override of a run's settings."""
    if not re.match(r"[\w@+~./-]+=", word):
        raise ValueError(f"an override is KEY=VALUE, got {word!r}")
    if (key := word.partition("=")[0].lstrip("+~")) in ("seed", "task"):
        raise ValueError(f"{word!r} is no override of a row: {key}s are given by {ELSEWHERE[key]}")
    return word


def _name(text: str) -> str:
    """Return the text; ValueError unless it can be the name of a file in one folder."""
    if not re.fullmatch(r"[\w-]+", text):
        raise ValueError(f"a name has letters, digits, _ and - alone, got {text!r}")
    return text


Name = Annotated[str, AfterValidator(_name)]  # of a file in a folder of conf
Override = Annotated[str, AfterValidator(_assignment)]
Overrides = list[Override]


class ConfigFile(dict[str, Any]):
    """A file of conf, resolved: the lookup of a key that it lacks raises ValueError with the file's name."""

    def __init__(self, content: dict[str, Any], source: object) -> None:
        super().__init__(content)
        self.source = source

    def __missing__(self, key: str) -> Any:
        raise ValueError(f"{self.source}: {key} is missing")


class Node(BaseModel):
    """A part of a file, with no keys but these."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class RowOfTable(Node):
    label: Text
    overrides: Overrides
    paper: dict[Printed, Positive] = {}


class Block(Node):
    title: Text
    task: Name
    score: Text = ""
    seeds: Seeds | None = None
    timed: Count | None = None
    overrides: Overrides = []
    within: str = ""
    rows: Annotated[list[RowOfTable], Field(min_length=1)]

    @model_validator(mode="after")
    def _labels_differ(self) -> Self:
        _unlike([row.label for row in self.rows])
        return self


class Line(Node):
    """A line of a table that shows blocks of other tables."""

    label: Text
    table: Name
    block: Text
    case: str = ""
    stand_in: bool = False
    folds: bool = False


class ListedBenchmark(Node):
    case: Name
    sweep: Name


class Expected(BaseModel):
    """The effects that agree with a sentence: those from low to high, of which one may be left out."""

    low: Number | None = None
    high: Number | None = None

    @property
    def edges(self) -> list[float]:
        """Those of low and high that are there."""
        return [edge for edge in (self.low, self.high) if edge is not None]

    @model_validator(mode="after")
    def _has_an_edge(self) -> Self:
        if not self.edges or self.edges != sorted(self.edges):
            raise ValueError("low or high must be there, and low not above high")
        return self


class Question(Node, Expected):
    sentence: Text
    margin: Margin
    more: Annotated[list[Text], Field(min_length=1)]
    less: Annotated[list[Text], Field(min_length=1)]


class WithFunction(BaseModel):
    """A file that may name its function; of a function elsewhere it may have any further key."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    target: Annotated[str, AfterValidator(_function)] = Field(
        default="", alias="_target_", validate_default=False
    )

    @model_validator(mode="after")
    def _has_known_keys(self) -> Self:
        if self.model_extra and (not self.target or self.target.startswith(OURS)):
            known = ", ".join(sorted(field.alias or name for name, field in type(self).model_fields.items()))
            raise ValueError(f"there is no key {', '.join(self.model_extra)}; there are {known}")
        return self


class TableFile(WithFunction):
    """A file of conf/table or conf/figure; which keys it needs depends on its function."""

    name: Text
    caption: str
    seeds: Seeds | None = None
    columns: list[Column] = []
    blocks: Annotated[list[Block], Field(min_length=1)] | None = None
    lines: Annotated[list[Line], Field(min_length=1)] | None = None
    grid: Name | None = None
    benchmarks: Annotated[list[ListedBenchmark], Field(min_length=1)] | None = None
    notes: list[Text] = []
    against: list[Text] = []
    questions: list[Question] = []
    paired: bool = False
    shows: Literal["angles"] | None = None
    critical: Positive | None = None
    paper: dict[int, list[Positive]] = {}
    gamma: Gamma | None = None
    inputs: Ordinal | None = None
    outputs: Ordinal | None = None

    @model_validator(mode="after")
    def _labels_differ(self) -> Self:
        _unlike([block.title for block in self.blocks or ()])
        _unlike([line.label for line in self.lines or ()])
        unknown = [
            f"{label!r} of the block {block.title!r}"
            for block in self.blocks or ()
            for label in (*self.against, *(name for each in self.questions for name in each.more + each.less))
            if label not in [row.label for row in block.rows]
        ]
        if unknown:
            raise ValueError(f"there is no row {unknown[0]}, which against or questions names")
        return self


class GridFile(Node):
    """A file of conf/grid."""

    task: Name
    seeds: Seeds
    seeds_without_memory: Seeds | None = None  # of baseline and SBP, if not so many
    baseline: Overrides
    sbp: Overrides
    msbp: Overrides
    sparse: Annotated[dict[int, Override], Field(min_length=1)]
    gamma: Annotated[list[Gamma], Field(min_length=1)]
    command: Text


class ClaimFile(WithFunction, Expected):
    """A file of conf/claim; which keys it needs depends on its rule."""

    order: int
    title: Text
    quote: Text
    where: Text
    effect: Text
    margin: Margin | Name  # with a reason, or a file of conf/margin
    target: Annotated[str, AfterValidator(_function)] = Field(alias="_target_")
    unit: Literal["points", "degrees", "share", "times", "percent", "exponent"]
    reason: Text = ""
    least: Ordinal | None = None
    nothing_dropped: list[Text] = []
    tables: list[Text] = []
    figures: list[Text] = []
    grid: Name | None = None
    benchmarks: Annotated[list[ListedBenchmark], Field(min_length=1)] | None = None
    than: Literal["baseline", "sbp", "msbp"] | None = None
    of: Literal["baseline", "sbp", "msbp"] | None = None
    column: Literal["forward_s", "bp_s", "bp_update_s", "total_s"] | None = None
    by_k: bool = False
    every_cell: bool = False
    pooled: bool = False
    paper: Positive | None = None
    paper_table: Text | None = None
    largest: Ordinal | None = None

    @model_validator(mode="after")
    def _is_in_its_unit(self) -> Self:
        least = {"times": 0, "percent": -1}.get(self.unit)
        if least is not None and self.edges[0] <= least:
            raise ValueError(f"low and high must be above {least} in {self.unit}, got {self.edges[0]:g}")
        if self.than == (self.of or "msbp"):
            raise ValueError(f"of and than must be different methods, got {self.than} for both")
        if bool(self.reason) == isinstance(self.margin, str):
            raise ValueError("reason: a margin that is a number needs one, a named one has its own")
        return self


class MarginFile(Node):
    """A file of conf/margin: the margin of several claims, with its reason."""

    margin: Margin
    reason: Text


MODELS: dict[str, type[BaseModel]] = {
    "table": TableFile, "figure": TableFile, "claim": ClaimFile, "grid": GridFile, "margin": MarginFile,
}  # fmt: skip


def read(path: Path, wanted_by: object = "") -> ConfigFile:
    """Return a file of a folder in MODELS; ValueError names it and its keys.

    wanted_by: the file that names it.
    """
    if wanted_by and not path.is_file():
        raise ValueError(f"{wanted_by}: there is no file {path}")
    try:
        return checked(OmegaConf.load(path), path.parent.name, path)
    except (OSError, UnicodeDecodeError, YAMLError, OmegaConfBaseException) as error:
        raise ValueError(f"{path}: {error}") from error


def checked(config: object, group: str, source: object) -> ConfigFile:
    """Return what a file of this group of conf holds; ValueError names the source and wrong keys.

    A key without a value, at any depth, counts as missing.
    """
    content: Any = without_blanks(OmegaConf.to_container(config, resolve=True))
    try:
        validated(MODELS[group], content)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error
    return ConfigFile(content, source)


def without_blanks(value: object) -> object:
    """Return the value without the keys, of nodes within it too, that have none."""
    if isinstance(value, dict):
        return {key: without_blanks(part) for key, part in value.items() if part is not None}
    return [without_blanks(part) for part in value] if isinstance(value, list) else value
