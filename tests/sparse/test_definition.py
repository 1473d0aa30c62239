"""The paper's definitions of sparsifier and memory, checked on a layer.

Letters: B batch, n out_features, k kept.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from msbp.sparse import convert, reference

from .problems import Probe, each_dtype, each_memory, gradients, memory_of, mlp

B, n, k, gamma = 6, 40, 7, 0.8
MEMORIES = ("shared", "per_slot", "sequential")
COMBINATIONS = [(memory, "per_example") for memory in MEMORIES] + [
    ("shared", "unified"),
    ("per_slot", "unified"),
]


@pytest.mark.parametrize("selection", ["per_example", "unified"])
def test_kept_part_and_memory_sum_to_the_gradient_per_slot(selection):
    probe = Probe(B, n, k, gamma, opened=False, memory="per_slot", selection=selection)
    before = torch.zeros(B, n, dtype=torch.float64)
    for _ in range(5):
        g, grad_h = probe.backward(torch.randn(B, n, dtype=torch.float64))
        torch.testing.assert_close(g + probe.m / gamma, grad_h + before, rtol=0, atol=1e-12)
        before = probe.m


@pytest.mark.parametrize("selection", ["per_example", "unified"])
def test_kept_part_and_memory_sum_to_the_gradient_of_a_batch_with_shared_memory(selection):
    probe = Probe(B, n, k, gamma, opened=False, memory="shared", selection=selection)
    before = torch.zeros(1, n, dtype=torch.float64)
    for rows in (B, B, 2, B, 1):
        g, grad_h = probe.backward(torch.randn(rows, n, dtype=torch.float64))
        kept, brought = g.sum(0) + rows * probe.m[0] / gamma, (grad_h + before).sum(0)
        torch.testing.assert_close(kept, brought, rtol=0, atol=1e-12)
        before = probe.m


def test_kept_part_and_memory_sum_to_the_gradient_with_sequential_memory():
    probe = Probe(B, n, k, gamma, opened=False, memory="sequential")
    m = torch.zeros(n, dtype=torch.float64)
    for _ in range(5):
        g, grad_h = probe.backward(torch.randn(B, n, dtype=torch.float64))
        for kept, brought in zip(g, grad_h, strict=True):
            m = gamma * (brought + m - kept)
        torch.testing.assert_close(probe.m[0], m, rtol=0, atol=1e-12)


@pytest.mark.parametrize("bias", ["sparse", "full"])
@pytest.mark.parametrize(("memory", "selection"), COMBINATIONS)
def test_full_ratio_is_plain_backpropagation(memory, selection, bias):
    model, plain = mlp(9, 20, 12, 5, dtype=torch.float64), mlp(9, 20, 12, 5, dtype=torch.float64)
    plain.load_state_dict(model.state_dict())
    convert(model, r=1.0, gamma=gamma, memory=memory, selection=selection, bias=bias)
    for _ in range(3):
        x = torch.randn(B, 9, dtype=torch.float64)
        for network in (model, plain):
            network.zero_grad()
            network(x).square().sum().backward()
        for name, grad in gradients(plain).items():
            torch.testing.assert_close(gradients(model)[name], grad, rtol=1e-12, atol=1e-12)
        assert not any(m.any() for m in memory_of(model).values())


@each_memory
@each_dtype
def test_gamma_zero_is_algorithm_1_at_every_step(memory, dtype):
    probe = Probe(B, n, k, 0.0, dtype=dtype, opened=False, memory=memory)
    for _ in range(5):
        g, grad_h = probe.backward(torch.randn(B, n, dtype=dtype))
        for b in range(B):
            grad_weight, _ = reference.algorithm_1(probe.weight.detach(), probe.x[b], grad_h[b], k)
            assert torch.equal(grad_weight[:, b], g[b])
        assert not memory_of(probe.model)


@each_dtype
def test_one_example_is_algorithm_2_at_every_step(dtype):
    for memory in MEMORIES:
        probe, m = Probe(1, n, k, gamma, dtype=dtype, memory=memory), torch.zeros(n, dtype=dtype)
        for _ in range(10):
            g, grad_h = probe.backward(torch.randn(1, n, dtype=dtype))
            weight = probe.weight.detach()
            grad_weight, _, m = reference.algorithm_2(weight, probe.x[0], grad_h[0], k, gamma, m)
            torch.testing.assert_close(grad_weight[:, 0], g[0])
            torch.testing.assert_close(probe.m[0], m)


@pytest.mark.parametrize(("memory", "selection"), COMBINATIONS)
@each_dtype
def test_a_zero_gradient_leaves_a_zero_memory(memory, selection, dtype):
    probe = Probe(B, n, k, gamma, dtype=dtype, memory=memory, selection=selection)
    g, _ = probe.backward(torch.zeros(B, n, dtype=dtype))
    assert not g.any() and not probe.m.any()


@each_memory
def test_memory_is_propagated_when_the_gradient_is_zero(memory):
    """1·k entries a step leave the memory of one example until nothing is left."""
    probe = Probe(1, n, k, gamma, memory=memory, skip_zero_rows=False)
    probe.backward(torch.randn(1, n, dtype=torch.float64))
    left = n - k
    while left:
        assert probe.m.count_nonzero() == left
        g, _ = probe.backward(torch.zeros(1, n, dtype=torch.float64))
        assert g.count_nonzero() == min(k, left)
        left -= min(k, left)
    assert not probe.m.any()


vectors = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=80)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(vectors, st.data())
def test_the_angle_of_the_kept_part_is_at_most_arccos_sqrt_r(v, data):
    """Appendix B.3: cos∠(top_k(v), v) ≥ √(k/n)."""
    v = torch.tensor(v, dtype=torch.float64)
    kept = data.draw(st.integers(1, len(v)))
    top = reference.top_k(v, kept)
    assert torch.count_nonzero(top) <= kept
    if v.any():
        cosine = torch.dot(top, v) / (top.norm() * v.norm())
        assert cosine >= (kept / len(v)) ** 0.5 - 1e-12


@each_dtype
@pytest.mark.parametrize("width", [1, 2, 7, 8, 31, 32, 33, 64, 100])
def test_the_layer_keeps_exactly_k_entries_a_row(width, dtype):
    for kept in sorted({1, (width + 1) // 2, max(1, width - 1), width}):
        probe = Probe(B, width, kept, 0.0, dtype=dtype)
        assert probe.replaced == {"0": kept}
        g, grad_h = probe.backward(torch.randn(B, width, dtype=dtype))
        assert (g.count_nonzero(1) == kept).all()
        assert torch.equal(g, torch.stack([reference.top_k(row, kept) for row in grad_h]))
        cosine = (g * grad_h).sum(1) / (g.norm(dim=1) * grad_h.norm(dim=1))
        assert (cosine >= (kept / width) ** 0.5 - 1e-6).all()


@each_dtype
def test_unified_selection_keeps_the_same_k_columns_for_all(dtype):
    probe = Probe(B, n, k, 0.0, dtype=dtype, selection="unified")
    g, grad_h = probe.backward(torch.randn(B, n, dtype=dtype))
    columns = sorted(reference.largest(grad_h.abs().sum(0), k))
    assert g.any(0).nonzero().flatten().tolist() == columns
    assert torch.equal(g[:, columns], grad_h[:, columns])
