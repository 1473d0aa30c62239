"""Sparse Conv1d and Conv2d against torch's own, and the rules of selection."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from msbp.sparse import SparseConv1d, SparseConv2d, convert, memories
from msbp.sparse.buffers import plain_torch

SHAPES = [
    (lambda: nn.Conv1d(4, 6, 3), (3, 4, 11)),
    (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2, bias=False), (3, 4, 11)),
    (lambda: nn.Conv1d(4, 6, 2, groups=2, padding_mode="circular", padding=1), (3, 4, 5)),
    (lambda: nn.Conv1d(4, 6, 3), (4, 11)),
    (lambda: nn.Conv2d(2, 6, (2, 3), padding=(1, 0), dilation=(2, 1)), (3, 2, 5, 6)),
    (lambda: nn.Conv2d(2, 6, 3, padding="same"), (3, 2, 5, 6)),
    (lambda: nn.Conv2d(2, 6, 3, stride=2), (2, 7, 7)),
]
each_shape = pytest.mark.parametrize(("make", "shape"), SHAPES)
each_selection = pytest.mark.parametrize("selection", ["per_example", "per_position", "unified"])


def model_of(conv: nn.Module) -> nn.Module:
    model = nn.ModuleDict({"conv": conv})
    model.msbp_hidden_layers = [["conv"]]  # type: ignore[assignment]
    return model


def sparse(conv: nn.Module, k: int, gamma: float = 0.0, **choices: str) -> nn.Module:
    conv = copy.deepcopy(conv)
    assert convert(model_of(conv), k / conv.out_channels, gamma, **choices) == {"conv": k}
    return conv


def gradients(conv: nn.Module, x: torch.Tensor, grad: torch.Tensor) -> list[torch.Tensor]:
    x = x.detach().clone().requires_grad_()
    conv.zero_grad()
    conv(x).backward(grad)
    return [x.grad, *(p.grad.clone() for p in conv.parameters())]


@each_shape
@each_selection
def test_full_ratio_is_torchs_own_gradient(make, shape, selection):
    plain, x = make().double(), torch.randn(shape, dtype=torch.float64)
    conv = sparse(plain, 6, 0.8, selection=selection)
    h = conv(x)
    torch.testing.assert_close(h, plain(x))
    for ours, theirs in zip(gradients(conv, x, h.detach()), gradients(plain, x, h.detach()), strict=True):
        torch.testing.assert_close(ours, theirs)


@each_shape
def test_the_gradient_is_that_of_the_kept_entries(make, shape):
    """Positions with a gradient keep 2 of 6 channels; the backward pass of the kept entries is torch's."""
    plain, x = make().double(), torch.randn(shape, dtype=torch.float64)
    grad = torch.randn_like(plain(x)) * (torch.rand(plain(x).shape[-1]) < 0.7)
    rows = grad.movedim(-1 - len(plain.kernel_size), -1)
    kept = torch.where(rows.abs() >= rows.abs().topk(2).values[..., -1:], rows, 0)
    expected = gradients(plain, x, kept.movedim(-1, -1 - len(plain.kernel_size)))
    for ours, theirs in zip(
        gradients(sparse(plain, 2, selection="per_position"), x, grad), expected, strict=True
    ):
        torch.testing.assert_close(ours, theirs)


