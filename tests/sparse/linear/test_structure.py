"""A chain reads its modules anew in every pass: they may be replaced, changed and hooked between passes.

Letters: B batch, i in_features, n out_features, c classes. At r = 1 the plain network says what is right.
"""

import contextlib
import copy
import sys
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from msbp.sparse import convert, cross_entropy
from msbp.sparse.buffers import plain_torch
from msbp.sparse.memory import SlotMemory

from ..pairs import FULL, B, batch, c, each_full, i, n, pair
from ..problems import assert_close, each_dtype, each_entry, gradients, mlp, state


@each_entry
@each_full
def test_modules_may_be_swapped_added_and_tuned_between_passes(install, backward):
    def freeze(model):
        model[0].weight.requires_grad_(False)

    def another(model):
        model[2].weight = nn.Parameter(model[2].weight.detach() * 2)

    def expand_bias(*shape):
        return lambda model: setattr(model[0], "bias", nn.Parameter(model[0].bias.detach().expand(shape)))

    edits = {
        "another activation": lambda model: model.__setitem__(1, nn.Tanh()),
        "one that is not fused": lambda model: model.__setitem__(1, nn.GELU()),
        "another parameter": another,
        "a frozen one": freeze,
        "other data": lambda model: setattr(model[0].bias, "data", model[0].bias.data + 1),
        "one more layer": lambda model: model.append(nn.Linear(c, c)),
        "one layer less": lambda model: model.__delitem__(5),
        "a dropout of none": lambda model: model.insert(4, nn.Dropout(0.0)),
        "of all": lambda model: setattr(model[4], "p", 1.0),
        "a bias as a row": expand_bias(1, n),
        "a bias by example": expand_bias(B, n),
        "evaluation": lambda model: model.eval(),
        "training": lambda model: model.train(),
    }
    model, plain = pair(install)
    for edit in edits.values():
        torch.manual_seed(1)
        edit(model)
        torch.manual_seed(1)
        edit(plain)
        data = batch()
        for network in (model, plain):
            network.zero_grad()
            backward(network, *data)
        assert_close(gradients(model), gradients(plain))


@pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
@each_entry
@each_dtype
def test_hooks_on_modules_may_be_added_and_removed_between_passes(dtype, backward):
    for at in (None, 0, 1, 2, 4):
        model, plain = pair(FULL["convert"], dtype)
        for kind in (
            "register_forward_hook",
            "register_full_backward_hook",
            "register_forward_pre_hook",
            "register_full_backward_pre_hook",
        ):
            seen: dict = {model: [], plain: []}
            handles = []
            for network, calls in seen.items():
                module = network if at is None else network[at]
                handles.append(getattr(module, kind)(lambda module, *args, calls=calls: calls.append(args)))
            for attached in (True, False):
                data = batch(dtype)
                for network in seen:
                    network.zero_grad()
                    backward(network, *data)
                assert_close(gradients(model), gradients(plain))
                assert len(seen[model]) == len(seen[plain]) == 1
                for handle in handles if attached else []:
                    handle.remove()
            torch.testing.assert_close(seen[model], seen[plain])


@each_entry
def test_global_module_hooks_are_called(backward):
    model, plain = pair(FULL["convert"])
    calls: list = []
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, args, out: calls.append(type(module))
    )
    try:
        for network in (model, plain):
            backward(network, *batch())
    finally:
        handle.remove()
    assert len(calls) == 2 * len(list(plain.modules()))


@each_entry
def test_a_hook_on_several_gradients_is_called_with_all_of_them(backward):
    model, _ = pair(FULL["convert"])
    seen: list = []
    torch.autograd.graph.register_multi_grad_hook(list(model.parameters()), seen.append)
    backward(model, *batch())
    assert_close(dict(zip(gradients(model), seen[0], strict=True)), gradients(model), 0)


@each_entry
@each_full
def test_forward_methods_and_hook_dictionaries_replaced_on_modules_are_used(install, backward):
    model, plain = pair(install)
    for at in (0, 1, 2, 4, None):
        results = []
        for network in (model, plain):
            calls: list = []
            backward(network, *batch())  # the hooks that were there are known
            module = network if at is None else network[at]
            module._forward_hooks = OrderedDict()
            module.register_forward_hook(lambda module, args, out, calls=calls: calls.append("hook"))
            forward = module.forward
            if at is not None:
                module.forward = lambda x, forward=forward: 2 * forward(x)
            torch.manual_seed(1)
            network.zero_grad()
            backward(network, *batch())
            assert calls == ["hook"]
            vars(module).pop("forward", None)
            module._forward_hooks.clear()
            results.append(gradients(network))
        assert_close(*results)


