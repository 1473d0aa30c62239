"""The record of a run, and the signature that says which runs belong to one request. Imports no torch."""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Self, TypeVar

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from .files import Fields, csv_text, find_files, json_text, parsed, written_whole

log = logging.getLogger(__name__)
NAME, ANGLES, HYPOTHESES = "record.json", "angles.jsonl", "hypotheses.txt"
DIVERGED = "diverged.json"  # in the folder of a run that did, in place of a record
# Which work counts as the backward pass of a sparse layer. 1: without ∂ℓ/∂W, whose cost is in the update;
# 2: the whole pass. Times of different rules do not compare; a record without the field follows rule 1.
TIMING_RULE = 2
SHOWN = 3  # errors of a file that is no record
LARGE = 10**15  # above what any run counts or measures, and below what a table has room for
Number = Annotated[float, Field(gt=-LARGE, lt=LARGE)]
Amount = Annotated[float, Field(ge=0, lt=LARGE)]
Positive = Annotated[float, Field(gt=0, lt=LARGE)]
Count = Annotated[int, Field(ge=0, lt=LARGE)]
Ordinal = Annotated[int, Field(ge=1, lt=LARGE)]
Integer64 = Annotated[int, Field(ge=0, lt=2**63)]  # what columns of a DataFrame and seeds of NumPy hold
Ratio = Annotated[float, Field(gt=0, le=1)]  # r
Gamma = Annotated[float, Field(ge=0, le=1)]
Share = Annotated[float, Field(ge=0, le=1 + 1e-9)]  # of a sum that is rounded
LARGEST_SCORE = 100 + 1e-9  # BLEU of equal texts is beyond 100 by its rounding
Percent = Annotated[float, Field(ge=0, le=LARGEST_SCORE)]
# Keys that a run does not learn from; `paper` only holds defaults that other keys refer to.
IGNORED = (
    *("seed", "force", "resume", "paths", "paper", "hydra", "experiment", "task.fold", "logger", "log_every"),
    *("trainer.threads", "trainer.device", "trainer.save_every", "trainer.keep_checkpoint"),
)
# Keys count only off these values: a key added later leaves the signatures of old records as they were.
UNCOUNTED = {
    "task.sample": "full",
    "method.gates": "per_gate",
    "method.carry": "time",
    "method.schedule": "every",
    "method.period": 1,
    "method.skip_zero_rows": False,
    "method.sparsifier": "top_k",
}


# Settings of a method that its label names only off these values, which are the paper's.
PLAIN = {"memory": "shared", "memory_control": None, "selection": "per_example", "bias": "sparse"} | {
    key.removeprefix("method."): value for key, value in UNCOUNTED.items() if key.startswith("method.")
}


