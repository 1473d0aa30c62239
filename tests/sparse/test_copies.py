"""Copies, files and dtype moves of a network in mid-training.

Letters: B batch, i in_features, n out_features, c classes. Modules that keep tensors with history break here
(pytorch#54580, sktime#10928).
"""

import copy
import io
import pickle

import pytest
import torch
from torch.nn.utils import parametrizations
from torch.optim.swa_utils import AveragedModel

from msbp.sparse import fuse, memories

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

COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "torch.save": lambda model: torch.load(io.BytesIO(saved(model)), weights_only=False),
}


def saved(model) -> bytes:
    buffer = io.BytesIO()
    torch.save(model, buffer)
    return buffer.getvalue()


@each_entry
@each_dtype
@pytest.mark.parametrize("choices", [{}, {"memory": "per_slot"}, {"gamma": 0.0}], ids=str)
@pytest.mark.parametrize("how", COPIES)
def test_a_copy_continues_as_the_original_and_does_not_change_it(how, choices, dtype, backward):
    model = converted(dtype, p=0.3, **choices)
    first, second = batch(dtype), batch(dtype)
    backward(model, *first)
    twin = COPIES[how](model)
    assert_close(memory_of(twin), memory_of(model), 0)
    before = state(model)
    torch.manual_seed(1)
    twin.zero_grad()
    backward(twin, *second)
    assert_close(state(model), before, 0)
    torch.manual_seed(1)
    model.zero_grad()
    backward(model, *second)
    assert_close(state(twin), state(model), 0)
    assert not any(m.m.requires_grad or m.m.grad_fn for m in memories(twin).values())
    assert type(twin) is type(model) and type(twin[0].weight) is type(model[0].weight)


@each_entry
def test_a_parametrized_layer_can_be_copied_in_mid_training(backward):
    model = converted()
    for layer in (model[0], model[4]):
        parametrizations.weight_norm(layer)
    backward(model, *batch())
    twin, data = copy.deepcopy(model), batch()
    for network in (model, twin):
        network.zero_grad()
        backward(network, *data)
    assert_close(state(twin), state(model), 0)


def test_a_replica_computes_with_its_own_parameters():
    """As DataParallel makes them: the attributes are those of the layer, the parameters are copies."""
    model = converted()
    model(batch()[0])
    replica = model[0]._replicate_for_data_parallel()
    replica.weight, replica.bias = torch.zeros(n, i), torch.zeros(n)
    assert not replica(batch()[0]).any() and model[0](batch()[0]).any()


@each_entry
def test_a_fused_network_can_be_copied_in_mid_training(backward):
    model = mlp(i, n, n, c)
    fuse(model)
    data = batch()
    backward(model, *data)
    for make in COPIES.values():
        twin = make(model)
        twin.zero_grad()
        backward(twin, *data)
        assert_close(gradients(twin), gradients(model), 0)


@each_entry
@each_memory
def test_the_memory_follows_the_network_to_another_dtype(backward, memory):
    model = converted(memory=memory)
    backward(model, *batch())
    m = memory_of(model)
    model.double()
    assert_close(memory_of(model), m, 0)
    assert {held.m.dtype for held in memories(model).values()} == {torch.float64}
    model.zero_grad()
    backward(model, *batch(torch.float64))
    model.float().zero_grad()
    backward(model, *batch())
    assert all(grad.dtype == torch.float32 for grad in state(model).values())
    assert {held.m.device.type for held in memories(model.to("meta")).values()} == {"meta"}


@each_memory
@pytest.mark.parametrize("use_buffers", [False, True])
def test_an_average_of_models_whose_batches_differ_in_size_goes_on(use_buffers, memory):
    model = converted(memory=memory)
    averaged = AveragedModel(model, use_buffers=use_buffers)
    for rows in (B, 2 * B, 3):
        ENTRIES["autograd"](model, *batch(rows=rows))
        averaged.update_parameters(model)
        for p, q in zip(averaged.module.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(p, q)


def test_the_memory_is_not_in_the_state_dict_and_is_restored_separately():
    model, twin = converted(), converted()
    twin.load_state_dict(model.state_dict())
    ENTRIES["autograd"](model, *batch())
    assert not any("m" in name.split(".") or "memory" in name for name in model.state_dict())
    for name, held in memories(model).items():
        memories(twin)[name].load(held.m)
    assert_close(memory_of(twin), memory_of(model), 0)
    data = batch()
    for network in (model, twin):
        network.zero_grad()
        ENTRIES["autograd"](network, *data)
    assert_close(state(twin), state(model), 0)
    with pytest.raises(ValueError, match=f"{n}"):
        memories(model)["0"].load(torch.zeros(1, n + 1))


@each_memory
def test_a_memory_saves_and_loads_itself(memory):
    model = converted(memory=memory)
    ENTRIES["direct"](model, *batch())
    saved = {name: copy.deepcopy(each.state_dict()) for name, each in memories(model).items()}
    before = memory_of(model)
    assert all(m.any() for m in before.values()) and not any("memory" in key for key in model.state_dict())
    for name, each in memories(model).items():
        each.clear()
        each.load_state_dict(saved[name])
    assert_close(memory_of(model), before, 0)


@each_memory
def test_a_memory_assigned_to_a_model_without_data_is_kept(memory):
    model = converted(memory=memory, save_memory=True)
    ENTRIES["direct"](model, *batch())
    with torch.device("meta"):
        empty = converted(memory=memory, save_memory=True)
    empty.load_state_dict(model.state_dict(), assign=True)
    assert_close(memory_of(empty), memory_of(model), 0)
    data = batch()
    for network in (model, empty):
        network.zero_grad()
        ENTRIES["direct"](network, *data)
    assert_close(state(empty), state(model), 0)
