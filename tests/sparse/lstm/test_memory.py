"""The sparse backward pass of an LSTM compared with the paper's algorithms, memory included.

Letters: T time steps, B sequences, i input_size, H hidden_size, k kept of a gate.
"""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from msbp.sparse import convert, memories

from ..problems import assert_close, each_dtype, gradients, memory_of
from .oracle import LSTMOracle, lstm

STEPS = {
    "shared": {},
    "a memory per slot": {"memory": "per_slot"},
    "a memory that passes on": {"memory": "sequential"},
    "no memory": {"gamma": 0.0},
    "all gates together": {"gates": "joint"},
    "waiting for the batch": {"carry": "batch"},
    "waiting for the batch, a memory per slot": {"carry": "batch", "memory": "per_slot"},
    "waiting for the batch, all gates together": {"carry": "batch", "gates": "joint"},
}


@each_dtype
@pytest.mark.parametrize("choices", STEPS.values(), ids=STEPS)
def test_three_batches_follow_the_papers_algorithms_step_by_step(dtype, choices):
    """Several lengths, batches that shrink and grow. A batch in which float32 could not tell an entry that is
    kept from one that is not is left out, and the oracle takes over the memory: two right answers may differ
    there."""
    check_against_oracle(dtype, batches=[[5, 3, 3], [2], [4, 4, 1, 1]], H=23, choices=choices)


@pytest.mark.parametrize("choices", [STEPS["shared"], STEPS["a memory per slot"]], ids=["shared", "per slot"])
def test_the_papers_width_follows_the_algorithms(choices):
    check_against_oracle(torch.float32, batches=[[4, 3], [3, 1]], H=500, choices=choices, r=0.04)


def check_against_oracle(dtype, batches, H, choices, r=0.2):
    settings = {"gamma": 0.8, "memory": "shared", "carry": "time", "gates": "per_gate"} | choices
    model = nn.ModuleDict({"rnn": lstm(9, H, dtype)})
    k = convert(model, r, **settings, layers=["rnn"])["rnn"]
    rnn, decided = model["rnn"], 0
    bias = (rnn.bias_ih_l0 + rnn.bias_hh_l0).detach()
    oracle = LSTMOracle(rnn.weight_ih_l0.detach(), rnn.weight_hh_l0.detach(), bias, k, **settings)
    for lengths in batches:
        rows = [torch.randn(n, 9, dtype=dtype).requires_grad_() for n in lengths]
        grad = torch.randn(max(lengths), len(lengths), H, dtype=dtype)
        rnn.zero_grad()
        out, _ = rnn(pack_sequence(rows))
        (pad_packed_sequence(out)[0] * grad).sum().backward()
        x = nn.utils.rnn.pad_sequence(rows).detach()
        assert_close({"out": pad_packed_sequence(out)[0]}, {"out": oracle.forward(x, lengths)})
        expected = oracle.backward(grad)
        if dtype is torch.float64 or oracle.margin > 3e-6:
            decided += 1
            actual = {"ih": rnn.weight_ih_l0.grad, "hh": rnn.weight_hh_l0.grad, "bias": rnn.bias_ih_l0.grad}
            actual["x"] = nn.utils.rnn.pad_sequence([row.grad for row in rows])
            assert_close(actual, expected, 1e-10 if dtype is torch.float64 else 1e-4)
            assert torch.equal(rnn.bias_ih_l0.grad, rnn.bias_hh_l0.grad)
            assert_close(memory_of(model), {"rnn.l0": stacked(oracle)} if oracle.gamma else {}, 1e-4)
        oracle.m = {i: row.double() for m in memory_of(model).values() for i, row in enumerate(m)}
    assert decided >= len(batches) - 1


def stacked(oracle: LSTMOracle) -> Tensor:
    return torch.stack([m for _, m in sorted(oracle.m.items())])


