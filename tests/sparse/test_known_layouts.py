"""Tensors that were checked once are checked again at each use, all at once, with the same outcome."""

import copy
import pickle

import pytest
import torch
from torch import nn

from msbp.sparse import SparseLinear, convert
from msbp.sparse.buffers import Layouts, address_of


def tensors():
    """A weight, its bias, and a moment."""
    return [nn.Parameter(torch.randn(6, 4)), nn.Parameter(torch.randn(6)), torch.randn(6, 4)]


def addresses(found):
    return [0 if tensor is None else tensor.data_ptr() for tensor in found]


@pytest.mark.parametrize("absent", [None, 0, 1, 2])
def test_equal_layouts_give_the_addresses_of_the_tensors_at_hand(absent):
    first, others = tensors(), tensors()
    if absent is not None:
        first[absent] = others[absent] = None
    known = Layouts(first)
    assert known.addresses(first) == addresses(first)
    assert known.addresses(others) == addresses(others)


def emptied(tensor):
    tensor = tensor.detach().clone()
    tensor.untyped_storage().resize_(0)
    return tensor


CHANGES = {
    "a type": lambda t: t.double(),
    "a half type": lambda t: t.bfloat16(),
    "another shape": lambda t: torch.randn(6, 5),
    "one row more": lambda t: torch.randn(7, 4),
    "another number of dimensions": lambda t: torch.randn(24),
    "columns in turn": lambda t: torch.randn(4, 6).t(),
    "a negative view": torch._neg_view,
    "zeros that are not in memory": lambda t: torch._efficientzerotensor(t.shape),
    "meta": lambda t: t.to("meta"),
    "sparse": lambda t: t.detach().to_sparse(),
    "a subclass": lambda t: t.detach().as_subclass(type("Other", (torch.Tensor,), {})),
    "memory that was freed": emptied,
    "nothing": lambda t: None,
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_one_by_one_has_no_address_has_none_among_others(change):
    found = tensors()
    known = Layouts(found)
    found[2] = CHANGES[change](found[2])
    assert found[2] is None or not address_of(found[2], (6, 4))
    assert known.addresses(found) is None


def test_a_tensor_where_none_was_and_a_wrong_number_of_tensors_have_no_addresses():
    found = tensors()
    assert Layouts([found[0], None, found[2]]).addresses(found) is None
    assert Layouts([found[0], None, found[2]]).addresses([None, *found[1:]]) is None
    assert Layouts(found).addresses(found[:2]) is None
    assert Layouts(found[:2]).addresses(found) is None


def test_without_torchs_check_there_are_no_addresses(monkeypatch):
    monkeypatch.setattr("msbp.sparse.buffers.TENSOR_GUARDS", None)
    found = tensors()
    assert Layouts(found).addresses(found) is None


def layer(bias):
    return SparseLinear(30, 40, bias=bias, k=5, gamma=0.8)


def chain(bias):
    model = nn.Sequential(nn.Linear(30, 40, bias=bias), nn.ReLU(), nn.Linear(40, 8))
    convert(model, r=0.2, gamma=0.8, layers="0")
    return model


@pytest.mark.parametrize("bias", [True, False], ids=["with a bias", "without"])
@pytest.mark.parametrize("build", [layer, chain])
def test_training_is_the_same_without_torchs_check(build, bias, monkeypatch):
    model, x = build(bias), torch.randn(9, 30)
    other = copy.deepcopy(model)

    def gradients(module):
        for _ in range(3):
            module.zero_grad()
            module(x).square().sum().backward()
        return [p.grad.clone() for p in module.parameters()]

    expected = gradients(model)
    monkeypatch.setattr("msbp.sparse.buffers.TENSOR_GUARDS", None)
    for actual, known in zip(gradients(other), expected, strict=True):
        assert torch.equal(actual, known)


@pytest.mark.parametrize("build", [layer, chain])
def test_a_layer_that_has_been_used_can_be_copied_and_pickled(build):
    model, x = build(True), torch.randn(9, 30)
    model(x).sum().backward()
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(x), model(x))
