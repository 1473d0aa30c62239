"""The parts of a step: they sum to it, cover every kernel, and leave training as it is."""

import ast
import sys
from pathlib import Path

import pytest
import torch
from numba.core.dispatcher import Dispatcher

import msbp.models.textcnn  # noqa: F401  (loads every layer)
from msbp import measurements, optim, sparse
from msbp.bench import breakdown, kernel_work
from msbp.bench.breakdown import replaced
from msbp.bench.case import BenchOptions
from msbp.bench.kernel_work import (
    DENSE_GRAD_W,
    DENSE_UPDATE,
    GRAD_W,
    GRAD_X,
    LOSS,
    PRODUCTS,
    SELECTION,
    SWEEP,
    UPDATED,
    WORKS,
    Work,
)
from msbp.config import compose
from msbp.sparse.kernels.chain_select import scratch_bytes
from msbp.sparse.linear import workspace

from .models import model

SETUP = {scratch_bytes}  # called where buffers are made, not in a step
FOLDERS = [Path(package.__file__).parent for package in (sparse, optim)]


def weights(timed):
    return [parameter.detach().clone() for parameter in timed.run.model.parameters()]


@pytest.fixture(scope="module")
def measured():
    timed = model("msbp")
    timed.steps(3)
    return breakdown.measure(timed, seconds=0, cycle=1)


def test_the_parts_sum_to_the_step(measured):
    assert sum(part["ms"] for part in measured["parts"]) == pytest.approx(measured["step_ms"], abs=1e-4)
    assert all(part["ms"] > 0 for part in measured["parts"])
    assert measured["steps"] == 3 and measured["peak_gflops"] > 0 and measured["peak_gb_s"] > 0
    assert measured["rows_gb_s"] > 0 and "rows_gb_s" not in breakdown.row_rate_of(model("dense"), 0)


def test_a_step_has_the_parts_of_its_phases(measured):
    by_phase = {}
    for part in measured["parts"]:
        by_phase.setdefault(part["phase"], set()).add(part["part"])
    assert list(by_phase) == ["data", "forward", "backward", "update"]
    assert {SWEEP, LOSS} <= by_phase["forward"]
    assert {SELECTION, GRAD_W} <= by_phase["backward"]
    assert {UPDATED, DENSE_UPDATE} <= by_phase["update"]


def test_work_is_that_of_the_shapes(measured):
    timed, (B, i, n, o, k) = model("msbp"), (8, 784, 20, 10, 1)
    timed.steps(1)
    _, works = breakdown.replay(timed, 2)
    assert works["backward", GRAD_W].flops == 2 * B * k * (i + n)
    assert works["backward", DENSE_GRAD_W] == Work(4 * (o * B + B * n + o * n), 2 * B * n * o)
    assert works["backward", GRAD_X].flops == 2 * B * (n * o + k * n)
    assert works["forward", SWEEP].bytes == 8 * B * (2 * n + o)
    assert works["forward", PRODUCTS].flops <= 2 * B * (i * n + n * n + n * o)


CASES = {
    "mnist": ["task.sample=tiny", "model.hidden=20", "task.batch_size=8"],
    "parsing": ["task.sample=tiny", "model.hidden=20", "task.batch_size=64"],
    "pos": ["task.sample=tiny", "model.hidden=20"],
    "textcnn": ["task.sample=tiny"],
}


@pytest.mark.parametrize(("case", "overrides"), CASES.items(), ids=CASES)
def test_replays_do_not_change_training(case, overrides):
    options = BenchOptions.of(compose([f"case={case}", f"overrides={overrides}"], config="bench"))
    plain, replayed = model("msbp", options=options), model("msbp", options=options)
    plain.steps(3)
    ratios, works = breakdown.replay(replayed, 3)
    assert all(map(torch.equal, weights(plain), weights(replayed)))
    memories = [dict(each.run.model.named_buffers()) for each in (plain, replayed)]
    assert memories[0].keys() == memories[1].keys()
    assert all(torch.equal(m, memories[1][name]) for name, m in memories[0].items())
    assert {(phase, part) for phase, _, part in ratios} <= works.keys()


def test_rewinding_repeats_the_batches():
    timed, batches = model("dense"), []
    for _ in range(2):
        timed.rewind()
        timed.examples.clear()
        timed.steps(2)
        batches.append(next(iter(timed.examples.values())))
    assert all(map(torch.equal, *batches))


def test_every_row_of_a_case_has_a_breakdown():
    timed = model("torch")
    measured = breakdown.measure(timed, seconds=0, cycle=1)
    assert breakdown.TORCH_PRODUCTS in {part["part"] for part in measured["parts"]}
    assert sum(part["ms"] for part in measured["parts"]) == pytest.approx(measured["step_ms"], abs=1e-4)


def test_kernels_are_restored_after_an_error():
    before = workspace.backward
    with pytest.raises(ZeroDivisionError), replaced(lambda kernel: None):
        assert workspace.backward is None
        raise ZeroDivisionError
    assert workspace.backward is before


def called(path):
    """Kernels that the Python of a file refers to, by their names in it."""
    name = ".".join(["msbp", *path.relative_to(FOLDERS[0].parent).with_suffix("").parts])
    names = vars(sys.modules[name]) if name in sys.modules else {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name):
            yield names.get(node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield getattr(names.get(node.value.id), node.attr, None)


def test_every_kernel_that_python_calls_is_timed():
    files = [
        path
        for folder in FOLDERS
        for path in folder.rglob("*.py")
        if "kernels" not in (path.parent.name, path.stem)
    ]
    kernels = {each for path in files for each in called(path) if isinstance(each, Dispatcher)}
    assert kernels - SETUP == set(WORKS)


def test_arguments_have_the_names_of_the_kernel():
    call = kernel_work.arguments(workspace.weight_gradients, (1, 2, 3, 4))
    assert call == {"table": 1, "count": 2, "B": 3, "threads": 4}


def test_a_breakdown_is_a_result_that_analysis_reads(measured):
    about = {"case": "mnist", "sweep": None, "threads": 1, "allocator": "keep", "cpu": "A", "torch": "2"}
    about |= {"blas": "mkl", "commit": "0", "dirty": False, "row": "msbp"}
    assert measurements.checked(about | measured)
    with pytest.raises(ValueError, match="parts sum to"):
        measurements.checked(about | measured | {"step_ms": measured["step_ms"] + 1})
