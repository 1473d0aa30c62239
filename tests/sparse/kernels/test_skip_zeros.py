"""The products of a chain leave out columns of zeros, with the same result in less time."""

import copy

import pytest
import torch
from torch import nn

from msbp.sparse import fuse
from msbp.sparse.kernels.skip_zeros import product_of_used


def images(B, i, used):
    """Numbers in `used` of i columns, other ones for every 32 examples."""
    x = torch.zeros(B, i)
    for first in range(0, B, 32):
        block = x[first : first + 32]
        block[:, torch.randperm(i)[:used]] = torch.randn(len(block), used)
    return x


def product(x, weight):
    """(B, n), or None where the kernel leaves it to BLAS."""
    z = torch.full((len(x), len(weight)), torch.nan)
    done = product_of_used(x.data_ptr(), weight.data_ptr(), z.data_ptr(), *z.shape, x.shape[1], 1)
    return z if done else None


@pytest.mark.parametrize(
    "B, n, i, used",
    [(32, 500, 784, 450), (32, 64, 1, 0), (27, 131, 300, 110), (70, 97, 20, 5), (256, 106, 4999, 193)],
)
def test_leaving_columns_of_zeros_out_changes_no_product(B, n, i, used):
    x, weight = images(B, i, used), torch.randn(n, i)
    whole = x.double() @ weight.double().T
    torch.testing.assert_close(product(x, weight), whole.float(), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("B, n, used", [(32, 100, 90), (8, 100, 50), (1, 100, 3), (33, 100, 40), (32, 9, 1)])
def test_a_product_with_few_zeros_few_examples_or_few_outputs_is_computed_by_blas(B, n, used):
    assert product(images(B, 100, used), torch.randn(n, 100)) is None


def test_a_product_of_strided_examples_a_power_of_two_apart_is_right():
    x, weight = images(32, 1024, 400), torch.randn(128, 1024)
    torch.testing.assert_close(product(x, weight), x @ weight.T, rtol=1e-5, atol=1e-4)


def test_units_whose_activation_is_zero_are_skipped():
    x, weight = images(32, 200, 20), torch.randn(300, 200)
    expected = x @ weight.T
    weight[:, (x == 0).all(0)] = torch.inf
    torch.testing.assert_close(product(x, weight), expected, rtol=1e-5, atol=2e-5)


def test_the_product_of_an_example_depends_on_no_other():
    x, weight = images(32, 60, 20), torch.randn(128, 60)
    others = torch.cat([x[:1], images(31, 60, 20)])
    assert torch.equal(product(x, weight)[0], product(others, weight)[0])


def test_a_nan_in_one_example_reaches_its_product_alone():
    x = images(32, 60, 20)
    x[3, 7] = torch.nan
    assert product(x, torch.randn(128, 60)).isnan().any(1).nonzero().tolist() == [[3]]


def test_a_column_of_negative_zeros_is_skipped_too():
    x, weight = images(32, 60, 20), torch.randn(128, 60)
    assert torch.equal(product(torch.where(x == 0, -0.0, x), weight), product(x, weight))


def test_a_chain_gives_the_same_with_and_without_columns_of_zeros():
    plain = nn.Sequential(nn.Linear(50, 90), nn.ReLU(), nn.Linear(90, 70), nn.ReLU(), nn.Linear(70, 3))
    with torch.no_grad():
        plain[0].bias[:60] = -100  # units that are never active
    chain = copy.deepcopy(plain)
    fuse(chain)
    for used in (0, 20, 50):
        x = images(32, 50, used)
        plain.zero_grad(), chain.zero_grad()
        plain(x).square().sum().backward()
        chain(x).square().sum().backward()
        for expected, actual in zip(plain.parameters(), chain.parameters(), strict=True):
            torch.testing.assert_close(actual.grad, expected.grad)