class Dropped(BaseModel):
    """Shares of a layer's gradient that were not propagated, at the end of training."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)
    entries: Share
    squared_norm: Share


class Record(BaseModel):
    """One finished training run as stored in `record.json`, or in a line of the published `records.jsonl`.

    Fields with a default may be missing, as records of earlier versions lack some; unknown fields are kept.
    """

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    signature: str
    seed: Integer64
    task: str
    sample: str = "full"
    model: str
    method: str
    r: Ratio | None
    gamma: Gamma | None
    hidden: Ordinal | None = None
    k_per_layer: dict[str, Integer64]
    data_s: Amount = 0.0
    forward_s: Amount = 0.0
    bp_s: Amount
    update_s: Amount
    total_s: Amount
    timing_rule: Ordinal = 1
    processor_share: Amount | None = None
    dev: Percent
    test: Percent
    test_last: Percent
    best_epoch: Ordinal
    metric: str
    metric_signature: str | None = None
    steps: Ordinal
    resumed: bool = False
    history: list[dict[str, float | None]]
    commit: str
    dirty: bool
    machine: str
    cpu: str
    device: str
    threads: Ordinal
    torch: str
    times_comparable: bool
    disturbed: list[str] = []
    data_digest: str | None = None
    dropped_fraction: dict[str, Dropped] = {}
    started_at: str
    config: Fields

    @field_validator("history")
    @classmethod
    def _has_percentages(cls, history: list[dict[str, float | None]]) -> list[dict[str, float | None]]:
        for number, row in enumerate(history):
            for key, value in row.items():
                if "_bleu_" in key and value is not None and not 0 <= value <= LARGEST_SCORE:
                    raise ValueError(f"{key} of row {number} must be from 0 to 100, got {value:g}")
        return history

    @field_validator("config")
    @classmethod
    def _has_a_method(cls, config: Fields) -> Fields:
        if not isinstance(config.get("method"), dict) or not isinstance(config.get("paths", {}), dict):
            raise ValueError("config.method, and config.paths if it is there, must be nodes")
        for key, value in flat(config):
            if "${" in str(value):  # it would be resolved where the file is read
                raise ValueError(f"config.{key} must not hold an interpolation, got {value!r}")
            for number in value if isinstance(value, list) else [value]:
                if isinstance(number, int) and abs(number) >= 2**64:
                    raise ValueError(f"config.{key} must be below 2**64")
        return config

    @model_validator(mode="after")
    def _has_its_best_epoch(self) -> Self:
        epochs = [row.get("epoch") for row in self.history]
        if epochs and self.best_epoch not in epochs:
            raise ValueError(f"best_epoch must be an epoch of history, got {self.best_epoch}")
        return self

    @classmethod
    def parse(cls, content: bytes | str) -> "Record":
        """Return the record in a JSON text; ValueError names every field that is missing or wrong."""
        return validated(cls, parsed(content))


Model = TypeVar("Model", bound=BaseModel)


def validated(model: type[Model], value: object) -> Model:
    """Return the value as this model; ValueError is one line that names the wrong fields by dotted key."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        named = [(".".join(map(str, e["loc"])) or model.__name__, e["msg"]) for e in error.errors()]
        wrong = [f"{key}: {message.removeprefix('Value error, ')}" for key, message in named]
        more = f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise ValueError("; ".join(wrong[:SHOWN]) + more) from error


