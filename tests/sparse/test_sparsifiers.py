"""Sparsifiers other than top_k: how many entries they keep, which, and that unbiased ones are unbiased.

Letters: B batch, n width, k kept.
"""

import copy

import pytest
import torch
from torch import nn

from msbp.sparse import convert, running_states
from msbp.sparse.sparsifiers import OTHER_SPARSIFIERS, Energy, inclusion, sparsifier_of, top_k

from .problems import Probe, batch, converted, gradients

B, n, k = 8, 100, 12
each_kind = pytest.mark.parametrize("kind", OTHER_SPARSIFIERS)


@each_kind
@pytest.mark.parametrize("selection", ["per_example", "unified"])
def test_g_holds_entries_of_v_at_their_positions(kind, selection):
    sparsifier, v = sparsifier_of(kind, selection, True), torch.randn(B, n)
    g = sparsifier(v, k)
    assert g.any() and torch.equal(g[g != 0], v[g != 0])
    columns = (g != 0).any(0).sum()
    if selection == "unified":
        assert torch.equal(g, v * (g != 0).any(0)) and columns < n


@each_kind
@pytest.mark.parametrize("selection", ["per_example", "unified"])
@pytest.mark.parametrize("width", [1, 17, 50, 100, 520])
def test_all_entries_are_propagated_where_k_is_the_width(kind, selection, width):
    sparsifier, v = sparsifier_of(kind, selection, False), torch.randn(B, width)
    for _ in range(2):
        torch.testing.assert_close(sparsifier(v, width), v)


@pytest.mark.parametrize("make", [*OTHER_SPARSIFIERS.values(), lambda: Energy(share=0.8, least=1, most=15)])
@pytest.mark.parametrize("exponent", [-100, -60, 60, 100])
def test_the_choice_does_not_depend_on_the_scale_of_the_gradient(make, exponent):
    torch.manual_seed(2)
    v, scale = torch.randn(B, n), 2.0**exponent
    sparsifier = make()
    other = copy.deepcopy(sparsifier)
    torch.testing.assert_close(other(v * scale, k) / scale, sparsifier(v, k))


@pytest.mark.parametrize("kind", ["random", "importance"])
@pytest.mark.parametrize("selection", ["per_example", "unified"])
def test_random_choices_keep_k_entries_and_their_mean_is_the_gradient(kind, selection):
    torch.manual_seed(1)
    v, draws = torch.randn(2, 20, dtype=torch.float64), 20000
    sparsifier = sparsifier_of(kind, selection, False)
    total, squares = torch.zeros_like(v), torch.zeros_like(v)
    for _ in range(draws):
        g = sparsifier(v, 5)
        assert (g.count_nonzero(1) == 5).all()
        total, squares = total + g, squares + g.square()
    mean = total / draws
    error = (squares / draws - mean.square()).sqrt() / draws**0.5
    assert ((mean - v).abs() <= 5 * error + 1e-12).all()


def test_importance_has_less_variance_than_random():
    torch.manual_seed(1)
    v = torch.randn(1, 50).pow(3)
    errors = {
        kind: sum(float((s(v, 5) - v).square().sum()) for _ in range(500))
        for kind, s in (
            (kind, sparsifier_of(kind, "per_example", False)) for kind in ("random", "importance")
        )
    }
    assert errors["importance"] < 0.5 * errors["random"]


@pytest.mark.parametrize(
    ("magnitude", "k", "p"),
    [
        ([5.0, 1, 1, 0], 2, [1, 0.5, 0.5, 0]),
        ([1.0, 1, 1, 1], 2, [0.5] * 4),
        ([5.0, 1, 0, 0], 3, [1, 1, 0, 0]),
        ([4.0, 2, 1, 1], 4, [1, 1, 1, 1]),
        ([0.0, 0, 0, 0], 2, [0] * 4),
        ([9.0, 8, 1, 2], 3, [1, 1, 1 / 3, 2 / 3]),
    ],
)
def test_probabilities_grow_with_the_magnitude_up_to_1_and_add_up_to_k(magnitude, k, p):
    actual = inclusion(torch.tensor([magnitude], dtype=torch.float64), k)
    torch.testing.assert_close(actual, torch.tensor([p], dtype=torch.float64))


@pytest.mark.parametrize("kind", ["threshold", "energy"])
def test_a_running_level_keeps_k_entries_on_average(kind):
    torch.manual_seed(0)
    sparsifier = sparsifier_of(kind, "per_example", False)
    counts = []
    for step in range(400):
        scale = 1.0 + step / 100  # gradients that grow
        g = sparsifier(scale * torch.randn(B, n) * torch.rand(B, 1), k)
        counts.append((g != 0).sum(1).double())
    kept = torch.stack(counts[200:])
    assert abs(float(kept.mean()) - k) < 0.1 * k
    assert kept.std() > 1, "rows differ"


