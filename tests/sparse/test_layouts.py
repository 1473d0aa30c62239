"""Gradients and inputs of every layout are read as by torch's own layers, and not changed.

Letters: B batch, T time, i in_features, n out_features, k kept. Hand-written backward passes that take odd
strides for contiguous ones give wrong numbers without an error (pytorch#64529, #69997, flash-attention#355).
"""

import pytest
import torch
from torch import nn

from msbp.sparse import convert, fuse, reference

from .problems import assert_close, each_dtype, each_memory, gradients, memory_of, mlp

B, T, i, n = 6, 4, 10, 16


class Hidden(nn.Module):
    """A single hidden layer with an activation in its forward pass."""

    def __init__(self, bias: bool = True):
        super().__init__()
        self.hidden, self.out = nn.Linear(i, n, bias=bias), nn.Linear(n, 3)

    def forward(self, x):
        return self.out(self.hidden(x))


LOSSES = {
    "stride 0 in every direction": lambda z: z.sum(),
    "stride 0 over the batch": lambda z: (z.sum(0) * torch.arange(1.0, n + 1)).sum(),
    "stride 0 over the columns": lambda z: (z.mean(-1) * weights(z.mean(-1))).sum(),
    "transposed": lambda z: (z.transpose(0, -1) * weights(z.transpose(0, -1))).sum(),
    "every second column": lambda z: (z[..., ::2] * weights(z[..., ::2])).sum(),
    "columns reversed": lambda z: (z.flip(-1) * weights(z)).sum(),
    "a slice of the batch": lambda z: (z[1:4] * weights(z[1:4])).sum(),
    "concatenated with a stranger": lambda z: (
        torch.cat([z, 2 * z], -1) * weights(torch.cat([z, z], -1))
    ).sum(),
}
INPUTS = {
    "contiguous": lambda *shape: torch.randn(*shape, i),
    "every second column": lambda *shape: torch.randn(*shape, 2 * i)[..., ::2],
    "transposed": lambda *shape: torch.randn(i, *shape).movedim(0, -1),
    "one row for all": lambda *shape: torch.randn(i).expand(*shape, i),
    "a slice that starts inside": lambda *shape: torch.randn(shape[0] + 2, *shape[1:], i)[2:],
    "every second row": lambda *shape: torch.randn(2 * shape[0], *shape[1:], i)[::2],
}


def weights(z):
    """Fixed and different for all entries."""
    return torch.linspace(-1, 2, z.numel(), dtype=z.dtype).reshape(z.shape).sin()


def backward(model, x, loss):
    """The model's gradients, and that of x."""
    x = x.detach().requires_grad_()  # keeps the strides
    model.zero_grad()
    loss(model.hidden(x)).backward()
    return {**gradients(model), "x": x.grad}


@each_dtype
@pytest.mark.parametrize("shape", [(B,), (B, T), (2, 3, T), ()], ids=str)
@pytest.mark.parametrize("layout", INPUTS)
def test_inputs_of_every_layout_and_shape_are_accepted(layout, shape, dtype):
    if not shape and layout != "contiguous":
        shape = (1,)
    x = INPUTS[layout](*shape).to(dtype)
    plain, full, lean = (Hidden().to(dtype) for _ in range(3))
    for model, install in ((full, lambda model: convert(model, r=1.0)), (lean, fuse)):
        model.load_state_dict(plain.state_dict())
        install(model)
        assert_close(
            backward(model, x, lambda z: (z * weights(z)).sum()),
            backward(plain, x, lambda z: (z * weights(z)).sum()),
        )
        torch.testing.assert_close(model(x), plain(x))


@each_dtype
@pytest.mark.parametrize("shape", [(B,), (B, T)], ids=str)
@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_of_every_layout_are_accepted(loss, shape, dtype):
    def measure(z):
        return LOSSES[loss](z.float()).to(dtype)

    x, plain, full = torch.randn(*shape, i, dtype=dtype), Hidden().to(dtype), Hidden().to(dtype)
    full.load_state_dict(plain.state_dict())
    convert(full, r=1.0)
    assert_close(backward(full, x, measure), backward(plain, x, measure))


@each_dtype
@pytest.mark.parametrize("shape", [(B,), (B, T)], ids=str)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_sparse_backward_is_the_dense_one_of_the_masked_gradient(loss, shape, dtype):
    x, plain, sparse = torch.randn(*shape, i, dtype=dtype), Hidden().to(dtype), Hidden().to(dtype)
    sparse.load_state_dict(plain.state_dict())
    convert(sparse, r=5 / n, gamma=0.0)
    upstream = []

    def masked(z):
        z.retain_grad()
        upstream.append(z)
        return LOSSES[loss](z.float()).to(dtype)

    actual = backward(sparse, x, masked)
    grad_z = upstream[0].grad.reshape(-1, n)
    kept = torch.stack([reference.top_k(row, 5) for row in grad_z]).reshape(*shape, n)
    assert_close(actual, backward(plain, x, lambda z: (z * kept).sum()))


@each_dtype
@pytest.mark.parametrize("gamma", [0.0, 0.8])
@pytest.mark.parametrize("build", [lambda: mlp(i, n, n, 3), Hidden], ids=["chain", "alone"])
def test_the_incoming_gradient_and_the_input_are_left_unchanged(build, gamma, dtype):
    model = build().to(dtype)
    convert(model, r=0.2, gamma=gamma)
    x, grad = torch.randn(B, i, dtype=dtype), torch.randn(B, 3, dtype=dtype)
    given = x.clone(), grad.clone()
    for _ in range(2):
        model(x).backward(grad)
    assert torch.equal(x, given[0]) and torch.equal(grad, given[1])
    z = (model.hidden if isinstance(model, Hidden) else model[0])(x)
    grad = torch.randn_like(z)
    given = grad.clone()
    z.backward(grad)
    assert torch.equal(grad, given)


@each_dtype
@each_memory
def test_time_steps_are_rows_like_those_of_a_batch(memory, dtype):
    flat, deep = mlp(i, n, 3, dtype=dtype), mlp(i, n, 3, dtype=dtype)
    deep.load_state_dict(flat.state_dict())
    for model in (flat, deep):
        convert(model, r=0.2, memory=memory)
    for _ in range(3):
        x, grad = torch.randn(B, T, i, dtype=dtype), torch.randn(B, T, 3, dtype=dtype)
        flat(x.reshape(-1, i)).backward(grad.reshape(-1, 3))
        deep(x).backward(grad)
        assert_close(gradients(deep), gradients(flat), 1e-6)
        assert_close(memory_of(deep), memory_of(flat), 1e-6)


@each_dtype
@each_memory
def test_a_batch_without_examples_changes_nothing(memory, dtype):
    model = mlp(i, n, 3, dtype=dtype)
    convert(model, r=0.2, memory=memory)
    model(torch.randn(B, i, dtype=dtype)).sum().backward()
    before, m = gradients(model), memory_of(model)
    model(torch.empty(0, i, dtype=dtype)).sum().backward()
    assert_close(gradients(model), before, 0)
    assert_close(memory_of(model), m, 0)
