"""Transformer: sentences are independent of one another and of padding; the layers that methods get."""

import pytest
import torch

from msbp.models.transformer import Transformer, sinusoids
from msbp.sparse import convert, fuse, memories

WORDS, OFFSETS, LABELS = (
    torch.tensor([1, 2, 2, 3, 9, 1, 7, 10, 4]),
    torch.tensor([0, 1, 5, 9]),
    torch.tensor([0, 1, 1]),
)


def network(**settings):
    torch.manual_seed(0)
    sizes = {"hidden": 16, "feed_forward": 24, "heads": 2, "embedding": "random", "width": 6}
    return Transformer(11, 2, None, **sizes | settings)


def test_a_sentence_has_the_same_logits_alone_and_among_longer_ones():
    model = network().eval()
    together = model(WORDS, OFFSETS)
    for b, (start, end) in enumerate(zip(OFFSETS[:-1].tolist(), OFFSETS[1:].tolist(), strict=True)):
        alone = model(WORDS[start:end], torch.tensor([0, end - start]))
        torch.testing.assert_close(alone[0], together[b])


def test_the_order_of_words_matters():
    model = network().eval()
    two = torch.tensor([0, 2])
    assert not torch.allclose(model(torch.tensor([1, 2]), two), model(torch.tensor([2, 1]), two))
    codes = sinusoids(torch.arange(50), 16)
    assert codes.shape == (50, 16) and len(codes.unique(dim=0)) == 50


@pytest.mark.parametrize(("sparse", "count"), [("feed_forward", 2), ("all", 4)])
def test_methods_get_the_feed_forward_layers_or_those_of_attention_too(sparse, count):
    model = network(sparse=sparse)
    kept = convert(model, 0.25, 0.8)
    assert list(kept) == [name for group in model.msbp_hidden_layers for name in group]
    assert len(kept) == 2 * count and kept["blocks.1.feed_forward.0"] == 6
    model.loss(WORDS, OFFSETS, LABELS).backward()
    assert memories(model).keys() == kept.keys()
    assert all(memory.m.any() for memory in memories(model).values())


def test_the_whole_gradient_is_the_same_for_plain_fused_and_converted_layers():
    gradients = []
    for change in (lambda model: None, fuse, lambda model: convert(model, 1.0, 0.8)):
        model = network(dropout=0.0, sparse="all")
        change(model)
        model.loss(WORDS, OFFSETS, LABELS).backward()
        gradients.append({name: p.grad.to_dense() for name, p in model.named_parameters()})
    for name, plain in gradients[0].items():
        for other in gradients[1:]:
            torch.testing.assert_close(other[name], plain, rtol=1e-4, atol=1e-6)


def test_a_width_that_heads_do_not_divide_is_refused():
    with pytest.raises(ValueError, match=r"model\.hidden=18 must be a multiple of 2 \* model\.heads = 8"):
        network(hidden=18, heads=4)
