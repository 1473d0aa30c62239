"""The first product of a chain leaves out columns of zeros, with the same result in less time."""

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
    [(32, 500, 784, 450), (32, 1, 1, 0), (27, 13, 300, 150), (70, 7, 20, 11), (256, 6, 900, 193)],
)
def test_leaving_columns_of_zeros_out_changes_no_product(B, n, i, used):
    x, weight = images(B, i, used), torch.randn(n, i)
    whole = x.double() @ weight.double().T
    torch.testing.assert_close(product(x, weight), whole.float(), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("B, used", [(32, 90), (8, 50), (1, 3)])
def test_a_product_with_few_zeros_or_few_examples_is_computed_by_blas(B, used):
    assert product(images(B, 100, used), torch.randn(3, 100)) is None


def test_the_product_of_an_example_depends_on_no_other():
    x, weight = images(32, 60, 20), torch.randn(5, 60)
    others = torch.cat([x[:1], images(31, 60, 20)])
    assert torch.equal(product(x, weight)[0], product(others, weight)[0])


def test_a_nan_in_one_example_reaches_its_product_alone():
    x = images(32, 60, 20)
    x[3, 7] = torch.nan
    assert product(x, torch.randn(5, 60)).isnan().any(1).nonzero().tolist() == [[3]]


def test_a_column_of_negative_zeros_is_skipped_too():
    x, weight = images(32, 60, 20), torch.randn(5, 60)
    assert torch.equal(product(torch.where(x == 0, -0.0, x), weight), product(x, weight))


def test_a_chain_gives_the_same_with_and_without_columns_of_zeros():
    plain = nn.Sequential(nn.Linear(50, 9), nn.ReLU(), nn.Linear(9, 3))
    chain = nn.Sequential(nn.Linear(50, 9), nn.ReLU(), nn.Linear(9, 3))
    chain.load_state_dict(plain.state_dict())
    fuse(chain)
    for used in (0, 20, 50):
        x = images(32, 50, used)
        plain.zero_grad(), chain.zero_grad()
        plain(x).square().sum().backward()
        chain(x).square().sum().backward()
        for expected, actual in zip(plain.parameters(), chain.parameters(), strict=True):
            torch.testing.assert_close(actual.grad, expected.grad)
