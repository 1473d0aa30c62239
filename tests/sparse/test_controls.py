"""Controls of the gradient memory: the properties of m that each keeps or destroys.

Letters: B batch, n out_features, k kept.
"""

import copy

import pytest
import torch
from torch import nn

from msbp.sparse import SparseConvolution, SparseLSTM, convert, memories, running_states
from msbp.sparse.buffers import plain_torch
from msbp.sparse.controls import MEMORY_CONTROLS, Masked, Noise, Permuted

from .problems import Probe, batch, converted, gradients, memory_of

B, n, k, gamma = 6, 40, 7, 0.8
each_control = pytest.mark.parametrize("control", MEMORY_CONTROLS)


def test_permuted_memory_keeps_norm_and_histogram_and_is_drawn_anew_each_time():
    m, control = torch.randn(2, 50), Permuted("a layer")
    first, second = control.stored(m), control.stored(m)
    for stored in (first, second):
        assert torch.equal(stored.sort(1).values, m.sort(1).values)
        assert not torch.equal(stored, m)
    assert not torch.equal(first, second)


def test_noise_keeps_the_norm_of_each_row_alone():
    m, control = torch.randn(2, 5000) * torch.tensor([[1.0], [7.0]]), Noise("a layer")
    first, second = control.stored(m), control.stored(m)
    torch.testing.assert_close(first.norm(dim=1), m.norm(dim=1))
    for other in (m, second):
        assert nn.functional.cosine_similarity(first, other).abs().max() < 0.1
    assert not control.stored(torch.zeros(2, 50)).any(), "of nothing comes nothing"


def test_a_mask_adds_the_memory_where_the_unit_has_a_gradient_and_keeps_the_rest():
    m, grad_h = torch.randn(1, n), torch.randn(B, n) * (torch.rand(B, n) < 0.5)
    added = Masked().added(m, grad_h)
    assert torch.equal(added, m * (grad_h != 0))
    probe = Probe(B, n, k, gamma, opened=False, memory_control="masked")
    before = torch.zeros(1, n, dtype=torch.float64)
    for _ in range(5):
        g, grad = probe.backward(torch.randn(B, n, dtype=torch.float64))
        assert not g[grad == 0].any()
        torch.testing.assert_close(gamma * (grad + before - g).mean(0, keepdim=True), probe.m)
        before = probe.m


@pytest.mark.parametrize("control", ["permuted", "noise"])
def test_a_control_changes_the_memory_that_the_method_would_store_and_nothing_else(control):
    probe = Probe(B, n, k, gamma, memory_control=control)
    before = torch.zeros(1, n, dtype=torch.float64)
    for _ in range(5):
        g, grad_h = probe.backward(torch.randn(B, n, dtype=torch.float64))
        left = gamma * (grad_h + before - g).mean(0, keepdim=True)
        torch.testing.assert_close(probe.m.norm(), left.norm())
        if control == "permuted":
            torch.testing.assert_close(probe.m.sort().values, left.sort().values)
        assert not torch.allclose(probe.m, left)
        before = probe.m


@each_control
@pytest.mark.parametrize("memory", ["shared", "per_slot", "sequential"])
def test_kernels_and_plain_torch_agree(control, memory):
    x, y = batch()
    results = []
    for plain in (False, True):
        torch.manual_seed(0)
        model = converted(gamma=gamma, memory=memory, memory_control=control)
        for _ in range(4):
            model.zero_grad()
            if plain:
                with plain_torch():
                    nn.functional.cross_entropy(model(x), y).backward()
            else:
                nn.functional.cross_entropy(model(x), y).backward()
        results.append({**gradients(model), **memory_of(model)})
    for name, tensor in results[0].items():
        torch.testing.assert_close(results[1][name], tensor)


@each_control
def test_a_control_draws_from_a_generator_of_its_own(control):
    torch.manual_seed(3)
    model, (x, y) = converted(gamma=gamma, memory_control=control), batch()
    before = torch.get_rng_state()
    nn.functional.cross_entropy(model(x), y).backward()
    assert torch.equal(torch.get_rng_state(), before)
    states = running_states(model)
    assert len(states) == (0 if control == "masked" else 2)
    keys = [int(each.state[0]) for each in states.values()]
    assert len({*keys}) == len(keys), "each layer has its own"


@pytest.mark.parametrize("control", ["permuted", "noise"])
def test_a_restored_state_gives_the_same_memory(control):
    model, (x, y) = converted(gamma=gamma, memory_control=control), batch()

    def step(network):
        network.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()

    step(model)
    kept = {name: memory.m.clone() for name, memory in memories(model).items()}
    states = {name: each.state.clone() for name, each in running_states(model).items()}
    other = copy.deepcopy(model)
    step(model), step(model), step(other)
    for name, memory in memories(other).items():
        memory.load(kept[name])
    for name, each in running_states(other).items():
        each.load(states[name])
    step(other), step(other)
    for name, m in memory_of(model).items():
        assert torch.equal(memory_of(other)[name], m)


@each_control
def test_convolutions_and_lstms_take_a_control(control):
    lstm, convolution = nn.LSTM(5, 8, batch_first=True), nn.Conv1d(5, 8, 3)
    for layer, kind in ((lstm, SparseLSTM), (convolution, SparseConvolution)):
        model = nn.Sequential(layer)
        convert(model, 0.25, gamma, memory_control=control, layers=["0"])
        assert isinstance(layer, kind)
        plain = copy.deepcopy(model)
        convert_again = copy.deepcopy(model)
        for network in (model, convert_again):
            for _ in range(3):
                out = network(torch.ones(2, 5, 5))
                (out[0] if kind is SparseLSTM else out).square().sum().backward()
        moved = memory_of(model)
        assert any(m.any() for m in moved.values())
        assert all(torch.equal(m, memory_of(convert_again)[name]) for name, m in moved.items())
        assert not any(m.any() for m in memory_of(plain).values())


def test_a_control_without_memory_and_an_unknown_one_are_refused():
    with pytest.raises(ValueError, match="memory_control=noise replaces the memory.*gamma"):
        converted(gamma=0.0, memory_control="noise")
    with pytest.raises(ValueError, match="unknown memory_control 'all': choose from permuted, noise, masked"):
        converted(gamma=0.5, memory_control="all")
