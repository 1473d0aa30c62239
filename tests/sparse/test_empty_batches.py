"""A batch without examples passes through each layer as through torch's: empty output, gradients of zero."""

import contextlib
import copy

import pytest
import torch
from torch import nn

from msbp.sparse import convert, fuse, memories
from msbp.sparse.buffers import plain_torch

from .problems import assert_close, each_dtype, gradients, mlp


class Recurrent(nn.Module):
    def __init__(self, **choices):
        super().__init__()
        self.rnn = nn.LSTM(3, 5, num_layers=2, bidirectional=True, **choices)
        self.out = nn.Linear(10, 2)

    def forward(self, x):
        states, last = self.rnn(x)
        return self.out(states).sum() + sum(state.sum() for state in last)


LAYERS = {
    "linear": (lambda: mlp(3, 8, 2), (0, 3)),
    "linear over time": (lambda: mlp(3, 8, 2), (0, 4, 3)),
    "no time": (lambda: mlp(3, 8, 2), (4, 0, 3)),
    "lstm": (Recurrent, (4, 0, 3)),
    "lstm, batch first": (lambda: Recurrent(batch_first=True, dropout=0.5), (0, 4, 3)),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 4, 2)), (0, 3, 6)),
    "conv2d": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 4, 2)), (0, 3, 4, 4)),
}
each_layer = pytest.mark.parametrize(("build", "shape"), LAYERS.values(), ids=LAYERS)


def sparse(model):
    first, *_ = (name for name, module in model.named_modules() if not list(module.children()) and name)
    convert(model, r=0.3, layers=[first])


@each_layer
@each_dtype
@pytest.mark.parametrize("install", [sparse, fuse])
@pytest.mark.parametrize("way", [contextlib.nullcontext, plain_torch], ids=["by kernel", "in plain torch"])
def test_an_empty_batch_gives_torchs_outputs_and_gradients(build, shape, dtype, install, way):
    plain = build().to(dtype)
    model = copy.deepcopy(plain)
    install(model)
    inputs = [torch.randn(*shape, dtype=dtype, requires_grad=True) for _ in range(2)]
    with way():
        outputs = [network(x) for network, x in zip((plain, model), inputs, strict=True)]
        for output in outputs:
            output.sum().backward()
    assert outputs[0].shape == outputs[1].shape
    assert inputs[1].grad.shape == shape
    assert_close(gradients(model), gradients(plain), 0)
    assert not any(memory.m.any() for memory in memories(model).values())


@each_layer
def test_a_full_batch_after_an_empty_one_is_as_if_it_were_the_first(build, shape):
    model = build()
    sparse(model)
    twin, full = copy.deepcopy(model), torch.randn([size or 2 for size in shape])
    model.eval()(torch.randn(shape)).sum().backward()
    model.zero_grad()
    for network in (model, twin.eval()):
        network(full).square().sum().backward()
    assert_close(gradients(model), gradients(twin), 0)
