"""NaN and Inf in a gradient: an error that says where, after which training can go on as if nothing had come.

Letters: B batch, i in_features, n out_features, c classes.
"""

import re

import pytest
import torch
from torch import nn

from msbp.sparse import convert

from .problems import (
    B,
    assert_close,
    batch,
    c,
    converted,
    each_dtype,
    each_entry,
    i,
    memory_of,
    mlp,
    n,
    state,
)


@each_entry
@each_dtype
@pytest.mark.parametrize(
    "choices",
    [{}, {"memory": "per_slot"}, {"memory": "sequential"}, {"gamma": 0.0}, {"selection": "unified"}],
    ids=str,
)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_bad_number_is_an_error_that_names_layer_and_step_and_keeps_nothing(backward, dtype, choices, bad):
    model, spared = converted(dtype, **choices), converted(dtype, **choices)
    spared.load_state_dict(model.state_dict())
    first, second, poisoned = batch(dtype), batch(dtype), batch(dtype)
    poisoned[0][2, 4] = bad
    for network in (model, spared):
        backward(network, *first)
    before = state(model)
    with pytest.raises(FloatingPointError, match=r"layer.*'?\b2\b'?.*step 2\b"):
        backward(model, *poisoned)
    assert_close(state(model), before, 0)
    for network in (model, spared):
        network.zero_grad()
        backward(network, *second)
    assert_close(state(model), state(spared), 0)


@each_dtype
@pytest.mark.parametrize("gamma", [0.0, 0.8])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_one_bad_entry_of_the_gradient_is_enough(dtype, gamma, bad):
    for row, column in ((0, 0), (B - 1, c - 1), (3, 1)):
        model = converted(dtype, gamma=gamma)
        grad = torch.randn(B, c, dtype=dtype)
        grad[row, column] = bad
        with pytest.raises(FloatingPointError, match="step 1"):
            model(batch(dtype)[0]).backward(grad)
        assert not state(model) or not any(value.any() for value in state(model).values())


@each_dtype
def test_a_gradient_that_overflows_halfway_down_is_an_error_of_the_lower_layer(dtype):
    model = converted(dtype)
    largest = torch.finfo(dtype).max
    with torch.no_grad():
        model[2].weight.fill_(largest / 4)
        model[2].bias.fill_(1.0)
    x = torch.full((B, i), 1e-4, dtype=dtype)
    x[:, 0] = 0.0
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.fill_(1e-30 if dtype == torch.float32 else 1e-300)
    with pytest.raises(FloatingPointError, match=r"\b0\b"):
        model(x).backward(torch.full((B, c), 1e3, dtype=dtype) * torch.tensor([1.0, 2.0, 4.0], dtype=dtype))
    assert not any(m.any() for m in memory_of(model).values())


def test_a_layer_inside_other_modules_is_named_in_full():
    model = nn.ModuleDict({"encoder": mlp(i, n, n), "head": nn.Linear(n, c)})
    convert(model, layers=["encoder.0"])
    with pytest.raises(FloatingPointError, match=re.escape("encoder.0")):
        model["encoder"](batch()[0]).backward(torch.full((B, n), float("nan")))
