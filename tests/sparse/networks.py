"""Networks in common styles: the layers that convert replaces in each, for r = 1/4, and the input width."""

import pytest
import torch
from torch import nn

from .problems import mlp


class Branches(nn.Module):
    """Plain attributes, a Sequential inside another and a ModuleList, with a forward pass of its own."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 20)
        self.middle = nn.Sequential(nn.Sequential(nn.Linear(20, 12), nn.ReLU()), nn.Dropout(0.0))
        self.more = nn.ModuleList([nn.Linear(12, 12, bias=False), nn.Linear(12, 12)])
        self.last = nn.Linear(12, 3)

    def forward(self, x):
        x = self.middle(torch.tanh(self.first(x)))
        for layer in self.more:
            x = x + layer(x).sigmoid()
        return self.last(x)


class Shared(nn.Module):
    """One layer used twice."""

    def __init__(self):
        super().__init__()
        self.step, self.out = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.step(self.step(x).relu()).relu())


class Declared(nn.Module):
    """Two groups of hidden layers, declared; `extra` is not among them though it is not the last."""

    def __init__(self):
        super().__init__()
        self.encoder, self.extra = nn.Linear(6, 10), nn.Linear(10, 10)
        self.decoder, self.out = nn.Linear(10, 30), nn.Linear(30, 3)
        self.msbp_hidden_layers = [["encoder"], ["decoder"]]

    def forward(self, x):
        return self.out(self.decoder(self.extra(self.encoder(x).relu()).relu()).relu())


MODELS = {
    "Sequential": (lambda: mlp(6, 20, 12, 3), {"0": 5, "2": 3}, 6),
    "Sequential with dropout": (lambda: mlp(6, 20, 12, 3, p=0.2), {"0": 5, "3": 3}, 6),
    "nested Sequentials": (
        lambda: nn.Sequential(mlp(6, 20, 8), nn.ReLU(), mlp(8, 12, 3)),
        {"0.0": 5, "0.2": 2, "2.0": 3},
        6,
    ),
    "attributes": (Branches, {"first": 5, "middle.0.0": 3, "more.0": 3, "more.1": 3}, 6),
    "a shared layer": (Shared, {"step": 2}, 8),
    "declared groups": (Declared, {"encoder": 2, "decoder": 8}, 6),
    "no bias": (lambda: mlp(6, 20, 12, 3, bias=False), {"0": 5, "2": 3}, 6),
    "ReLU in place": (
        lambda: nn.Sequential(nn.Linear(6, 20), nn.ReLU(inplace=True), nn.Linear(20, 3)),
        {"0": 5},
        6,
    ),
    "no activation": (lambda: nn.Sequential(nn.Linear(6, 20), nn.Linear(20, 3)), {"0": 5}, 6),
    "other layers between": (
        lambda: nn.Sequential(
            nn.Linear(6, 20),
            nn.LayerNorm(20),
            nn.GELU(),
            nn.Linear(20, 12),
            nn.ReLU(),
            nn.BatchNorm1d(12),
            nn.Linear(12, 3),
        ),
        {"0": 5, "3": 3},
        6,
    ),
    "dropout before ReLU": (
        lambda: nn.Sequential(nn.Linear(6, 20), nn.Dropout(0.0), nn.ReLU(), nn.Linear(20, 3)),
        {"0": 5},
        6,
    ),
    "an activation at the end": (
        lambda: nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 3), nn.Sigmoid()),
        {"0": 5},
        6,
    ),
    "tanh": (
        lambda: nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Dropout(0.0), nn.Linear(20, 3)),
        {"0": 5},
        6,
    ),
}
each_model = pytest.mark.parametrize(("build", "replaced", "width"), MODELS.values(), ids=MODELS)
