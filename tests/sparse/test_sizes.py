"""Kernels and plain torch agree at the paper's sizes, where the reference would take minutes.

All numbers are small multiples of powers of two, so both ways compute the same numbers and meet many ties.
Letters: B batch, k kept.
"""

import contextlib
import copy

import pytest
import torch

from msbp.sparse import convert, fuse
from msbp.sparse.buffers import plain_torch

from .problems import assert_close, gradients, memory_of, mlp

SIZES = {
    "MNIST": ((784, 500, 500, 10), 0.04, 32),
    "extreme": ((40, 5000, 300, 10), 0.001, 32),
    "parsing": ((120, 500, 25), 0.04, 1024),
    "one wide batch": ((5, 33, 3), 0.1, 4096),
    "most kept": ((50, 400, 400, 10), 0.8, 32),
    "many classes": ((30, 200, 1000), 0.05, 16),
    "deep": ((20, *[64] * 9, 10), 0.1, 16),
}


def small(*shape):
    return torch.randint(-1, 2, shape).float() * (torch.rand(shape) < 0.3)


CHOICES = [{}, {"memory": "per_slot"}, {"memory": "sequential"}, {"selection": "unified"}]


@pytest.mark.parametrize("choices", CHOICES, ids=str)
@pytest.mark.parametrize(("widths", "r", "B"), SIZES.values(), ids=SIZES)
def test_kernels_and_plain_torch_agree(widths, r, B, choices):
    if choices.get("memory") == "sequential":
        B = min(B, 64)  # one example after another in plain torch takes its time
    model = mlp(*widths, p=0.5)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(small(*p.shape))
    twin = copy.deepcopy(model)
    for network in (model, twin):
        convert(network, r, 0.5, skip_zero_rows=False, **choices)  # means over 2**n rows are exact
    for step in range(2):
        x, grad = small(B, widths[0]), small(B, widths[-1])
        for network, path in ((model, contextlib.nullcontext()), (twin, plain_torch())):
            torch.manual_seed(step)
            network.zero_grad()
            with path:
                network(x).backward(grad)
        assert_close(gradients(model), gradients(twin), 1e-6)
        assert_close(memory_of(model), memory_of(twin), 1e-6)


@pytest.mark.parametrize(("widths", "r", "B"), SIZES.values(), ids=SIZES)
def test_the_baseline_is_torchs_own_backward_pass(widths, r, B):
    model = mlp(*widths)
    twin = copy.deepcopy(model)
    fuse(model)
    x, grad = torch.randn(B, widths[0]), torch.randn(B, widths[-1])
    for network in (model, twin):
        network(x).backward(grad)
    assert_close(gradients(model), gradients(twin))