@each_shape
@each_selection
@pytest.mark.parametrize("bias", ["sparse", "full"])
def test_plain_torch_and_the_kernels_agree(make, shape, selection, bias):
    plain, runs = make(), []
    x = torch.randn(4, *shape)
    grads = [torch.randn_like(plain(x[0])) * (torch.rand(plain(x[0]).shape[-1]) < 0.8) for _ in x]
    for way in (nullcontext, plain_torch):
        conv = sparse(plain, 2, 0.8, selection=selection, bias=bias)
        with way():
            runs.append([gradients(conv, *step) for step in zip(x, grads, strict=True)])
        runs[-1].append([conv.memory.m])
    for ours, theirs in zip(*runs, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_a_convolution_accepts_an_input_without_gradient():
    for way in (nullcontext, plain_torch):
        conv = sparse(nn.Conv2d(2, 6, 3), 2)
        with way():
            conv(torch.randn(2, 2, 5, 5)).sum().backward()
        assert conv.weight.grad.any()


def test_flat_selection_ranks_positions_and_channels_of_an_example_together():
    plain = nn.Conv1d(1, 4, 1, bias=False).double()
    x, grad = torch.ones(2, 1, 3, dtype=torch.float64), torch.zeros(2, 4, 3, dtype=torch.float64)
    grad[0, :, 1] = torch.tensor([5.0, -4.0, 3.0, 2.0])  # one position holds the three largest of example 0
    grad[0, 0, 0], grad[0, 1, 2] = 1.0, -1.0
    grad[1] = 0.1
    conv = sparse(plain, 1, selection="per_example")
    weight = gradients(conv, x, grad)[1].flatten()
    torch.testing.assert_close(weight, torch.tensor([5.1, -3.9, 3.1, 0.0], dtype=torch.float64))


@each_selection
def test_kept_part_and_memory_sum_to_the_gradient(selection):
    """Σ g + R m / γ = Σ (∂ℓ/∂h + m before): with x of ones the weight gradient is Σ g."""
    conv, gamma = sparse(nn.Conv1d(1, 6, 1, bias=False).double(), 2, 0.5, selection=selection), 0.5
    for _ in range(4):
        grad = torch.randn(3, 6, 5, dtype=torch.float64)
        grad[1, :, 2:] = 0  # rows that take no part
        before, R = conv.memory.m[0].clone(), 3 * 5 - 3
        g = gradients(conv, torch.ones(3, 1, 5, dtype=torch.float64), grad)[1].flatten()
        torch.testing.assert_close(g + R * conv.memory.m[0] / gamma, grad.sum((0, 2)) + R * before)
    assert conv.memory.m.any()


def test_memory_does_not_depend_on_the_length_of_the_input():
    conv = sparse(nn.Conv1d(4, 6, 3), 1, 0.8)
    for length in (5, 12, 3):
        conv(torch.randn(2, 4, length)).sum().backward()
        assert conv.memory.m.shape == (1, 6)


def test_a_full_bias_gradient_sums_all_entries():
    plain, x = nn.Conv1d(4, 6, 3), torch.randn(3, 4, 9)
    grad = torch.randn(3, 6, 7)
    full, some = (gradients(sparse(plain, 1, bias=bias), x, grad)[2] for bias in ("full", "sparse"))
    torch.testing.assert_close(full, gradients(plain, x, grad)[2])
    assert not torch.allclose(full, some)


def test_strides_of_the_incoming_gradient_do_not_matter():
    plain, x = nn.Conv1d(4, 6, 3), torch.randn(3, 4, 9)
    w = torch.randn(7, 6, 3)
    dense = (plain(x).permute(2, 1, 0) * w).sum()
    dense.backward()
    conv = sparse(plain, 6)
    (conv(x).permute(2, 1, 0) * w).sum().backward()
    torch.testing.assert_close(conv.weight.grad, plain.weight.grad)
    conv.zero_grad(), plain.zero_grad()
    conv(x).sum().backward(), plain(x).sum().backward()  # a gradient of strides 0
    torch.testing.assert_close(conv.weight.grad, plain.weight.grad)


def test_convert_takes_convolutions_where_a_model_declares_them():
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 3)
    )
    parameters = list(net.parameters())
    net.msbp_hidden_layers = [["0", "3"]]  # type: ignore[assignment]
    assert convert(net, r=0.25, gamma=0.5) == {"0": 2, "3": 4}
    assert type(net[0]) is SparseConv2d and all(
        a is b for a, b in zip(net.parameters(), parameters, strict=True)
    )
    net(torch.randn(5, 1, 4, 4)).sum().backward()
    assert set(memories(net)) == {"0", "3"} and all(m.m.any() for m in memories(net).values())
    with pytest.raises(ValueError, match="already"):
        convert(net)


def test_undeclared_convolutions_stay_and_named_ones_do_not():
    net = nn.Sequential(nn.Conv1d(2, 8, 3), nn.Flatten(), nn.Linear(16, 16), nn.Linear(16, 3))
    assert convert(copy.deepcopy(net), r=0.25) == {"2": 4}
    assert convert(net, r=0.25, layers=["0"]) == {"0": 2}
    assert type(net[0]) is SparseConv1d and type(net[2]) is nn.Linear


def test_an_unknown_selection_is_refused_with_the_choices():
    conv = nn.Conv1d(4, 6, 3)
    with pytest.raises(
        ValueError, match=r"selection 'best': choose from per_example, per_position, pooled, unified"
    ):
        convert(model_of(conv), selection="best")
    assert type(conv) is nn.Conv1d
