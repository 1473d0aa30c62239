"""A step that checks all of its tensors at once is the step that checks each of them."""

import copy

import pytest
import torch
from torch import nn

from msbp import optim
from msbp.optim import fused
from msbp.sparse.row_sparse import RowSparseGradient
from msbp.sparse.torch_compat import TENSOR_GUARDS
from tests.boundary.fuzz import ACTIONS, Side
from tests.optim.twins import OPTIMIZERS, batch, each_optimizer, network

BEFORE = 4  # steps, from the third of which on the kernel's tensors are checked at once


def one_by_one(monkeypatch, act):
    """Return what a function returns where each tensor is checked on its own."""
    with monkeypatch.context() as patch:
        patch.setattr(fused, "collect", lambda *args: None)
        return act()


def backward(side, data):
    side.optimizer.zero_grad()
    nn.functional.cross_entropy(side.model(data[0]), data[1]).backward()


def train(side, batches, before_step):
    for number, data in enumerate(batches):
        backward(side, data)
        before_step(side, number)
        side.optimizer.step()


def everything(side):
    """Return all tensors and numbers of a network and its optimizer."""
    values = dict(side.model.state_dict())
    for at, p in enumerate(side.model.parameters()):
        state = side.optimizer.state.get(p, {})
        values |= {f"state {name} of {at}": torch.as_tensor(value) for name, value in state.items()}
    return values


def assert_equal(side, other):
    values, expected = everything(side), everything(other)
    assert values.keys() == expected.keys()
    for name, value in values.items():
        assert value.dtype is expected[name].dtype and torch.equal(value, expected[name]), name


def sides(ours):
    model = network()
    optimizer = ours(model.parameters())
    return [Side(*copy.deepcopy((model, optimizer)), ["0", "2"]) for _ in range(2)]


def nothing(side, number):
    pass


def in_turns(side, number):
    """Give each parameter all kinds of gradients: none, dense, and as the backward pass formed it."""
    for at, p in enumerate(side.model.parameters()):
        if (number + at) % 5 == 0:
            p.grad = None
        elif (number + at) % 5 == 1:
            p.grad = p.grad.to_dense().clone()


def without_rows(side, number):
    for p in side.model.parameters():
        if number % 3 and type(p.grad) is RowSparseGradient:
            p.grad = RowSparseGradient(torch.empty(0, dtype=torch.int64), torch.empty(0, p.shape[1]), len(p))


def without_moments(side, number):
    """Drop the state of parameters with dense gradients, as if each step were their first."""
    for state in side.optimizer.state.values():
        for name in ("exp_avg", "exp_avg_sq", "momentum_buffer"):
            if "last_step" not in state and number % 4:
                state.pop(name, None)


def long_ages(side, number):
    for state in side.optimizer.state.values():
        if "last_step" in state and number % 3:
            state["last_step"] = state["last_step"].long()


@each_optimizer
@pytest.mark.parametrize("before_step", [nothing, in_turns, without_rows, without_moments, long_ages])
def test_a_run_is_the_same(ours, theirs, before_step, monkeypatch):
    batches = [batch() for _ in range(12)]
    side, other = sides(ours)
    train(side, batches, before_step)
    one_by_one(monkeypatch, lambda: train(other, batches, before_step))
    assert_equal(side, other)


def test_gradients_that_were_read_and_numbers_as_parameters_are_updated():
    weight, number = nn.Parameter(torch.zeros(20, 8)), nn.Parameter(torch.zeros(()))
    optimizer = optim.Adam([weight, number])
    for _ in range(BEFORE):
        number.grad, weight.grad = torch.ones(()), RowSparseGradient(torch.arange(3), torch.ones(3, 8), 20)
        assert weight.grad.sum() == 24  # reading it makes it dense
        optimizer.step()
    assert number < 0 and (weight[:3] < 0).all() and (weight[3:] == 0).all()


def test_most_steps_check_tensors_at_once(monkeypatch):
    each = []
    update = optim.Adam._update_each
    monkeypatch.setattr(optim.Adam, "_update_each", lambda self, *args: each.append(1) or update(self, *args))
    side, _ = sides(optim.Adam)
    train(side, [batch() for _ in range(10)], nothing)
    assert len(each) == (10 if TENSOR_GUARDS is None else 2)


def after(side, data, change):
    """Return the error of a change before a step, or of the step; None if there is none."""
    backward(side, data)
    try:
        change(side)
        side.optimizer.step()
    except Exception as error:
        return type(error), str(error)
    return None


@pytest.mark.parametrize("number", [0, 1, 4])  # a weight and a bias of sparse layers, a dense weight
@pytest.mark.parametrize("change", ACTIONS)
@pytest.mark.parametrize("name", ["Adam", "SGD with momentum"])
def test_a_changed_tensor_has_the_same_outcome(name, change, number, monkeypatch):
    batches = [batch() for _ in range(BEFORE + 1)]
    side, other = sides(OPTIMIZERS[name][0])
    train(side, batches[:-1], nothing)
    one_by_one(monkeypatch, lambda: train(other, batches[:-1], nothing))

    def act(each):
        return after(each, batches[-1], lambda each: ACTIONS[change](each, number))

    assert act(side) == one_by_one(monkeypatch, lambda: act(other))
    assert_equal(side, other)


@pytest.mark.parametrize("strided", ["rows", "indices", "both"])
def test_rows_that_are_not_contiguous_are_refused_although_a_single_one_was(strided):
    weight = nn.Parameter(torch.zeros(20, 8))
    optimizer = optim.Adam([weight])
    rows, indices = torch.randn(20, 32)[:, :8], torch.arange(20).repeat_interleave(2)[::2]
    rows = rows if strided != "indices" else rows.contiguous()
    indices = indices if strided != "rows" else indices.contiguous()
    for _ in range(BEFORE):
        weight.grad = RowSparseGradient(indices[:1], rows[:1], 20)
        optimizer.step()
    weight.grad = RowSparseGradient(indices[:5], rows[:5], 20)
    with pytest.raises(RuntimeError, match="contiguous"):
        optimizer.step()
