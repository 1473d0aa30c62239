"""Autocast and half precision: never a memory of less precision than the weights (pytorch#87979)."""

import pytest
import torch
from torch import nn

from msbp.sparse import convert, fuse, memories

from .problems import mlp

B, i, n = 6, 10, 16


class Alone(nn.Module):
    """A hidden layer outside of any Sequential."""

    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(i, n), nn.Linear(n, 3)

    def forward(self, x):
        return self.out(self.hidden(x).relu())


@pytest.mark.parametrize("build", [lambda: mlp(i, n, n, 3), Alone], ids=["chain", "alone"])
@pytest.mark.parametrize("install", [convert, fuse])
def test_under_autocast_gradients_and_memory_stay_float32(build, install):
    model = build()
    install(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.randn(B, i)).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert all(p.dtype == p.grad.dtype == torch.float32 for p in model.parameters())
        assert all(m.m.dtype == torch.float32 for m in memories(model).values())
    assert all(p.isfinite().all() and p.grad.any() for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_network_in_half_precision_learns_with_a_memory_of_its_dtype(dtype):
    model = mlp(i, n, n, 3, dtype=dtype)
    convert(model, r=0.2)
    model(torch.randn(B, i, dtype=dtype)).sum().backward()
    assert all(p.grad.dtype == dtype for p in model.parameters())
    assert {m.m.dtype for m in memories(model).values()} == {dtype}
    assert all(m.m.any() for m in memories(model).values())
