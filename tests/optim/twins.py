"""A network and its shadow take the same steps, one with our optimizer and one with torch's.

The network's gradients stay as the backward pass left them, factored; the shadow's are read, hence dense, and
go to torch's optimizer. After each step the shadow takes over the network's weights, so that rounding cannot
turn into another selection. Letters: B batch, c classes.
"""

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn

from msbp import optim
from msbp.sparse import convert, cross_entropy

B, widths, c = 8, (12, 64, 40, 5), 5


def network(r=0.05, gamma=0.8, install=None, dtype=torch.float32, **choices):
    layers = [module for i, n in pairwise(widths) for module in (nn.Linear(i, n), nn.ReLU())]
    model = nn.Sequential(*layers[:-1]).to(dtype)
    if install:
        install(model)
    else:
        convert(model, r=r, gamma=gamma, **choices)
    return model


def batch(dtype=torch.float32):
    return torch.randn(B, widths[0], dtype=dtype), torch.randint(c, (B,))


class Twins:
    """A network with an optimizer of ours, and dense copies of its weights with one of torch's."""

    def __init__(self, model, ours, theirs):
        self.model, self.shadow = model, copy.deepcopy(model)
        self.dense = [nn.Parameter(p.detach().clone()) for p in model.parameters()]
        self.ours, self.theirs = ours(model.parameters()), theirs(self.dense)

    def backward(self, x, y, times=1.0):
        for network in (self.model, self.shadow):
            loss = cross_entropy(network(x), y)
            (loss if times == 1 else times * loss).backward()

    def read(self):
        for p, source in zip(self.dense, self.shadow.parameters(), strict=True):
            p.grad = None if source.grad is None else source.grad.to_dense().clone()

    def step(self):
        self.ours.step()
        self.theirs.step()
        with torch.no_grad():
            for p, source in zip(self.shadow.parameters(), self.model.parameters(), strict=True):
                p.copy_(source)
        self.zero_grad()

    def zero_grad(self):
        self.ours.zero_grad()
        self.theirs.zero_grad()
        self.shadow.zero_grad()

    def apart(self):
        pairs = zip(self.model.parameters(), self.dense, strict=True)
        return max((p - q).abs().max().item() for p, q in pairs)


def run(twins, steps, passes=1, between=lambda twins, step: None):
    for step in range(steps):
        for _ in range(passes):
            twins.backward(*batch(twins.dense[0].dtype))
        twins.read()
        between(twins, step)
        twins.step()
    return twins.apart()


OPTIMIZERS = {
    "Adam": (optim.Adam, torch.optim.Adam),
    "Adam, other constants": (
        lambda params: optim.Adam(params, lr=3e-3, betas=(0.8, 0.99), eps=1e-6),
        lambda params: torch.optim.Adam(params, lr=3e-3, betas=(0.8, 0.99), eps=1e-6),
    ),
    "Adam without momentum": (
        lambda params: optim.Adam(params, betas=(0.0, 0.999)),
        lambda params: torch.optim.Adam(params, betas=(0.0, 0.999)),
    ),
    "SGD": (lambda params: optim.SGD(params, 0.05), lambda params: torch.optim.SGD(params, 0.05)),
    "SGD with momentum": (
        lambda params: optim.SGD(params, 0.02, momentum=0.9),
        lambda params: torch.optim.SGD(params, 0.02, momentum=0.9),
    ),
}
OPTIONS = {
    "AdamW": ("AdamW", {}),
    "AdamW with much decay": ("AdamW", {"lr": 5e-3, "weight_decay": 2.0}),
    "AdamW without momentum": ("AdamW", {"betas": (0.0, 0.9), "weight_decay": 0.1}),
    "AdamW with amsgrad": ("AdamW", {"amsgrad": True}),
    "Adam with coupled decay": ("Adam", {"weight_decay": 0.1}),
    "Adam, amsgrad and maximize": ("Adam", {"amsgrad": True, "maximize": True, "eps": 1e-4}),
    "SGD with Nesterov's momentum": ("SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True}),
    "SGD with dampening": ("SGD", {"lr": 0.02, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}),
    "SGD that maximizes": ("SGD", {"lr": 0.001, "maximize": True, "weight_decay": 0.1}),
}


def maker(module, name, options):
    return lambda params: getattr(module, name)(params, **options)


OPTIMIZERS |= {
    label: (maker(optim, *arguments), maker(torch.optim, *arguments)) for label, arguments in OPTIONS.items()
}
each_optimizer = pytest.mark.parametrize(("ours", "theirs"), OPTIMIZERS.values(), ids=OPTIMIZERS)
