"""An embedding in front of a chain, as part of the chain's node: the numbers of the plain modules.

Letters: B batch, F tokens an example, V rows of the table, E their width, c classes.
"""

import copy

import pytest
import torch
from torch import nn

from msbp.sparse import Cube, convert, cross_entropy, fuse, look_up
from msbp.sparse.buffers import plain_torch

from ..problems import assert_close, gradients

B, F, V, E, c = 64, 6, 60, 5, 4


class Network(nn.Module):
    def __init__(self, activation=nn.ReLU, padding=None):
        super().__init__()
        self.embedding = nn.Embedding(V, E, padding_idx=padding)
        layers = nn.Linear(F * E, 40), activation(), nn.Dropout(0.2), nn.Linear(40, c)
        self.net = nn.Sequential(*layers)
        self.msbp_hidden_layers = [["net.0"]]

    def forward(self, tokens):
        return look_up(self.embedding, self.net, tokens)


def batch(rows=B):
    """Tokens, two positions with few distinct ones among others; classes, and which of them are allowed."""
    many, few = torch.randint(V, (rows, F - 2)), torch.randint(3, (rows, 2))
    tokens, classes = torch.cat([many[:, :2], few, many[:, 2:]], 1), torch.randint(c, (rows,))
    allowed = torch.rand(rows, c) < 0.7
    allowed[torch.arange(rows), classes] = True
    return tokens, classes, allowed


INSTALL = {
    "baseline": fuse,
    "sbp": lambda model: convert(model, r=0.1, gamma=0.0),
    "msbp": lambda model: convert(model, r=0.1, gamma=0.8),
    "slots": lambda model: convert(model, r=0.1, gamma=0.8, memory="per_slot"),
}


@pytest.mark.parametrize("install", INSTALL.values(), ids=INSTALL)
@pytest.mark.parametrize("network", [Network, lambda: Network(Cube), lambda: Network(padding=2)])
def test_gradients_are_those_of_the_plain_modules(network, install):
    model = network()
    twin = copy.deepcopy(model)
    for each in (model, twin):
        install(each)
    for step, rows in enumerate((B, B - 9, B)):
        tokens, classes, allowed = batch(rows)
        for each in (model, twin):
            each.zero_grad()
        torch.manual_seed(step)
        cross_entropy(model(tokens.int() if step else tokens), classes, allowed).backward()
        torch.manual_seed(step)
        with plain_torch():
            logits = twin(tokens).masked_fill(~allowed, -torch.inf)
            nn.functional.cross_entropy(logits, classes).backward()
        assert_close(gradients(model), gradients(twin))


def test_hooks_and_a_forward_method_of_the_net_itself_are_called():
    results = []
    for install in (lambda model: convert(model, r=1.0), lambda model: None):
        torch.manual_seed(0)
        model = Network()
        install(model)
        calls: list = []
        model.net.register_forward_hook(lambda module, args, out, calls=calls: calls.append("hook"))
        forward = model.net.forward
        model.net.forward = lambda x, forward=forward: 2 * forward(x)
        results.append(model.eval()(batch()[0]).detach())
        assert calls == ["hook"]
    torch.testing.assert_close(*results)


def test_a_token_beyond_the_table_is_named():
    model = Network()
    convert(model)
    with pytest.raises(IndexError, match=f"token {V} is not in the embedding"):
        model(torch.full((3, F), V))


def test_state_dict_keys_and_weights_are_those_of_the_parts():
    model = Network()
    keys = list(model.state_dict())
    convert(model)
    cross_entropy(model(batch()[0]), batch()[1]).backward()
    assert list(model.state_dict()) == keys
    assert copy.deepcopy(model).embedding.weight.equal(model.embedding.weight)


def test_a_table_that_is_a_view_with_the_other_sign_is_read_as_by_torch():
    model, (tokens, *_) = Network().eval(), batch()
    table = model.embedding.weight.detach()
    expected = model(tokens)
    fuse(model)
    model.embedding.weight = nn.Parameter(torch._neg_view(-table))
    assert model.embedding.weight.is_neg()
    torch.testing.assert_close(model(tokens), expected)
