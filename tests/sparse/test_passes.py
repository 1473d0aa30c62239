"""Passes beyond the plain one: accumulated, repeated, differentiated twice, frozen, hooked, not recorded.

Letters: B batch, i in_features, n out_features, c classes.
"""

import copy

import pytest
import torch
from torch import nn

from msbp.sparse import convert, fuse

from .oracle import Oracle
from .problems import (
    ENTRIES,
    B,
    assert_close,
    batch,
    c,
    converted,
    each_dtype,
    each_entry,
    each_memory,
    gradients,
    i,
    memory_of,
    mlp,
    n,
    state,
)


@each_entry
@each_memory
def test_accumulated_gradients_are_sums_and_each_pass_updates_the_memory(backward, memory):
    model = mlp(i, n, n, c, dtype=torch.float64)
    oracle = Oracle(model, 0.2, 0.8, tolerance=1e-12, memory=memory)
    convert(model, r=0.2, gamma=0.8, memory=memory)
    sums: dict = {}
    for rows in (B, B, 3):
        x, y = batch(torch.float64, rows)
        backward(model, x, y)
        logits = oracle.forward(x)
        expected = oracle.backward((logits.softmax(1) - nn.functional.one_hot(y, c)) / rows)
        expected.pop("x")
        assert not oracle.undecided()
        sums = {name: sums.get(name, 0) + grad for name, grad in expected.items()}
    assert_close(gradients(model), sums, 1e-10)
    assert_close(memory_of(model), oracle.memory, 1e-10)


@each_dtype
def test_a_retained_graph_allows_a_second_backward_pass(dtype):
    model = mlp(i, n, n, c, dtype=dtype)
    oracle = Oracle(model, 0.2, 0.8)
    convert(model, r=0.2, gamma=0.8)
    (x, y), sums = batch(dtype), {}
    loss = nn.functional.cross_entropy(model(x), y)
    logits = oracle.forward(x)
    for _ in range(2):
        loss.backward(retain_graph=True)
        expected = oracle.backward((logits.softmax(1) - nn.functional.one_hot(y, c)) / B)
        expected.pop("x")
        assert not oracle.undecided()
        sums = {name: sums.get(name, 0) + grad for name, grad in expected.items()}
    assert_close(gradients(model), sums)
    assert_close(memory_of(model), oracle.memory)


@pytest.mark.parametrize("install", [convert, fuse])
def test_a_second_derivative_is_refused_with_a_reason(install):
    model = mlp(i, n, n, c)
    install(model)
    x = batch()[0].requires_grad_()
    with pytest.raises(RuntimeError, match="second derivative"):
        (grad,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        grad.square().sum().backward()


@each_dtype
def test_under_no_grad_nothing_is_saved_and_dropout_follows_the_mode(dtype):
    model, plain = mlp(i, n, n, c, p=0.4, dtype=dtype), mlp(i, n, n, c, p=0.4, dtype=dtype)
    plain.load_state_dict(model.state_dict())
    convert(model)
    x = batch(dtype)[0]
    model(x).sum().backward()
    before = state(model)
    torch.testing.assert_close(model.eval()(x), plain.eval()(x))
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            outputs = model.eval()(x), model.eval()(x), model.train()(x), model.train()(x)
        assert not any(out.requires_grad for out in outputs)
        assert torch.equal(outputs[0], outputs[1]) and not torch.equal(outputs[2], outputs[3])
    assert_close(state(model), before, 0)


@each_entry
def test_evaluation_mode_propagates_everything_and_does_not_change_the_memory(backward):
    model, plain = converted(p=0.4), mlp(i, n, n, c)
    plain.load_state_dict(dict(zip(plain.state_dict(), model.state_dict().values(), strict=True)))
    backward(model, *batch())
    before, steps = memory_of(model), model[0].step
    model.zero_grad()
    x, y = batch()
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    backward(model.eval(), inputs[0], y)
    backward(plain, inputs[1], y)
    assert_close(dict(zip(gradients(plain), gradients(model).values(), strict=True)), gradients(plain), 1e-5)
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    assert_close(memory_of(model), before, 0)
    assert model[0].step == steps


@each_dtype
@pytest.mark.parametrize("install", [lambda model: convert(model, r=1.0), fuse], ids=["convert", "fuse"])
def test_an_output_changed_in_place_is_as_right_as_after_torchs_own_layer(install, dtype):
    model, plain = mlp(i, n, c, dtype=dtype), mlp(i, n, c, dtype=dtype)
    plain.load_state_dict(model.state_dict())
    install(model)
    x = batch(dtype)[0]
    for network in (model, plain):
        network[2](network[0](x).mul_(2).relu_()).add_(1).square().sum().backward()
    assert_close(gradients(model), gradients(plain), 1e-6)


@each_dtype
@pytest.mark.parametrize("install", [lambda model: convert(model, r=1.0), fuse], ids=["convert", "fuse"])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.Identity])
def test_an_output_of_dropout_may_be_changed_in_place(install, dtype, activation):
    results = []
    for changes in (True, False):
        torch.manual_seed(0)
        layers = nn.Linear(i, n), nn.ReLU(), nn.Linear(n, n), activation(), nn.Dropout(0.4)
        model = nn.Sequential(*layers).to(dtype)
        install(model)
        out = model(batch(dtype)[0])
        (out.add_(1) if changes else out + 1).square().sum().backward()
        results.append({"output": out.detach() + (not changes), **gradients(model)})
    assert_close(*results)


