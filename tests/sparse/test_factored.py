"""A weight whose gradient waits as factors looks like any parameter to whoever touches `.grad`.

Letters: B batch, i in_features, n out_features, c classes.
"""

import copy

import pytest
import torch
from torch import nn

from msbp import optim
from msbp.sparse import convert

from .problems import assert_close, each_entry, gradients, mlp

B, i, n, c = 6, 10, 16, 3
OPTIMIZERS = {"ours": lambda p: optim.SGD(p, 0.1), "torch's": lambda p: torch.optim.SGD(p, 0.1)}


def batch():
    return torch.randn(B, i), torch.randint(c, (B,))


@pytest.fixture
def networks():
    """A sparse network, and an equal one whose gradients are always taken at once as dense tensors."""
    model = mlp(i, n, n, c)
    convert(model, r=0.2)
    twin = copy.deepcopy(model)
    for p in twin.parameters():
        p.register_hook(lambda grad: grad)
    return model, twin


def double(p):
    p.grad.mul_(2)


def add(p):
    p.grad += 1


def replace(p):
    p.grad = torch.ones_like(p)


def replace_by_half(p):
    p.grad = p.grad / 2


def forget(p):
    p.grad = None


def delete(p):
    del p.grad


def read_twice(p):
    assert p.grad is p.grad
    assert torch.equal(p.grad, p.grad.clone()) and p.grad.shape == p.shape and not p.grad.requires_grad


TOUCHES = [double, add, replace, replace_by_half, forget, delete, read_twice]


@each_entry
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("touch", TOUCHES, ids=lambda f: f.__name__)
def test_whatever_is_done_to_a_gradient_counts(networks, touch, optimizer, backward):
    """Before, between and after backward passes, and for the step that follows."""
    optimizers = [optimizer(network.parameters()) for network in networks]
    for first, second, third in ((0, 1, 0), (1, 0, 0), (0, 1, 1)):
        batches = [batch(), batch()]
        for network, each in zip(networks, optimizers, strict=True):
            each.zero_grad()
            for data, touches in zip(batches, (first, second), strict=True):
                backward(network, *data)
                for p in network.parameters() if touches else []:
                    touch(p)
            if third and touch not in (forget, delete) and network[0].weight.grad is not None:
                touch(network[0].weight)
            each.step()
        ours, theirs = ({name: p.detach() for name, p in network.named_parameters()} for network in networks)
        assert_close(ours, theirs)


@each_entry
def test_gradients_appear_on_reading_and_only_then(networks, backward):
    model, _ = networks
    assert model[0].weight.grad is None
    backward(model, *batch())
    seen = gradients(model)
    assert seen.keys() == dict(model.named_parameters()).keys()
    assert_close(gradients(model), seen, 0)
    model.zero_grad()
    assert not gradients(model)


@each_entry
def test_vectors_of_parameters_and_copies_of_data(networks, backward):
    for network in networks:
        vector = nn.utils.parameters_to_vector(network.parameters())
        nn.utils.vector_to_parameters(vector.detach() * 2, network.parameters())
    data = batch()
    for network in networks:
        backward(network, *data)
    assert_close(gradients(networks[0]), gradients(networks[1]))


def test_parameters_print_compare_and_compute_like_any(networks):
    weight, plain = networks[0][0].weight, nn.Parameter(networks[0][0].weight.detach().clone())
    assert isinstance(weight, nn.Parameter) and weight.is_leaf and weight.requires_grad
    assert "requires_grad=True" in repr(weight)
    assert type(weight.detach()) is type(weight + 1) is type(weight.clone()) is torch.Tensor
    assert torch.equal(weight @ weight.T, plain @ plain.T)
    again = nn.Parameter(weight.detach())
    assert type(again) is nn.Parameter and torch.equal(again, plain)
