"""A gradient that is pending as factors does not change with later changes of input and weight.

Letters: B batch, i in_features, n out_features, c classes.
"""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from msbp import optim
from msbp.sparse import convert

from .networks import Branches
from .problems import assert_close, each_entry, gradients, mlp

B, i, n, c = 6, 6, 16, 3
NETWORKS = {"a chain": lambda: mlp(i, n, n, c), "single layers": Branches}
each_network = pytest.mark.parametrize("build", NETWORKS.values(), ids=NETWORKS)


def refill_by_numpy(x, buffer, new):
    buffer[:] = new


def refill_data(x, buffer, new):
    x.data.copy_(torch.from_numpy(new))


def refill_in_place(x, buffer, new):
    with torch.no_grad():
        x.copy_(torch.from_numpy(new))


def grow_in_place(x, buffer, new):
    x.data = torch.from_numpy(new).repeat(2, 1)


REFILLS = [refill_by_numpy, refill_data, refill_in_place, grow_in_place]


def pair(model):
    """A network and its copy with all of its gradients kept, hence the same."""
    plain = copy.deepcopy(model)
    convert(model, r=1.0, gamma=0.0)
    return model, plain


@each_network
@each_entry
@pytest.mark.parametrize("refill", REFILLS, ids=lambda f: f.__name__)
def test_an_input_overwritten_after_the_backward_pass_does_not_change_the_gradient(build, refill, backward):
    """As data readers do that refill one buffer, which torch's version counters do not detect."""
    networks, random = pair(build()), np.random.default_rng(0)
    batches = [random.standard_normal((B, i), np.float32) for _ in range(4)]
    for network in networks:
        for first, second in (batches[:2], batches[2:]):
            buffer = first.copy()
            x = torch.from_numpy(buffer)
            backward(network, x, torch.arange(B) % c)
            refill(x, buffer, second)
            backward(network, x[:B], torch.arange(B) % c)
            refill(x, buffer, np.zeros_like(second))
    assert_close(gradients(networks[0]), gradients(networks[1]))


def test_a_gradient_passed_to_an_embedding_may_be_used_again():
    networks = pair(nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, n), nn.ReLU(), nn.Linear(n, c)))
    for network in networks:
        given = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
        network[0](torch.tensor([1, 7])).backward(given)
        given.data.zero_()
    assert_close(gradients(networks[0]), gradients(networks[1]))


def test_a_gradient_that_an_embedding_shares_with_another_parameter_may_be_scaled():
    networks = pair(nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, n), nn.ReLU(), nn.Linear(n, c)))
    for network in networks:
        places = torch.zeros(2, 4, requires_grad=True)
        (network[0](torch.tensor([1, 7])) + places).square().sum().backward()
        places.grad.mul_(2)
    assert_close(gradients(networks[0]), gradients(networks[1]))


REPLACEMENTS = {
    "fewer rows": lambda weight: weight[: len(weight) // 2].clone(),
    "more rows": lambda weight: weight.repeat(50, 1),
    "fewer columns": lambda weight: weight[:, :2].clone(),
    "more columns": lambda weight: weight.repeat(1, 3),
    "other precision": lambda weight: weight.double(),
    "the same place in another shape": lambda weight: weight.view(-1, 2),
}
each_replacement = pytest.mark.parametrize("replace", REPLACEMENTS.values(), ids=REPLACEMENTS)


def waiting():
    """A sparse network and an embedding with pending gradients, and a copy with the same ones formed."""
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, n), nn.ReLU(), nn.Linear(n, c))
    convert(model, r=0.2)
    twin = copy.deepcopy(model)
    for p in twin.parameters():
        p.register_hook(lambda grad: grad)
    for network in (model, twin):
        network(torch.tensor([2, 5, 9])).square().sum().backward()
    return model, twin


@each_replacement
@pytest.mark.parametrize("at", [0, 1], ids=["embedding", "linear"])
def test_a_weight_of_another_shape_has_the_old_gradient_as_in_torch(replace, at):
    networks = waiting()
    for network in networks:
        network[at].weight.data = replace(network[at].weight.data)
    for ours, theirs in zip(*(network.parameters() for network in networks), strict=True):
        assert ours.shape == theirs.shape and ours.grad.dtype is theirs.grad.dtype is torch.float32
        torch.testing.assert_close(ours.grad, theirs.grad)
        assert ours.grad is ours.grad


@each_replacement
@pytest.mark.parametrize("optimizer", [optim.Adam, lambda p: optim.SGD(p, 0.1, momentum=0.9)])
@pytest.mark.parametrize("name", ["0.weight", "1.weight", "1.bias", "3.weight"])
@pytest.mark.parametrize("began", [False, True])
def test_an_optimizer_refuses_a_gradient_of_another_shape_than_its_weight(replace, optimizer, name, began):
    model, _ = waiting()
    p, each = model.get_parameter(name), optimizer(model.parameters())
    if began:
        each.step()
    p.data = replace(p.data.view(len(p), -1)) if p.dim() > 1 else p.data.repeat(3)
    if p.dtype is torch.float32:
        with pytest.raises(RuntimeError, match="shape"):
            each.step()
        each.zero_grad()
        each.step()


def test_a_state_of_another_shape_than_its_parameter_is_refused():
    model, _ = waiting()
    wide = nn.Sequential(nn.Embedding(40, 4), nn.Linear(4, 4 * n), nn.ReLU(), nn.Linear(4 * n, c))
    wide(torch.tensor([1])).sum().backward()
    others, ours = optim.Adam(wide.parameters()), optim.Adam(model.parameters())
    others.step()
    ours.load_state_dict(others.state_dict())
    with pytest.raises(RuntimeError, match="state 'exp_avg'"):
        ours.step()


def test_gradients_of_two_shapes_do_not_add_up():
    model, _ = waiting()
    weight = model[1].weight
    weight.data = torch.randn(n // 2, 4)
    with pytest.raises(RuntimeError, match="must match"):
        nn.functional.linear(torch.ones(1, 4), weight).sum().backward()


@pytest.mark.parametrize("clip", [optim.clip_grad_norm_, nn.utils.clip_grad_norm_])
def test_the_norm_of_a_pending_gradient_is_of_its_own_shape(clip):
    networks = waiting()
    for network in networks:
        network[1].weight.data = torch.randn(2, 4)
    norms = [clip(network.parameters(), 0.1) for network in networks]
    torch.testing.assert_close(*norms)


def test_casting_a_network_casts_its_pending_gradients():
    networks = waiting()
    for network in networks:
        network.double()
    assert all(p.grad.dtype is torch.float64 for p in networks[0].parameters())
    assert_close(gradients(networks[0]), gradients(networks[1]))


STANDING = {
    "transposed": lambda p: torch.ones(p.shape[::-1]).t(),
    "every other column": lambda p: torch.ones(len(p), 2 * p.shape[1])[:, ::2],
    "one number": lambda p: torch.ones(1, 1).expand(p.shape).clone(memory_format=torch.preserve_format),
}


@pytest.mark.filterwarnings("ignore:grad and param do not obey:UserWarning")
@pytest.mark.parametrize("standing", STANDING.values(), ids=STANDING)
def test_gradients_accumulate_on_one_with_another_memory_layout(standing):
    networks = waiting()
    for network in networks:
        for p in network.parameters():
            if p.dim() > 1:
                p.grad = standing(p)
        network(torch.tensor([2, 5, 9])).square().sum().backward()
    assert_close(gradients(networks[0]), gradients(networks[1]))