def test_threshold_keeps_the_largest_of_the_batch_and_energy_each_row_its_own():
    v = torch.randn(B, n) * torch.logspace(-2, 0, B)[:, None]
    threshold, energy = (sparsifier_of(kind, "per_example", True) for kind in ("threshold", "energy"))
    g = threshold(v, k)
    assert v[g != 0].abs().min() > v[g == 0].abs().max()
    assert not g[0].any() and g[-1].count_nonzero() > k
    for row, own in zip(v, energy(v, k), strict=True):
        assert torch.equal(own, top_k(row[None], int(own.count_nonzero()))[0])


@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_energy_keeps_the_fewest_entries_that_hold_the_share(share):
    v = torch.randn(B, n)
    g = Energy(share=share)(v, 2)
    for row, kept in zip(v, g, strict=True):
        count = int(kept.count_nonzero())
        held, fewer = (top_k(row[None], c).square().sum() for c in (count, max(count - 1, 1)))
        assert held >= share * row.square().sum() * (1 - 1e-6)
        assert count == 1 or fewer < share * row.square().sum() * (1 + 1e-6)
    bounded = Energy(share=share, least=5, most=9)(v, 2).count_nonzero(1)
    assert bounded.min() >= 5 and bounded.max() <= 9


@pytest.mark.parametrize(("kind", "size"), [("block", 16), ("block_64", 64)])
def test_block_sparsifiers_keep_whole_blocks(kind, size):
    v = torch.randn(B, n)
    for requested in (1, size, 2 * size, n):
        g = sparsifier_of(kind, "per_example", True)(v, min(requested, n))
        whole = (g != 0).unfold(1, 4, 4)  # all borders of blocks are multiples of 4
        assert torch.equal(whole.all(-1), whole.any(-1))
        norms = torch.stack([part.norm(dim=1) for part in v.split(size, 1)], 1)
        best = norms.argmax(1)
        assert all(g[b, best[b] * size : (best[b] + 1) * size].all() for b in range(B))
    with_one_block = sparsifier_of(kind, "per_example", True)(v, 1).count_nonzero(1)
    assert with_one_block.max() <= size


@each_kind
@pytest.mark.parametrize("gamma", [0.0, 0.8])
def test_zeros_and_what_is_not_finite_are_treated_as_by_top_k(kind, gamma):
    probe = Probe(B, n, k, gamma, sparsifier=kind)
    g, _ = probe.backward(torch.zeros(B, n, dtype=torch.float64))
    assert not g.any()
    probe.backward(torch.randn(B, n, dtype=torch.float64))
    before = {name: each.state.clone() for name, each in running_states(probe.model).items()}
    bad = torch.randn(B, n, dtype=torch.float64)
    bad[1, 3] = torch.inf
    assert probe.model[0].estimate(bad, k) is None, "it is propagated whole"
    assert all(torch.equal(each.state, before[name]) for name, each in running_states(probe.model).items())


@each_kind
def test_kept_part_and_memory_sum_to_the_gradient_for_every_sparsifier(kind):
    gamma = 0.8
    probe = Probe(B, n, k, gamma, sparsifier=kind, opened=False)
    before = torch.zeros(1, n, dtype=torch.float64)
    for _ in range(4):
        g, grad_h = probe.backward(torch.randn(B, n, dtype=torch.float64))
        torch.testing.assert_close(gamma * (grad_h + before - g).mean(0, keepdim=True), probe.m)
        before = probe.m


@each_kind
def test_a_sparsifier_without_kernel_runs_in_plain_torch_and_its_state_can_be_saved(kind):
    torch.manual_seed(3)
    model, (x, y) = converted(gamma=0.5, sparsifier=kind), batch()
    assert not model[0].supports_kernel

    def step(network):
        network.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()

    before = torch.get_rng_state()
    step(model)
    assert torch.equal(torch.get_rng_state(), before)
    other = copy.deepcopy(model)
    for name, each in running_states(other).items():
        each.load(running_states(model)[name].state.clone())
    step(model), step(other)
    for name, gradient in gradients(model).items():
        assert torch.equal(gradients(other)[name], gradient)


@each_kind
def test_convolutions_and_lstms_take_a_sparsifier(kind):
    for layer in (nn.LSTM(5, 8, batch_first=True), nn.Conv1d(5, 8, 3)):
        plain = copy.deepcopy(layer)
        convert(nn.Sequential(layer), 0.25, 0.8, sparsifier=kind, layers=["0"])
        for network in (layer, plain):
            out = network(torch.randn(2, 5, 5))
            (out[0] if isinstance(out, tuple) else out).square().sum().backward()
        names = {name for name, p in layer.named_parameters() if p.dim() > 1}
        assert any(
            not torch.allclose(dict(layer.named_parameters())[name].grad, p.grad)
            for name, p in plain.named_parameters()
            if name in names
        )


def test_an_unknown_sparsifier_is_refused_with_the_choices():
    with pytest.raises(ValueError, match="unknown sparsifier 'all': choose from top_k, random, importance"):
        converted(gamma=0.5, sparsifier="all")