def test_a_slots_memory_is_unchanged_outside_its_sequence():
    model = nn.ModuleDict({"rnn": lstm(9, 10)})
    convert(model, 0.1, 0.5, memory="per_slot", layers=["rnn"])
    nn.init.zeros_(model["rnn"].weight_hh_l0)
    memories(model)["rnn.l0"].load(torch.arange(1.0, 41.0).double().expand(3, 40))
    rows = [torch.randn(n, 9).double() for n in (3, 1)]
    (model["rnn"](pack_sequence(rows))[0].data * 0).sum().backward()
    m = memory_of(model)["rnn.l0"].view(3, 4, 10)
    gate = torch.arange(1.0, 41.0).double().view(4, 10)
    for slot, steps in enumerate((3, 1, 0)):  # the largest entry leaves at each step, the rest is halved
        assert torch.equal(m[slot, :, : 10 - steps], gate[:, : 10 - steps] * 0.5**steps)
        assert not m[slot, :, 10 - steps :].any()


@pytest.mark.parametrize("carry", ["time", "batch"])
@pytest.mark.parametrize("gates", ["per_gate", "joint"])
def test_kept_part_and_memory_sum_to_the_gradient(carry, gates):
    """Over a pass: the sums of g and of ∂ℓ/∂h differ by the memory's change, in float64."""
    model, gamma = nn.ModuleDict({"rnn": lstm(9, 10)}), 0.8
    convert(model, 0.2, gamma, carry=carry, gates=gates, layers=["rnn"])
    rnn, seen = model["rnn"], []
    estimate = rnn.estimate

    def watched(grad_gates, carry):
        before = grad_gates.clone()
        seen.append((before, estimate(grad_gates, carry)[0]))
        return seen[-1][1], None

    rnn.estimate = watched
    for _ in range(2):
        m, seen[:] = memory_of(model)["rnn.l0"][0], []
        rnn(torch.randn(5, 3, 9).double())[0].square().sum().backward()
        if carry == "batch":
            came, went = sum(grad.sum(0) for grad, _ in seen) + 15 * m, sum(g.sum(0) for _, g in seen)
            assert torch.allclose(went + 15 * memory_of(model)["rnn.l0"][0] / gamma, came)
        else:
            for grad, g in seen:
                came, m = grad.sum(0) + 3 * m, gamma * (grad + m - g).mean(0)
                assert torch.allclose(g.sum(0) + 3 * m / gamma, came)
            assert torch.allclose(m, memory_of(model)["rnn.l0"][0])


@each_dtype
def test_padding_affects_neither_gradients_nor_memory(dtype):
    model = nn.ModuleDict({"rnn": lstm(9, 16, dtype, bidirectional=True)})
    convert(model, 0.1, 0.0, layers=["rnn"])
    rows = [torch.randn(n, 9, dtype=dtype) for n in (2, 5, 1)]
    for row in rows:
        model["rnn"](row.unsqueeze(1))[0].square().sum().backward()
    alone = gradients(model)
    model.zero_grad()
    model["rnn"](pack_sequence(rows, enforce_sorted=False))[0].data.square().sum().backward()
    assert_close(gradients(model), alone, 1e-12 if dtype is torch.float64 else 1e-5)


@each_dtype
def test_a_full_bias_gradient_sums_every_entry(dtype):
    """On the last time step alone, as what comes before it depends on what was kept."""
    x, actual = torch.randn(1, 3, 9, dtype=dtype), {}
    plain = lstm(9, 16, dtype)
    for bias in ("sparse", "full"):
        model = nn.ModuleDict({"rnn": copy.deepcopy(plain)})
        convert(model, 0.1, bias=bias, layers=["rnn"])
        model["rnn"](x)[0].square().sum().backward()
        actual[bias] = model["rnn"].bias_ih_l0.grad
    plain(x)[0].square().sum().backward()
    assert_close({"b": actual["full"]}, {"b": plain.bias_ih_l0.grad})
    assert int((actual["sparse"] != 0).sum()) < int((actual["full"] != 0).sum())


def test_unified_selection_keeps_the_same_columns_for_a_time_step():
    model = nn.ModuleDict({"rnn": lstm(9, 16, torch.float32)})
    convert(model, 0.1, selection="unified", layers=["rnn"])
    rnn, seen = model["rnn"], []
    sparsify = rnn.sparsify
    rnn.sparsify = lambda carried: seen.append(sparsify(carried)) or seen[-1]
    rnn(torch.randn(4, 3, 9))[0].square().sum().backward()
    assert all(int((g != 0).any(0).sum()) <= 4 * rnn.k for g in seen)
    assert len(seen) == 4
