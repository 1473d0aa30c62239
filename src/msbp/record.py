"""The record of a run, and the signature that says which runs asked for the same thing. Imports no torch."""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from .files import check, csv_text, json_text, parsed, written_whole

log = logging.getLogger(__name__)
NAME, ANGLES, HYPOTHESES = "record.json", "angles.jsonl", "hypotheses.txt"
# What a run does not learn from; `paper` only holds defaults that other keys refer to.
IGNORED = (
    *("seed", "force", "resume", "paths", "paper", "hydra", "experiment", "task.fold"),
    *("trainer.threads", "trainer.device", "trainer.save_every", "trainer.keep_checkpoint"),
)
# Keys count only off these values: a key added later leaves the signatures of old records as they were.
UNCOUNTED = {
    "task.sample": "full",
    "method.gates": "per_gate",
    "method.carry": "time",
    "method.schedule": "every",
    "method.period": 1,
}

# What every reader of a record may count on, by dotted key; * is any.
NEEDED: dict[str, Any] = {
    "signature": str, "seed": int, "task": str, "model": str, "method": str, "r": float | None,
    "gamma": float | None, "metric": str, "dev": float, "test": float, "test_last": float, "best_epoch": int,
    "steps": int, "bp_s": float, "update_s": float, "total_s": float, "times_comparable": bool,
    "machine": str, "cpu": str, "device": str, "threads": int, "torch": str, "commit": str, "dirty": bool,
    "started_at": str, "history": list, "config": dict, "config.method": dict,
    "k_per_layer": dict, "k_per_layer.*": int,
}  # fmt: skip


def settings(cfg: DictConfig | Mapping[str, Any]) -> dict[str, Any]:
    """The resolved configuration as plain data, without paths and what is derived from them."""
    copy = DictConfig(cfg if isinstance(cfg, dict) else OmegaConf.to_container(cfg))
    for key in copy.get("paths", {}):
        copy.paths[key] = None
    plain = OmegaConf.to_container(copy, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def signature(cfg: DictConfig | Mapping[str, Any]) -> str:
    """8 hex digits over all that changes the learning result; equal for a record's own `config`."""
    counted = {key: canonical(value) for key, value in flat(settings(cfg)) if counts(key, value)}
    return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()[:8]


def flat(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves by dotted key; a list is a leaf."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def counts(key: str, value: Any) -> bool:
    ignored = any(key == name or key.startswith(f"{name}.") for name in IGNORED)
    return not ignored and value is not None and UNCOUNTED.get(key) != value


def canonical(value: Any) -> Any:
    """One form for equal values: 0.1 + 0.2 and 0.3, 1 and 1.0, a class wherever its module has moved to."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [canonical(item) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return format(value, ".12g")
    return value.rsplit(".", 1)[-1] if isinstance(value, str) and value.startswith("msbp.") else value


def different(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """The counted keys in which two settings differ, as `key: theirs, not ours`."""
    a, b = dict(flat(ours)), dict(flat(theirs))
    keys = [key for key in sorted(a | b) if counts(key, a.get(key)) or counts(key, b.get(key))]
    return [f"{key}: {b.get(key)}, not {a.get(key)}" for key in keys if a.get(key) != b.get(key)]


def seed_of(cfg: DictConfig) -> int:
    """The run's seed; ValueError unless it is one whole number."""
    seed = cfg.seed
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**64:
        raise ValueError(
            f"seed must be one whole number of at least 0 and below 2**64, got {seed!r}; for several runs "
            "use -m, as in: python -m src.train -m seed=0,1,2"
        )
    return seed


def asked(cfg: DictConfig, method: Any, k_per_layer: Mapping[str, int]) -> dict[str, Any]:
    """The record's first fields: what was asked for."""
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
    }


def summary(path: Path, record: Mapping[str, Any]) -> str:
    """What a user wants to know first, in four lines."""
    letters = "" if record["r"] is None else f" (r={record['r']:g}, gamma={record['gamma']:g})"
    sample = " on the tiny made-up sample" if record.get("sample") == "tiny" else ""
    reasons = ", ".join(record.get("disturbed", ["this run was disturbed"]))
    shared = "" if record["times_comparable"] else f"; times not comparable: {reasons}"
    kept = ", ".join(f"{layer} {k}" for layer, k in record["k_per_layer"].items())
    return (
        f"{record['task']}{sample}, {record['method']}{letters}, seed {record['seed']}: "
        f"test {record['metric']} {record['test']:.2f} at the best dev epoch ({record['best_epoch']}), "
        f"{record['test_last']:.2f} at the last\n"
        f"BP {record['bp_s']:.2f} s, BP + update {record['bp_s'] + record['update_s']:.2f} s, "
        f"total {record['total_s']:.2f} s over {record['steps']} steps, threads {record['threads']}{shared}\n"
        f"k per layer: {kept}\n"
        f"record: {path}"
    )


def write(
    folder: Path, record: Mapping[str, Any], angles: Sequence[Mapping[str, Any]] = (),
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


def angle_line(record: Mapping[str, Any], angle: Mapping[str, Any]) -> str:
    """One moment's angles with what was asked for, as a line of JSON; k is the first hidden layer's."""
    names = ("task", "sample", "method", "r", "gamma", "seed", "hidden", "signature", "k_per_layer")
    about = {
        "config": {name: record[name] for name in names},
        "k": next(iter(record["k_per_layer"].values())),
    }
    return json_text(about | dict(angle))


def find(outputs: Path, wanted: str, seed: int, data_digest: str = "") -> tuple[Path, dict[str, Any]] | None:
    """The newest record of this signature and seed below outputs; a damaged file is no record, and told."""
    found = []
    for path in outputs.rglob(NAME):
        try:
            record = parse(path.read_bytes())
        except (OSError, ValueError) as error:
            log.warning("%s does not count as a record: %s", path, error)
            continue
        theirs = record.get("data_digest") or data_digest  # earlier records have none
        if (record["signature"], record["seed"], theirs) == (wanted, seed, data_digest):
            found.append((record["started_at"], path, record))
    return max(found, key=lambda entry: entry[0])[1:] if found else None


def parse(content: bytes | str) -> dict[str, Any]:
    """A record out of its JSON; ValueError says what is wrong with it."""
    record = parsed(content)
    check(record, NEEDED, "record")
    return record
