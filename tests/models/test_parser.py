"""The parser network: sizes, hidden layers, and a loss over the legal transitions alone."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from msbp.models.parser import Parser

SIZES = {"words": 20, "tags": 7, "labels": 3}


def batch(model: Parser, size: int = 5):
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(model.embedding.num_embeddings, (size, 48), generator=generator, dtype=torch.int32)
    legal = torch.rand(size, 7, generator=generator) < 0.6
    legal[:, 2] = True
    return tokens, legal, torch.full((size,), 2)


@pytest.mark.parametrize("layers", [1, 2])
def test_one_output_a_transition_and_the_output_layer_is_not_hidden(layers):
    model = Parser(**SIZES, embedding=4, hidden=8, layers=layers)
    assert model(batch(model)[0]).shape == (5, 7)
    (hidden,) = model.msbp_hidden_layers
    modules = dict(model.named_modules())
    assert [modules[name].out_features for name in hidden] == [8] * layers
    assert modules[hidden[0]].in_features == 48 * 4 and model.embedding.num_embeddings == 20 + 7 + 4


@pytest.mark.parametrize(("activation", "function"), [("relu", torch.relu), ("cube", lambda x: x**3)])
def test_the_network_is_an_embedding_a_hidden_layer_and_an_output_layer(activation, function):
    model = Parser(**SIZES, embedding=4, hidden=8, activation=activation).eval()
    tokens = batch(model)[0]
    first, last = (part for part in model.net if isinstance(part, nn.Linear))
    by_hand = last(
        function(first(torch.cat([model.embedding.weight[tokens[:, i].long()] for i in range(48)], 1)))
    )
    assert torch.allclose(model(tokens), by_hand, atol=1e-6)


def test_illegal_transitions_take_no_part_in_the_loss():
    model = Parser(**SIZES, embedding=4, hidden=8).eval()
    tokens, legal, target = batch(model)
    logits = model(tokens)
    by_hand = [
        cross_entropy(row[mask][None], mask[:2].sum()[None]) for row, mask in zip(logits, legal, strict=True)
    ]
    assert model.loss(tokens, legal, target).item() == pytest.approx(
        torch.stack(by_hand).mean().item(), rel=1e-5
    )
    only = torch.zeros_like(legal)
    only[:, 2] = True
    model.loss(tokens, only, target).backward()
    assert all(not p.grad.any() for p in model.parameters())
