"""The paper's MLP: its layers, first weights and loss."""

import math

import torch
from torch import nn

from msbp.models.mlp import MLP


def test_the_papers_network_is_784_500_500_10_with_relu_and_dropout():
    model = MLP(784, 10)
    kinds = [nn.Linear, nn.ReLU, nn.Dropout, nn.Linear, nn.ReLU, nn.Dropout, nn.Linear]
    assert [type(part) for part in model.net] == kinds
    assert [tuple(p.shape) for p in model.parameters()][::2] == [(500, 784), (500, 500), (10, 500)]
    assert model.msbp_hidden_layers == [["net.0", "net.3"]]


def test_weights_and_biases_start_within_one_over_root_of_the_inputs():
    for layer in MLP(784, 10).net:
        if isinstance(layer, nn.Linear):
            bound = 1 / math.sqrt(layer.in_features)
            for p in layer.parameters():
                assert p.abs().max() <= bound
            assert layer.weight.abs().max() > 0.99 * bound


def test_the_loss_is_the_mean_cross_entropy():
    model = MLP(6, 3, hidden=4).eval()
    x, y = torch.randn(5, 6), torch.tensor([0, 1, 2, 0, 1])
    expected = -model(x).log_softmax(-1)[range(5), y].mean()
    torch.testing.assert_close(model.loss(x, y), expected)


def test_without_dropout_there_is_no_dropout_layer():
    assert not any(isinstance(part, nn.Dropout) for part in MLP(6, 3, hidden=4, layers=1, dropout=0).net)
