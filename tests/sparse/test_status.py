"""status, dense and memories in the state_dict."""

import copy
import io

import pytest
import torch
from torch import nn

from msbp import sparse
from msbp.sparse import convert, cross_entropy, dense, fuse, memories, revert, status

from .problems import mlp


def step(model, x):
    model.zero_grad()
    model(x).square().sum().backward()


def test_a_table_lists_every_layer_with_its_settings():
    model = mlp(6, 20, 12, 3)
    convert(model, 0.25, 0.5, memory="per_slot", layers=["0"])
    rows = {row.name: row for row in status(model)}
    assert list(rows) == ["0", "2", "4"]
    assert (rows["0"].k, rows["0"].n, rows["0"].gamma, rows["0"].memory) == (5, 20, 0.5, "SlotMemory")
    assert (rows["2"].k, rows["2"].kind, rows["2"].path) == (0, "Linear", "dense, by kernel")
    assert sum(row.expected for row in rows.values()) == pytest.approx(1)
    assert all(row.measured is None for row in rows.values())
    lines = str(status(model)).splitlines()
    assert len(lines) == 4 and lines[0].split()[:3] == ["layer", "kind", "n"] and "SlotMemory" in lines[1]


def test_a_sample_adds_measured_shares_of_the_layers_that_run():
    model = mlp(6, 20, 12, 3)
    convert(model, 0.25)
    rows = status(model, sample=torch.randn(4, 6))
    assert sum(row.measured for row in rows) == pytest.approx(1)


def test_a_table_gives_the_reason_for_a_layer_that_is_dense_or_in_plain_torch():
    model = mlp(6, 20, 12, 12, 3)
    convert(model, 0.25)
    model[0].double()
    model[2].enabled = False
    model[4].eval()
    assert [row.path for row in status(model)] == [
        "torch: float64", "dense: enabled=False", "dense: in evaluation mode", "dense, by kernel",
    ]  # fmt: skip
    assert [row.k for row in status(model)] == [5, 0, 0, 0]


def test_every_kind_of_layer_has_a_row():
    model = nn.ModuleDict({
        "lstm": nn.LSTM(4, 8), "conv": nn.Conv1d(4, 8, 3), "image": nn.Conv2d(3, 8, 3),
        "out": nn.Linear(8, 3),
    })  # fmt: skip
    convert(model, 0.5, 0.8, layers=["lstm", "conv", "image"])
    assert [(row.n, row.k, row.memory) for row in status(model)][:3] == [(8, 4, "SharedMemory")] * 3


def test_within_the_dense_context_layers_are_dense_and_memories_unchanged():
    model, plain, x = mlp(6, 20, 12, 3), mlp(6, 20, 12, 3), torch.randn(4, 6)
    plain.load_state_dict(model.state_dict())
    convert(model, 0.1)
    model[2].enabled = False
    step(model, x)
    before = {name: memory.m.clone() for name, memory in memories(model).items()}
    with dense(model):
        step(model, x)
        step(plain, x)
        assert [row.k for row in status(model)] == [0, 0, 0]
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad.to_dense(), q.grad)
    assert all(torch.equal(memory.m, before[name]) for name, memory in memories(model).items())
    assert model[0].enabled and not model[2].enabled


def test_the_dense_context_restores_layers_after_an_error():
    model = mlp(6, 20, 3)
    convert(model)
    with pytest.raises(KeyError), dense(model):
        raise KeyError
    assert model[0].enabled


NETWORKS = {
    "Linear": (lambda: mlp(6, 20, 3), lambda: torch.randn(4, 6), ["0.memory.m"]),
    "LSTM": (
        lambda: nn.Sequential(nn.LSTM(6, 8, bidirectional=True)),
        lambda: torch.randn(5, 4, 6),
        ["0.memory.l0.m", "0.memory.l0_reverse.m"],
    ),
    "Conv1d": (
        lambda: nn.Sequential(nn.Conv1d(6, 8, 3)), lambda: torch.randn(4, 6, 9), ["0.memory.m"],
    ),
}  # fmt: skip
each_network = pytest.mark.parametrize(("build", "data", "keys"), NETWORKS.values(), ids=NETWORKS)