@each_entry
@each_dtype
def test_a_layer_called_twice_finds_the_memory_that_its_other_call_has_left(dtype, backward):
    torch.manual_seed(0)
    layer = nn.Linear(i, i, dtype=dtype)
    layers = layer, nn.ReLU(), layer, nn.ReLU(), nn.Linear(i, c, dtype=dtype)
    chain = nn.Sequential(*layers)
    apart = copy.deepcopy(nn.Sequential(nn.Sequential(*layers[:2]), nn.Sequential(*layers[2:])))
    convert(chain, r=0.2)
    convert(apart, r=0.2)
    for _ in range(3):
        data = batch(dtype)
        for network in (chain, apart):
            network.zero_grad()
            backward(network, *data)
        assert_close(dict(enumerate(state(chain).values())), dict(enumerate(state(apart).values())))


def test_threads_may_make_the_first_pass_of_a_chain_together():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for _ in range(40):
                model, plain = pair(FULL["convert"])
                x = batch()[0]
                for out in pool.map(model, [x] * 8):
                    torch.testing.assert_close(out, plain(x))
    finally:
        sys.setswitchinterval(interval)


@each_entry
def test_gamma_may_change_between_the_passes(backward):
    model = mlp(i, n, n, c)
    convert(model, r=0.2)
    twin, data = copy.deepcopy(model), batch()
    for network, path in ((model, contextlib.nullcontext()), (twin, plain_torch())):
        with path:
            backward(network, *data)
            loss = cross_entropy(network(data[0]), data[1])
            network[2].memory.gamma = 0.1
            loss.backward()
    assert_close(state(model), state(twin))


@each_full
def test_weights_replaced_between_the_passes_are_used_or_refused(install):
    """torch uses the new numbers; what may not happen is that freed ones are read."""
    for criterion in (cross_entropy, nn.functional.cross_entropy):
        model, plain = pair(install)
        data = batch()
        losses = [criterion(network(data[0]), data[1]) for network in (model, plain)]
        for network in (model, plain):
            for p in network.parameters():
                p.data = p.data + 1
        losses[1].backward()
        try:
            losses[0].backward()
        except RuntimeError as error:
            assert "weight" in str(error) or "parameter" in str(error)
        else:
            assert_close(gradients(model), gradients(plain))


@each_entry
def test_settings_of_sparse_layers_may_change_between_passes(backward):
    """A schedule of gamma or k, or a memory of another kind, counts from the next pass on."""
    edits = {
        "gamma": lambda layer: setattr(layer.memory, "gamma", 0.1),
        "k": lambda layer: setattr(layer, "k", 7),
        "no memory": lambda layer: setattr(layer, "memory", None),
        "another memory": lambda layer: setattr(layer, "memory", SlotMemory(n, 0.5)),
        "off": lambda layer: setattr(layer, "enabled", False),
        "on": lambda layer: setattr(layer, "enabled", True),
        "other data": lambda layer: setattr(layer.memory, "m", torch.ones(B, n)),
    }
    model = mlp(i, n, n, c)
    convert(model, r=0.2)
    twin = copy.deepcopy(model)
    for edit in edits.values():
        for _ in range(2):
            data = batch()
            for network, path in ((model, contextlib.nullcontext()), (twin, plain_torch())):
                network.zero_grad()
                with path:
                    backward(network, *data)
            assert_close(state(model), state(twin))
        for network in (model, twin):
            edit(network[2])


@each_full
def test_a_square_weight_may_be_transposed_in_place(install):
    model, plain = pair(install)
    data = batch()
    for turn in (False, True, True):
        for network in (model, plain):
            if turn:
                network[2].weight.data = network[2].weight.data.t()
            network.zero_grad()
            nn.functional.cross_entropy(network(data[0]), data[1]).backward()
        assert_close(gradients(model), gradients(plain))