@each_entry
@each_dtype
@pytest.mark.parametrize("frozen", [1, 2, 3])
def test_frozen_layers_below_all_others_take_no_part_in_the_backward_pass(dtype, frozen, backward):
    """Separate modules, which torch's engine calls one by one, say what is right."""
    torch.manual_seed(0)
    chain = mlp(i, n, n, n, c, dtype=dtype)
    apart = nn.Sequential(*(nn.Sequential(*copy.deepcopy(chain)[at : at + 2]) for at in range(0, 7, 2)))
    results = []
    for model in (chain, apart):
        convert(model, r=0.2)
        layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
        for layer in layers[:frozen]:
            layer.requires_grad_(False)
        torch.manual_seed(1)
        seen: dict = {}
        for step, needs_x in enumerate((False, True, False, True)):
            model.zero_grad()
            x, y = batch(dtype)
            backward(model, x.requires_grad_(needs_x), y)
            for at, layer in enumerate(layers):
                seen |= {
                    (step, at, name): p.grad.to_dense()
                    for name, p in layer.named_parameters()
                    if p.requires_grad
                }
            for at, layer in enumerate(layers[:-1]):
                seen |= {
                    (step, at, "m"): layer.memory.m.clone(),
                    (step, at, "count"): torch.tensor(layer.step),
                }
        results.append(seen)
    assert_close(*results)


@each_entry
def test_tensors_that_the_user_holds_are_not_overwritten(backward):
    """Outputs, gradients and memories kept from one step are the same after the next ones."""
    model = converted(p=0.3)
    held = []
    for _ in range(4):
        model.zero_grad()
        x, y = batch()
        logits = model(x)
        backward(model, x, y)
        tensors = [logits.detach(), *(p.grad for p in model.parameters())]
        held.append((tensors, [t.clone() for t in tensors]))
    assert all(torch.equal(t, c) for tensors, copies in held for t, c in zip(tensors, copies, strict=True))


@each_dtype
def test_a_disabled_layer_propagates_everything_and_keeps_its_memory(dtype):
    model, plain = converted(dtype), mlp(i, n, n, c, dtype=dtype)
    for entry in ENTRIES.values():
        entry(model, *batch(dtype))
        plain.load_state_dict(model.state_dict())
        before, data = memory_of(model), batch(dtype)
        for layer in (model[0], model[2]):
            layer.enabled = False
        for network in (model, plain):
            network.zero_grad()
            entry(network, *data)
        assert_close(gradients(model), gradients(plain), 1e-6)
        assert_close(memory_of(model), before, 0)
        model[0].enabled = True
        model.zero_grad()
        entry(model, *data)
        assert (model[0].weight.grad.any(1).sum() < n) and not torch.equal(memory_of(model)["0"], before["0"])
        assert_close({"m": memory_of(model)["2"]}, {"m": before["2"]}, 0)
        model[2].enabled = True
