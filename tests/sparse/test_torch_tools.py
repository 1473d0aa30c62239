"""A converted network is an ordinary module to the rest of torch: hooks, pruning, checkpointing, ties, swaps.

Letters: B batch, i in_features, n out_features, c classes. At r = 1 the plain network says what is right.
"""

import copy
import io
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

from msbp.sparse import convert, cross_entropy, memories

from .pairs import B, batch, c, each_full, i, n, pair
from .problems import assert_close, each_dtype, each_entry, gradients, memory_of, mlp, state


def test_converted_layers_take_their_arguments_by_name_as_torchs_do():
    net = nn.Sequential(nn.Linear(i, n), nn.ReLU(), nn.Linear(n, c))
    layers = {
        "linear": (nn.Linear(i, n), {"input": torch.randn(B, i)}),
        "conv": (nn.Conv1d(i, n, 3), {"input": torch.randn(B, i, 7)}),
        "words": (nn.Embedding(9, n), {"input": torch.randint(9, (B, 2))}),
        "rnn": (nn.LSTM(i, n), {"input": torch.randn(4, B, i), "hx": (torch.zeros(1, B, n),) * 2}),
        "chain": (net, {"input": torch.randn(B, i)}),
    }
    model = nn.ModuleDict({name: layer for name, (layer, _) in layers.items()})
    plain = copy.deepcopy(model)
    convert(model, r=1.0, layers=["linear", "conv", "rnn", "chain.0"])
    for name, (_, arguments) in layers.items():
        torch.testing.assert_close(model[name](**arguments), plain[name](**arguments))
    with pytest.raises(TypeError, match="unexpected keyword argument 'h0'"):
        model["rnn"](layers["rnn"][1]["input"], h0=None)


@each_full
@pytest.mark.parametrize("late", [False, True], ids=["before the first pass", "after it"])
def test_pruned_and_reparametrised_layers_have_torchs_gradients(late, install):
    tools = {
        "prune": lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
        "prune the bias": lambda layer: prune.random_unstructured(layer, "bias", 0.5),
        "weight_norm": nn.utils.parametrizations.weight_norm,
        "weight_norm as it was": old_weight_norm,
        "spectral_norm": nn.utils.parametrizations.spectral_norm,
        "orthogonal": nn.utils.parametrizations.orthogonal,
    }
    for tool in tools.values():
        for at in (0, 2, 4):
            model, plain = pair(install)
            data = batch()
            for network in (model, plain):
                if late:
                    cross_entropy(network(data[0]), data[1]).backward()
                    network.zero_grad()
                torch.manual_seed(1)
                tool(network[at])
            for _ in range(2):
                for network in (model, plain):
                    network.zero_grad()
                    cross_entropy(network(data[0]), data[1]).backward()
                assert_close(gradients(model), gradients(plain))


def old_weight_norm(layer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.weight_norm(layer)


@each_dtype
@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_updates_the_memory_once(reentrant, dtype):
    model = mlp(i, n, n, c, p=0.3, dtype=dtype)
    convert(model, r=0.2)
    twin = copy.deepcopy(model)
    for _ in range(2):
        x, y = batch(dtype)
        x.requires_grad_()
        torch.manual_seed(1)
        cross_entropy(checkpoint(model, x, use_reentrant=reentrant), y).backward()
        torch.manual_seed(1)
        cross_entropy(twin(x), y).backward()
    assert_close(state(model), state(twin), 1e-6)


def test_saved_tensor_hooks_are_supported():
    model = mlp(i, n, n, c)
    convert(model, r=0.2)
    twin, (x, y) = copy.deepcopy(model), batch()
    with torch.autograd.graph.save_on_cpu():
        loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    cross_entropy(twin(x), y).backward()
    assert_close(state(model), state(twin), 1e-6)


@pytest.mark.filterwarnings("ignore:Anomaly Detection:UserWarning")
@each_entry
def test_anomaly_detection_is_supported(backward):
    model = mlp(i, n, n, c)
    convert(model, r=0.2)
    twin, data = copy.deepcopy(model), batch()
    with torch.autograd.detect_anomaly():
        backward(model, *data)
    backward(twin, *data)
    assert_close(state(model), state(twin), 1e-6)


@each_entry
@each_dtype
def test_tied_weights_gather_the_gradients_of_all_their_uses(dtype, backward):
    def tie(model, others):
        model[2].weight = model[0].weight
        others.weight = model[0].weight
        return nn.Sequential(model, nn.Identity()), others

    plain, others = mlp(n, n, n, c, dtype=dtype), nn.Linear(n, n, dtype=dtype)
    model, strangers = copy.deepcopy(plain), copy.deepcopy(others)
    tie(plain, others), tie(model, strangers)
    convert(model, r=1.0)
    x, y = torch.randn(B, n, dtype=dtype), torch.randint(c, (B,))
    for network, stranger in ((model, strangers), (plain, others)):
        backward(network, stranger(x), y)
        backward(network, x, y)
    assert_close(gradients(model), gradients(plain))
    assert model[0].weight is model[2].weight is strangers.weight


@each_dtype
def test_functional_calls_give_gradients_to_the_weights_they_were_passed(dtype):
    model = mlp(i, n, n, c, dtype=dtype)
    convert(model, r=0.2)
    twin, (x, y) = copy.deepcopy(model), batch(dtype)
    given = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    for network in (model, twin):
        network.zero_grad()
    nn.functional.cross_entropy(torch.func.functional_call(model, given, (x,)), y).backward()
    nn.functional.cross_entropy(twin(x), y).backward()
    assert all(p.grad is None for p in model.parameters())
    assert_close({name: p.grad for name, p in given.items()}, gradients(twin), 1e-6)


@each_dtype
def test_weights_computed_from_other_tensors_propagate_gradients(dtype):
    """As hypernetworks and meta-learning make them: not leaves."""
    model = mlp(i, n, n, c, dtype=dtype)
    convert(model, r=0.2)
    twin, (x, y) = copy.deepcopy(model), batch(dtype)
    leaves = {name: (p.detach() / 2).requires_grad_() for name, p in model.named_parameters()}
    given = {name: 2 * leaf for name, leaf in leaves.items()}
    cross_entropy(torch.func.functional_call(model, given, (x,)), y).backward()
    cross_entropy(twin(x), y).backward()
    assert all(p.grad is None for p in model.parameters())
    assert_close({name: leaf.grad / 2 for name, leaf in leaves.items()}, gradients(twin), 1e-6)


def test_the_default_loading_of_files_suffices_for_weights_and_memories():
    model = mlp(i, n, n, c)
    convert(model, r=0.2)
    cross_entropy(model(batch()[0]), batch()[1]).backward()
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "memory": {k: m.m for k, m in memories(model).items()}}, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer)
    assert_close(loaded["memory"], memory_of(model), 0)
    mlp(i, n, n, c).load_state_dict(loaded["model"])