def settings(cfg: DictConfig | Fields) -> Fields:
    """Return the resolved configuration as plain data; paths, and what refers to them, are None."""
    copy = DictConfig(cfg if isinstance(cfg, dict) else OmegaConf.to_container(cfg))
    for key in copy.get("paths", {}):
        copy.paths[key] = None
    plain = OmegaConf.to_container(copy, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def signature(cfg: DictConfig | Fields) -> str:
    """Return 8 hex digits over all that changes the learning result; equal for a record's own `config`."""
    counted = {key: canonical(value) for key, value in flat(settings(cfg)) if counts(key, value)}
    return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()[:8]


def flat(tree: Mapping[str, object], path: str = "") -> Iterator[tuple[str, object]]:
    """Yield the leaves by dotted key; a list is a leaf."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def counts(key: str, value: object) -> bool:
    """Return whether a value under this dotted key is part of the signature."""
    ignored = any(key == name or key.startswith(f"{name}.") for name in IGNORED)
    return not ignored and value is not None and UNCOUNTED.get(key) != value


def canonical(value: object) -> object:
    """Return one form for equal values: 0.1 + 0.2 and 0.3, 1 and 1.0, a class in any module."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [canonical(item) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return format(value, ".12g")
    return value.rsplit(".", 1)[-1] if isinstance(value, str) and value.startswith("msbp.") else value


def different(ours: Fields, theirs: Fields) -> list[str]:
    """Return the counted keys in which two settings differ, as `key: theirs, not ours`."""
    a, b = dict(flat(ours)), dict(flat(theirs))
    keys = [key for key in sorted(a | b) if counts(key, a.get(key)) or counts(key, b.get(key))]
    return [f"{key}: {b.get(key)}, not {a.get(key)}" for key in keys if a.get(key) != b.get(key)]


def requested(cfg: DictConfig, method: object, k_per_layer: Mapping[str, int]) -> Fields:
    """Return the record's first fields, which describe the request."""
    return {
        "signature": signature(cfg),
        "seed": cfg.seed,
        "task": cfg.task.name,
        "sample": cfg.task.sample,
        "model": cfg.model.name,
        "method": cfg.method.name,
        "r": getattr(method, "r", None),
        "gamma": getattr(method, "gamma", None),
        "hidden": cfg.model.get("hidden"),
        "k_per_layer": dict(k_per_layer),
        "timing_rule": TIMING_RULE,
    }


def label(method: Fields) -> str:
    """Return a method's name and what distinguishes it, as in msbp (r=0.04, gamma=0.8, sparsifier=random)."""
    shown = {key: value for key, value in method.items() if key not in ("_target_", "name")}
    words = [
        f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in shown.items()
        if value is not None and PLAIN.get(key) != value
    ]
    return f"{method.get('name')} ({', '.join(words)})" if words else str(method.get("name"))


def scored(metric: str, value: float) -> str:
    """Return a metric with its value; BLEU is a number of points, all others are percentages."""
    return f"{metric} {value:.2f}" if metric == "bleu" else f"{metric} {value:.2f}%"


def summary(path: Path, record: Fields) -> str:
    """Return scores, seconds, k and path of a record in four lines."""
    sample = " on the tiny synthetic sample" if record.get("sample") == "tiny" else ""
    reasons = ", ".join(record.get("disturbed") or ["this run was disturbed"])
    shared = "" if record["times_comparable"] else f"; times not comparable: {reasons}"
    kept = ", ".join(f"{layer} {k}" for layer, k in record["k_per_layer"].items())
    return (
        f"{record['task']}{sample}, {label(record['config']['method'])}, seed {record['seed']}: "
        f"test {scored(record['metric'], record['test'])} at the best dev epoch ({record['best_epoch']}), "
        f"which counts; {scored(record['metric'], record['test_last'])} at the last\n"
        f"BP {record['bp_s']:.2f} s, BP + update {record['bp_s'] + record['update_s']:.2f} s, "
        f"total {record['total_s']:.2f} s over {record['steps']} steps, threads {record['threads']}{shared}\n"
        f"k per layer: {kept}\n"
        f"record: {path}"
    )


def write(
    folder: Path, record: Fields, angles: Sequence[Fields] = (),
    texts: Mapping[str, Sequence[str]] | None = None,
) -> Path:  # fmt: skip
    """Write the history as CSV, angles and lines of text (by file name) if any, then the record.

    Each is written whole or not at all; the record comes last.
    """
    with written_whole(folder / "history.csv") as file:
        file.write(csv_text(record["history"]).encode())
    if angles:
        with written_whole(folder / ANGLES) as file:
            file.writelines(angle_line(record, angle).encode() for angle in angles)
    for name, lines in (texts or {}).items():
        if lines:
            with written_whole(folder / name) as file:
                file.writelines(f"{line}\n".encode() for line in lines)
    with written_whole(folder / NAME) as file:
        file.write(json_text(record, indent=1).encode())
    return folder / NAME


def angle_line(record: Fields, angle: Fields) -> str:
    """Return one measurement of angles with its request as a line of JSON; k is the first hidden layer's."""
    names = ("task", "sample", "method", "r", "gamma", "seed", "hidden", "signature", "k_per_layer")
    about = {
        "config": {name: record[name] for name in names},
        "k": next(iter(record["k_per_layer"].values())),
    }
    return json_text(about | dict(angle))


def find(outputs: Path, key: str, seed: int, data_digest: str = "") -> tuple[Path, Fields] | None:
    """Return path and fields of the newest record of this request below outputs; None if there is none.

    key: the signature. Files that hold no record are logged.
    """
    matches = []
    for path in find_files(outputs, NAME):
        try:
            record = parse(path.read_bytes())
        except (OSError, ValueError) as error:
            log.warning("%s does not count as a record: %s", path, error)
            continue
        theirs = record.get("data_digest") or data_digest  # earlier records have none
        if (record["signature"], record["seed"], theirs) == (key, seed, data_digest):
            matches.append((record["started_at"], path, record))
    return max(matches, key=lambda entry: entry[0])[1:] if matches else None


def parse(content: bytes | str) -> Fields:
    """Return the fields of a record in a JSON text; ValueError names those that are wrong."""
    return Record.parse(content).model_dump(exclude_unset=True)
