"""Ties, and numbers at the ends of the range: the same k entries on every path.

Letters: B batch, n out_features, k kept. Top-k picks ties by build, device and k in torch (pytorch#27542).
"""

import pytest
import torch

from msbp.sparse import SparseLinear, reference, top_k

from .problems import Probe, each_dtype

B = 6
TIES = torch.tensor([[1.0, -1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])


@each_dtype
@pytest.mark.parametrize("gamma", [0.0, 0.8])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_of_equal_magnitudes_the_lowest_index_is_kept(k, gamma, dtype):
    for _ in range(3):
        probe = Probe(2, 4, k, gamma, dtype=dtype)
        g, _ = probe.backward(TIES.to(dtype))
        expected = TIES.clone()
        expected[0, k:] = 0
        assert torch.equal(g, expected.to(dtype))


@each_dtype
@pytest.mark.parametrize("width", [5, 32, 33, 70, 257])
def test_ties_anywhere_in_a_wide_row_go_to_the_lowest_index(width, dtype):
    """Blocks of equal magnitudes, of both signs, that begin and end anywhere in a vector register."""
    for first in range(0, width, 7):
        v = torch.full((1, width), 0.5, dtype=dtype)
        v[0, first:] = 2.0
        v[0, ::3] *= -1
        large = width - first
        for k in {1, min(9, width), (large + 1) // 2, large, min(width, large + 1)}:
            g, _ = Probe(1, width, k, 0.0, dtype=dtype).backward(v)
            assert torch.equal(g[0], reference.top_k(v[0], k)), (first, k)


@each_dtype
def test_a_tie_in_the_sum_over_the_batch_goes_to_the_lowest_index(dtype):
    grad = torch.tensor([[3.0, 1.0, 2.0, 0.0], [0.0, -2.0, 1.0, 3.0]], dtype=dtype)
    g, _ = Probe(2, 4, 2, 0.0, dtype=dtype, selection="unified").backward(grad)
    assert torch.equal(g, grad * torch.tensor([1, 1, 0, 0]))


@each_dtype
def test_few_entries_are_all_kept_when_k_exceeds_their_number(dtype):
    grad = torch.zeros(3, 40, dtype=dtype)
    grad[0, 17], grad[1, [3, 39]] = 2.0, torch.tensor([-1e-30, 1e30], dtype=dtype)
    g, _ = Probe(3, 40, 10, 0.8, dtype=dtype).backward(grad)
    assert torch.equal(g, grad)


def test_the_smallest_and_the_largest_float32_are_distinguished():
    tiny, huge = 2.0**-149, 3.4e38
    grad = torch.tensor(
        [[0.0, -tiny, 0.0, 2 * tiny], [huge, -3e38, 2.0**-126, 2.0**-127], [-0.0, 0.0, -tiny, -0.0]]
    )
    g, _ = Probe(3, 4, 1, 0.0, dtype=torch.float32).backward(grad)
    assert torch.equal(g, torch.tensor([[0, 0, 0, 2 * tiny], [huge, 0, 0, 0], [0, 0, -tiny, 0]]))


@pytest.mark.parametrize("k", [-1, 0, 5])
def test_a_k_out_of_range_is_refused(k):
    with pytest.raises(ValueError, match=f"{k}"):
        top_k(TIES, k)
    with pytest.raises(ValueError, match=f"{k}"):
        SparseLinear(3, 4, k=k)


def test_a_small_ratio_of_a_narrow_layer_keeps_one_entry():
    probe = Probe(B, 10, 0.4, 0.0)
    assert probe.replaced == {"0": 1}
    g, _ = probe.backward(torch.randn(B, 10, dtype=torch.float64))
    assert (g.count_nonzero(1) == 1).all()
