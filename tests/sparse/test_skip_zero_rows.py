"""Rows without gradient, as of padding: if skipped, they do not affect the batch."""

import copy

import pytest
import torch

from msbp.sparse import convert

from .problems import assert_close, each_dtype, memory_of, mlp, state

B = 12
SEEN = torch.arange(B) % 3 == 0


def step(model, x, seen, y):
    """One backward pass of a sum over the seen rows."""
    model.zero_grad()
    losses = torch.nn.functional.cross_entropy(model(x), y, reduction="none")
    (losses * seen).sum().backward()


def batch(dtype):
    return torch.randn(B, 6, dtype=dtype), torch.arange(B) % 3


@each_dtype
@pytest.mark.parametrize("bias", ["sparse", "full"])
@pytest.mark.parametrize("selection", ["per_example", "unified"])
def test_padding_changes_neither_gradients_nor_memory(selection, bias, dtype):
    padded = mlp(6, 20, 16, 3, dtype=dtype)
    convert(short := copy.deepcopy(padded), 0.2, selection=selection, bias=bias)
    convert(padded, 0.2, selection=selection, bias=bias)
    for _ in range(4):
        x, y = batch(dtype)
        step(padded, x, SEEN.to(dtype), y)
        step(short, x[SEEN], torch.ones(int(SEEN.sum()), dtype=dtype), y[SEEN])
        assert_close(state(padded), state(short), 1e-5)


@each_dtype
@pytest.mark.parametrize("selection", ["per_example", "unified"])
def test_a_batch_of_zeros_leaves_the_memory_as_it_is(selection, dtype):
    model = mlp(6, 20, 16, 3, dtype=dtype)
    convert(model, 0.2, selection=selection)
    x, y = batch(dtype)
    step(model, x, SEEN.to(dtype), y)
    before = memory_of(model)
    step(model, x, torch.zeros(B, dtype=dtype), y)
    assert all(torch.equal(m, before[name]) for name, m in memory_of(model).items())
    assert not any(p.grad.to_dense().any() for p in model.parameters())


@each_dtype
def test_without_skip_zero_rows_padding_dilutes_the_memory(dtype):
    model = mlp(6, 20, 3, dtype=dtype)
    convert(other := copy.deepcopy(model), 0.2)
    convert(model, 0.2, skip_zero_rows=False)
    x, y = batch(dtype)
    for network in (model, other):
        step(network, x, SEEN.to(dtype), y)
    share = SEEN.to(dtype).mean()
    torch.testing.assert_close(memory_of(model)["0"], share * memory_of(other)["0"])


@each_dtype
def test_a_row_that_is_not_finite_is_not_skipped(dtype):
    model = mlp(6, 20, 3, dtype=dtype)
    convert(model, 0.2)
    x, y = batch(dtype)
    seen = SEEN.to(dtype)
    seen[0] = torch.nan
    step(model, x, seen, y)
    assert model[0].weight.grad.to_dense().isnan().any() and not memory_of(model)["0"].any()
