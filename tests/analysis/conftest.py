"""Records as the trainer writes them, and settings that need no composing."""

import json

import pytest

from msbp.analysis.runs import angle_frame, run_frame
from msbp.analysis.settings import Setting
from msbp.record import Record

LETTERS = {"baseline": (None, None), "sbp": (0.04, 0.0), "msbp": (0.04, 0.8)}


def record_of(signature="5e77e000", seed=0, **fields):
    """A finished run of MNIST, 20 epochs, on machine A; fields override its own."""
    record = {
        "signature": signature, "seed": seed, "task": "mnist", "method": "msbp", "model": "mlp",
        "r": 0.04, "gamma": 0.8, "hidden": 500, "k_per_layer": {"hidden.0": 20}, "sample": "full",
        "data_s": 0.5, "forward_s": 10.0, "bp_s": 2.0, "update_s": 6.0, "total_s": 18.5, "steps": 34380,
        "times_comparable": True, "resumed": False, "metric": "accuracy", "dev": 98.3, "test": 98.2,
        "test_last": 98.1, "best_epoch": 18, "metric_signature": "accuracy", "dropped_fraction": {},
        "history": [], "commit": "1234567890abcdef", "dirty": False, "machine": "a" * 8, "cpu": "EPYC",
        "device": "cpu", "threads": 1, "python": "3.11", "torch": "2.14.1", "blas": "mkl",
        "timing_rule": 2, "started_at": f"2025-01-01T00:00:{seed:02d}+00:00",
        "config": {
            "paths": {"data": "/home/me/data"}, "method": {"name": "msbp"},
            "task": {"name": "mnist", "data": "/home/me/data"},
        },
    }  # fmt: skip
    return record | fields


def settle(overrides):
    """The setting of a row, its overrides standing for the signature."""
    method = next(word.removeprefix("method=") for word in overrides if word.startswith("method="))
    return Setting(" ".join(overrides), *LETTERS.get(method, (0.04, None)), hidden=500)


def runs_of(records):
    stored = [json.loads(json.dumps(record)) for record in records]
    return run_frame(("a test 1", record, Record.model_validate(record)) for record in stored)


@pytest.fixture(name="record_of", scope="session")
def _record_of():
    return record_of


@pytest.fixture(name="settle", scope="session")
def _settle():
    return settle


@pytest.fixture
def angles_of():
    """The measurements of angles as a DataFrame."""
    return angle_frame


@pytest.fixture(name="runs_of", scope="session")
def _runs_of():
    return runs_of
