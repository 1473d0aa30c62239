"""NaN and Inf in a gradient: propagated as by torch, with memories unchanged and the step skipped.

Letters: B batch, i in_features, n out_features, c classes.
"""

import copy

import pytest
import torch
from torch import nn

from msbp.sparse import convert, cross_entropy, memories

from .problems import (
    B,
    assert_close,
    batch,
    c,
    converted,
    each_dtype,
    each_entry,
    gradients,
    i,
    memory_of,
    mlp,
    n,
    state,
)

BAD = [float("nan"), float("inf"), -float("inf")]
CHOICES = [{}, {"memory": "per_slot"}, {"memory": "sequential"}, {"gamma": 0.0}, {"selection": "unified"}]


def assert_same_numbers(ours, theirs):
    """Equal gradients, NaN and infinities included."""
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, equal_nan=True, rtol=1e-4, atol=1e-5)
        assert not value.isfinite().all() or ours[name].isfinite().all()


@each_entry
@each_dtype
@pytest.mark.parametrize("choices", CHOICES, ids=str)
@pytest.mark.parametrize("bad", BAD)
def test_a_gradient_that_is_not_finite_is_propagated_whole_and_leaves_the_memory_unchanged(
    backward, dtype, choices, bad
):
    plain = mlp(i, n, n, c, dtype=dtype)
    model, spared = copy.deepcopy(plain), copy.deepcopy(plain)
    for network in (model, spared):
        convert(network, r=0.2, **choices)
    first, second, poisoned = batch(dtype), batch(dtype), batch(dtype)
    poisoned[0][2, 4] = bad
    for network in (model, spared):
        backward(network, *first)
        network.zero_grad()
    before = memory_of(model)
    for network in (model, plain):
        nn.functional.cross_entropy(network(poisoned[0]), poisoned[1]).backward()
    assert_same_numbers(gradients(model), gradients(plain))
    assert not all(g.isfinite().all() for g in gradients(model).values())
    assert_close(memory_of(model), before, 0)
    assert model[0].step == model[2].step == 1
    for network in (model, spared):
        network.zero_grad()
        backward(network, *second)
    assert_close(state(model), state(spared), 0)


@each_dtype
@pytest.mark.parametrize("gamma", [0.0, 0.8])
@pytest.mark.parametrize("bad", BAD[:2])
def test_one_entry_that_is_not_finite_suffices_for_a_dense_pass(dtype, gamma, bad):
    for row, column in ((0, 0), (B - 1, c - 1), (3, 1)):
        plain = mlp(i, n, n, c, dtype=dtype)
        model = copy.deepcopy(plain)
        convert(model, r=0.2, gamma=gamma)
        grad, x = torch.randn(B, c, dtype=dtype), batch(dtype)[0]
        grad[row, column] = bad
        for network in (model, plain):
            network(x).backward(grad)
        assert_same_numbers(gradients(model), gradients(plain))
        assert not any(m.any() for m in memory_of(model).values())


@each_dtype
def test_a_gradient_that_overflows_in_a_lower_layer_changes_no_memory(dtype):
    model = converted(dtype)
    largest = torch.finfo(dtype).max
    with torch.no_grad():
        model[2].weight.fill_(largest / 4)
        model[2].bias.fill_(1.0)
        model[0].weight.zero_()
        model[0].bias.fill_(1e-30 if dtype == torch.float32 else 1e-300)
    x = torch.full((B, i), 1e-4, dtype=dtype)
    x[:, 0] = 0.0
    model(x).backward(torch.full((B, c), 1e3, dtype=dtype) * torch.tensor([1.0, 2.0, 4.0], dtype=dtype))
    assert not model[0].bias.grad.isfinite().all()
    assert not any(m.any() for m in memory_of(model).values())


@pytest.mark.parametrize("criterion", [cross_entropy, nn.functional.cross_entropy])
def test_a_scaler_of_mixed_precision_skips_the_step_and_halves_its_scale(criterion):
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    convert(model, r=0.1)
    optimizer, scaler = torch.optim.Adam(model.parameters()), torch.amp.GradScaler("cpu", init_scale=2.0**100)
    x, y = torch.randn(256, 20), torch.randint(3, (256,))
    before = copy.deepcopy(model.state_dict())
    with torch.autocast("cpu", dtype=torch.float16):
        loss = 1e30 * criterion(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**99
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(memory.m.any() for memory in memories(model).values())


@pytest.mark.parametrize("bad", BAD[:2])
@each_dtype
def test_lstms_and_convolutions_propagate_gradients_that_are_not_finite(dtype, bad):
    layers = {
        "lstm": (nn.LSTM(9, 16, bidirectional=True), torch.randn(4, 3, 9)),
        "conv1d": (nn.Conv1d(4, 6, 3), torch.randn(2, 4, 9)),
        "conv2d": (nn.Conv2d(4, 6, 3, bias=False), torch.randn(2, 4, 9, 5)),
    }
    for name, (layer, x) in layers.items():
        plain, x = nn.ModuleDict({name: layer.to(dtype)}), x.to(dtype)
        model = copy.deepcopy(plain)
        convert(model, layers=[name], r=0.2)
        outputs = []
        for network in (model, plain):
            out = network[name](x)
            outputs.append(out[0] if name == "lstm" else out)
        grad = torch.randn_like(outputs[0])
        grad[1, 1, 2] = bad
        for out in outputs:
            out.backward(grad)
        assert_same_numbers(gradients(model), gradients(plain))
        assert not any(m.any() for m in memory_of(model).values())


@each_dtype
@pytest.mark.parametrize("activation", [nn.Identity, nn.Tanh])
def test_a_gradient_that_is_not_finite_passes_dropout_as_in_torch(dtype, activation):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(i, n), activation(), nn.Dropout(0.5), nn.Linear(n, c)).to(dtype)
    model = copy.deepcopy(plain)
    convert(model, r=0.2)
    x = batch(dtype)[0]
    for network in (model, plain):
        network(x).backward(torch.full((B, c), float("nan"), dtype=dtype))
    assert_same_numbers(gradients(model), gradients(plain))
    assert gradients(model)["0.bias"].isnan().all()
