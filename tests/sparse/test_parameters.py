"""Single parameters, inputs and layers as users of autograd handle them: freeze, query, change, hook.

Letters: B batch, i in_features, n out_features, c classes.
"""

import pytest
import torch
from torch import nn

from msbp.sparse import cross_entropy, memories

from .problems import ENTRIES, B, assert_close, batch, converted, each_dtype, gradients, n


@each_dtype
def test_frozen_layers_get_no_gradient_and_pass_it_on(dtype):
    for names in ("0.weight 0.bias", "2.weight", "2.bias", "4.weight 4.bias", "0.weight 2.weight"):
        frozen = names.split()
        model, free = converted(dtype), converted(dtype)
        free.load_state_dict(model.state_dict())
        for name in frozen:
            model.get_parameter(name).requires_grad_(False)
        data = batch(dtype)
        for entry in ENTRIES.values():
            for network in (model, free):
                network.zero_grad()
                for held in memories(network).values():
                    held.load(torch.zeros_like(held.m))
                entry(network, *data)
            expected = {name: grad for name, grad in gradients(free).items() if name not in frozen}
            assert_close(gradients(model), expected, 1e-6)


@each_dtype
def test_an_input_that_requires_a_gradient_gets_it(dtype):
    model, twin = converted(dtype), converted(dtype)
    twin.load_state_dict(model.state_dict())
    x, y = batch(dtype)
    leaf = x.clone().requires_grad_()
    nn.functional.cross_entropy(model(leaf), y).backward()
    embedded = x.clone().requires_grad_()
    cross_entropy(twin(embedded * 1), y).backward()
    assert leaf.grad.any()
    torch.testing.assert_close(embedded.grad, leaf.grad)


def test_an_input_changed_before_its_gradient_is_used_is_an_error_as_in_torch():
    model = converted()
    x, y = batch()
    loss = nn.functional.cross_entropy(model(x), y)
    x += 1
    with pytest.raises(RuntimeError, match=r"modified|changed"):
        loss.backward()


def test_hooks_on_weights_and_layers_see_dense_gradients():
    model, quiet = converted(), converted()
    quiet.load_state_dict(model.state_dict())
    seen, data = {}, batch()
    for name, p in model.named_parameters():
        p.register_hook(lambda grad, name=name: seen.__setitem__(name, grad.clone()))
    outputs = []
    model[0].register_forward_hook(lambda module, args, output: outputs.append(output.shape))
    for entry in ENTRIES.values():
        for network in (model, quiet):
            network.zero_grad()
            for held in memories(network).values():
                held.load(torch.zeros_like(held.m))
            entry(network, *data)
        assert_close(seen, gradients(quiet), 1e-6)
        assert_close(gradients(model), gradients(quiet), 1e-6)
        seen.clear()
    assert outputs == [(B, n)] * len(ENTRIES)
