"""Medians, arithmetic and memory of a step."""

import os
import signal
import sys

import numpy as np
import pytest
import torch

from msbp.bench.costs import Flops, backward_flops, compared, in_cycles, output_share, peak_mib, row
from msbp.bench.timed_model import Timing
from msbp.models.mlp import MLP

from .models import model

A, B, C = (torch.Size([n]) for n in (1, 2, 3))


def test_arithmetic_of_a_dense_backward_pass():
    plain = model("torch")
    plain.steps(1)
    (flops,) = backward_flops(plain.run.task, plain.run.model, plain.examples).values()
    hidden, output = 784 * 20 + 20 * 20, 20 * 10
    assert flops.backward == 2 * 8 * (hidden + 20 * 20 + 2 * output)  # no gradient of the pixels
    assert flops.hidden_share == hidden / (hidden + output)
    assert flops.at(1) == flops.backward
    assert flops.at(0.5) == pytest.approx(flops.backward * (1 - flops.hidden_share / 2))


def test_counting_does_not_change_the_model_and_the_random_state():
    plain, state = model("torch"), torch.get_rng_state()
    plain.steps(1)
    backward_flops(plain.run.task, plain.run.model, plain.examples)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in plain.run.model.parameters())


def test_a_row_has_medians_over_the_steps_of_all_repetitions():
    seconds = np.array([[0.0, 1, 2, 3], [0, 1, 4, 3], [0, 1, 9, 3]]) / 1000
    parts = [Timing(seconds[:1], [(A,)]), Timing(seconds[1:], [(A,), (A,)])]
    mine = row(model("sbp"), parts, {(A,): Flops(1e9, 1.0)}, cycle=1)
    assert (mine["bp_ms"], mine["bp_update_ms"], mine["total_ms"], mine["steps"]) == (4, 7, 8, 3)
    assert (mine["bp_p10_ms"], mine["bp_p90_ms"]) == (2.4, 8)
    plain = mine | {"name": "torch", "bp_ms": 8.0, "bp_update_ms": 14.0, "total_ms": 8.0}
    ratios = compared([plain, mine])[1]
    assert ratios["vs_torch"] == {"bp": 2, "bp_update": 2, "total": 1} and ratios["vs_dense"] is None


def test_arithmetic_and_time_are_of_the_same_steps():
    seconds = np.array([[0, 0, 1, 0], [0, 0, 4, 0], [0, 0, 100, 0]], dtype=float)
    flops = {(A,): Flops(1e9, 1.0), (B,): Flops(4e9, 1.0)}  # that of the third step is not known
    mine = row(model("dense"), [Timing(seconds, [(A,), (B,), (C,)])], flops, cycle=1)
    assert mine["bp_gflops"] == 1
    assert (
        row(model("sbp"), [Timing(seconds, [(A,), (B,), (C,)])], flops, cycle=1)["bp_gflops"] == 0.04
    )  # 1 of 20


def test_steps_of_a_cycle_count_as_one():
    seconds = np.array([[0, 0, bp, 0] for bp in (1.0, 3, 1, 5, 1, 7)])
    assert in_cycles(seconds, 2)[:, 2].tolist() == [2, 3, 4]
    mine = row(model("dense"), [Timing(seconds, [(A,)] * 6)], {(A,): Flops(3e9, 1.0)}, cycle=2)
    assert (mine["bp_ms"], mine["steps"], mine["bp_gflops"]) == (3000, 6, 1)


def test_only_a_layer_of_its_own_has_an_output_share():
    plain = model("torch")
    plain.run.model = MLP(4, 3)
    assert output_share(plain) is None


def test_the_peak_is_the_memory_held_at_the_same_time():
    def work():
        for _ in range(3):
            torch.ones(8 << 20)  # 32 MiB

    torch.ones(4 << 20)  # freed before, so it must not serve the work unseen
    assert 31 < peak_mib("msbp", work) < 36


def kill():
    os.kill(os.getpid(), signal.SIGKILL)  # as the system does where memory is short


@pytest.mark.parametrize(("work", "code"), [(kill, -9), (lambda: 1 / 0, 1), (lambda: sys.exit(3), 3)])
def test_work_whose_process_ends_has_no_peak_and_a_warning_in_one_line(work, code, caplog):
    assert peak_mib("msbp", work) is None
    (warning,) = caplog.messages
    reason = f"its process ended with exit code {code}"
    assert warning == f"memory of msbp is not measured: {reason}; more free memory may help"


def test_work_for_which_there_is_no_process_has_no_peak(monkeypatch, caplog):
    monkeypatch.setattr(os, "fork", lambda: (_ for _ in ()).throw(OSError(12, "Cannot allocate memory")))
    assert peak_mib("msbp", int) is None
    assert caplog.messages == [
        "memory of msbp is not measured: [Errno 12] Cannot allocate memory; more free memory may help"
    ]