def backward(model, x):
    out = model(x)
    (out[0] if isinstance(out, tuple) else out).square().sum().backward()


@each_network
@pytest.mark.parametrize("memory", ["shared", "per_slot"])
def test_memory_is_in_the_state_dict_when_requested(build, data, keys, memory):
    model = build()
    plain, other = copy.deepcopy(model), copy.deepcopy(model)
    for network in (model, other):
        convert(network, 0.25, 0.8, memory=memory, layers=["0"], save_memory=True)
    for _ in range(3):
        backward(model, data())
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    state = torch.load(io.BytesIO(buffer.getvalue()))
    assert set(state) - set(plain.state_dict()) == set(keys)
    other.load_state_dict(state)
    loaded = memories(other)
    for name, each in memories(model).items():
        assert each.m.any() and torch.equal(each.m, loaded[name].m)
    missing, unexpected = plain.load_state_dict(state, strict=False)
    assert not missing and set(unexpected) == set(keys)
    model.load_state_dict(plain.state_dict())  # weights of a plain model leave the memory as it is
    assert all(torch.equal(each.m, loaded[name].m) for name, each in memories(model).items())


@each_network
def test_memory_stays_out_of_the_state_dict_by_default_and_after_revert(build, data, keys):
    model = build()
    plain = list(model.state_dict())
    convert(model, layers=["0"])
    assert list(model.state_dict()) == plain
    revert(model)
    convert(model, layers=["0"], save_memory=True)
    assert list(model.state_dict()) != plain
    revert(model)
    assert list(model.state_dict()) == plain


@pytest.mark.parametrize("gamma", [0.0, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@each_network
def test_a_layer_that_is_reverted_before_the_backward_pass_is_refused(build, data, keys, dtype, gamma):
    model = build().to(dtype)
    convert(model, 0.25, gamma, layers=["0"])
    out = model(data().to(dtype))
    revert(model)
    with pytest.raises(RuntimeError, match="was reverted between the forward and the backward"):
        (out[0] if isinstance(out, tuple) else out).sum().backward()


def test_the_direct_backward_pass_refuses_a_reverted_layer_as_well():
    model = mlp(6, 20, 3)
    convert(model)
    loss = cross_entropy(model(torch.randn(4, 6)), torch.tensor([0, 1, 2, 0]))
    revert(model)
    with pytest.raises(RuntimeError, match="was reverted"):
        sparse.backward(loss)


def test_memory_of_another_width_is_refused_by_key():
    model = mlp(6, 20, 3)
    convert(model, save_memory=True)
    state = model.state_dict() | {"0.memory.m": torch.zeros(1, 7)}
    with pytest.raises(RuntimeError, match=r"0\.memory\.m: SharedMemory of width 20 got a memory of shape"):
        model.load_state_dict(state)


def test_a_second_conversion_clears_the_remarks_of_the_first():
    model = nn.Sequential(nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 2))
    convert(model, exclude=["2"])
    assert "excluded" in str(status(model))
    revert(model)
    assert "excluded" not in str(status(model))
    convert(model, exclude=["2"])
    convert(model, layers=["2"])
    assert "excluded" not in str(status(model))


def test_a_memory_that_is_not_finite_is_not_loaded():
    model = nn.Sequential(nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 2))
    convert(model, save_memory=True)
    state = model.state_dict()
    state["0.memory.m"] = torch.full_like(state["0.memory.m"], torch.nan)
    with pytest.raises(RuntimeError, match="0.memory.m: SharedMemory got a memory that is not finite"):
        model.load_state_dict(state)
    assert memories(model)["0"].m.isfinite().all()


def test_layers_of_a_fused_model_are_dense_by_kernel_within_a_chain_alone():
    model = nn.ModuleDict({"net": mlp(6, 8, 3), "alone": nn.Linear(6, 3), "rnn": nn.LSTM(6, 8)})
    assert {row.path for row in status(model)} == {"torch"}
    fuse(model)
    paths = {row.name: row.path for row in status(model)}
    assert paths == {
        "net.0": "dense, by kernel", "net.2": "dense, by kernel", "alone": "torch", "rnn": "dense, by kernel",
    }  # fmt: skip
    assert {row.path for row in status(model.double())} == {"torch"}
