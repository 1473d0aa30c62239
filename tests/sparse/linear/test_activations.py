"""Activations other than ReLU: the k entries kept are those of the gradient before the activation.

Letters: B batch, i in_features, n out_features, c classes, k kept.
"""

import copy

import pytest
import torch
from torch import nn

from msbp.sparse import Cube, convert, fuse, reference

from ..oracle import keeps
from ..problems import assert_close, each_dtype

B, i, n, c, k = 6, 10, 16, 3, 4
STAGES = {"ReLU": nn.ReLU, "Tanh": nn.Tanh, "Cube": Cube}
OTHERS = {"Sigmoid": nn.Sigmoid, "GELU": nn.GELU, "LeakyReLU": nn.LeakyReLU, "none": nn.Identity}


def pair(activation, dtype):
    model = nn.Sequential(nn.Linear(i, n), activation(), nn.Dropout(0.3), nn.Linear(n, c)).to(dtype)
    plain = copy.deepcopy(model)
    convert(model, r=k / n, gamma=0.0)
    return model, plain


def expected(plain, x, keep):
    """Gradients of the hidden layer by autograd, cut to k entries an example."""
    h = plain[0](x)
    h.retain_grad()
    plain[3](plain[1](h) * keep).square().sum().backward()
    kept = torch.stack([reference.top_k(row, k) for row in h.grad])
    return {"weight": kept.T @ x, "bias": kept.sum(0), "x": kept @ plain[0].weight.detach()}


def actual(model, x):
    x = x.clone().requires_grad_()
    model(x).square().sum().backward()
    return {"weight": model[0].weight.grad, "bias": model[0].bias.grad, "x": x.grad}


@each_dtype
@pytest.mark.parametrize("activation", {**STAGES, **OTHERS}.values(), ids={**STAGES, **OTHERS})
def test_the_largest_entries_before_the_activation_are_kept(activation, dtype):
    model, plain = pair(activation, dtype)
    x = torch.randn(B, i, dtype=dtype)
    for module in model:
        module.train(not isinstance(module, nn.Dropout))
    assert_close(actual(model, x), expected(plain, x, 1.0))


@each_dtype
@pytest.mark.parametrize("activation", STAGES.values(), ids=STAGES)
def test_entries_dropped_by_dropout_are_not_selected(activation, dtype):
    model, plain = pair(activation, dtype)
    x, keep = torch.randn(B, i, dtype=dtype), keeps(model, B)["0"].to(dtype)
    assert (keep == 0).any()
    assert_close(actual(model, x), expected(plain, x, keep))


@each_dtype
@pytest.mark.parametrize("activation", STAGES.values(), ids=STAGES)
def test_an_entry_that_relu_sets_to_zero_may_receive_memory(activation, dtype):
    """m is added after σ', so it reaches units that are off: the paper's Algorithm 2, line 12."""
    model = nn.Sequential(nn.Linear(i, n), activation(), nn.Linear(n, c)).to(dtype)
    convert(model, r=k / n, gamma=0.5, skip_zero_rows=False)
    m = torch.arange(1.0, n + 1, dtype=dtype).unsqueeze(0)
    model[0].memory.load(m)
    model(torch.randn(1, i, dtype=dtype)).backward(torch.zeros(1, c, dtype=dtype))
    assert torch.equal(model[0].bias.grad, reference.top_k(m[0], k))
    assert torch.equal(model[0].memory.m[0], 0.5 * (m[0] - reference.top_k(m[0], k)))


@pytest.mark.parametrize("activation", STAGES.values(), ids=STAGES)
@pytest.mark.parametrize("width", [5, 37, 100])
def test_equal_pre_activations_give_equal_values_and_slopes_in_every_column(activation, width):
    """In vectors and at the end of a row alike, where the compiler could order products differently."""
    model = nn.Sequential(nn.Linear(1, width), activation(), nn.Dropout(0.1))
    fuse(model)
    for h in torch.randn(100):
        with torch.no_grad():
            model[0].weight.fill_(h.item())
            model[0].bias.zero_()
        model.zero_grad()
        z = model(torch.ones(1, 1))
        z.sum().backward()
        for values in (z.detach()[0], model[0].bias.grad):
            assert len(values[values != 0].unique()) <= 1
