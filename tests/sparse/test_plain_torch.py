"""plain_torch: no layer of any kind runs a kernel within it."""

import contextlib
import sys

import pytest
import torch
from numba.core.dispatcher import Dispatcher
from torch import nn

from msbp.sparse import Cube, convert, cross_entropy, fuse, look_up
from msbp.sparse.buffers import plain_torch

from .conv.sentence_batches import layer, sentences


def chain():
    x, y = torch.randn(6, 10), torch.randint(3, (6,))
    net = nn.Sequential(
        nn.Linear(10, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 16), Cube(), nn.Linear(16, 3)
    )
    convert(net, r=0.2)
    return net, lambda: cross_entropy(net(x), y)


def looked_up():
    model = nn.ModuleList([nn.Embedding(9, 4), nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))])
    fuse(model)
    return model, lambda: look_up(*model, torch.randint(9, (5, 2))).square().mean()


def embedding():
    model = nn.ModuleList([nn.Embedding(9, 4)])
    fuse(model)
    return model, lambda: model[0](torch.randint(9, (5, 2))).square().mean()


def lstm(install):
    def make():
        model = nn.ModuleList([nn.LSTM(5, 6, num_layers=2, dropout=0.3, bidirectional=True)])
        install(model)
        return model, lambda: model[0](torch.randn(4, 3, 5))[0].square().mean()

    return make


def convolution(kind, *size):
    def make():
        model = nn.ModuleList([kind(3, 6, 2)])
        convert(model, r=0.3, layers=["0"])
        return model, lambda: model[0](torch.randn(4, 3, *size)).square().mean()

    return make


def max_over_time(install):
    def make():
        model = nn.ModuleList([layer(dtype=torch.float32)])
        install(model)
        return model, lambda: model[0](*sentences(0, dtype=torch.float32)).square().mean()

    return make


LAYERS = {
    "a chain": chain,
    "a chain that looks up": looked_up,
    "an embedding": embedding,
    "the baseline's LSTM": lstm(fuse),
    "a sparse LSTM": lstm(convert),
    "an LSTM with unified selection": lstm(lambda model: convert(model, selection="unified")),
    "a convolution of sequences": convolution(nn.Conv1d, 7),
    "a convolution of images": convolution(nn.Conv2d, 7, 7),
    "the baseline's maximum over time": max_over_time(fuse),
    "a sparse maximum over time": max_over_time(lambda model: convert(model, r=0.3, layers=["0"])),
}


@pytest.fixture
def refused(monkeypatch):
    """Every kernel, under each of its names, raises an error."""

    def refuse(*args):
        raise AssertionError("a kernel ran")

    for name in [name for name in sys.modules if name.startswith("msbp.sparse")]:
        for attribute, value in list(vars(sys.modules[name]).items()):
            if isinstance(value, Dispatcher):
                monkeypatch.setattr(sys.modules[name], attribute, refuse)


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_under_plain_torch_no_layer_runs_a_kernel(make):
    for path, outcome in (
        (plain_torch(), contextlib.nullcontext()),
        (contextlib.nullcontext(), pytest.raises(AssertionError, match="a kernel ran")),
    ):
        model, loss = make()
        with path, outcome:
            loss().backward()
            assert all(p.grad is not None for p in model.parameters())
