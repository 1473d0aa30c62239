"""TextCNN: its embeddings, its bound on weights, its features, and the methods on it."""

import copy

import pytest
import torch

from msbp.models.textcnn import TextCNN
from msbp.sparse import convert, fuse, memories

VECTORS = torch.randn(11, 6, generator=torch.Generator().manual_seed(0))
WORDS, OFFSETS, LABELS = (
    torch.tensor([1, 2, 2, 3, 9, 1, 7, 10, 4]),
    torch.tensor([0, 1, 5, 9]),
    torch.tensor([0, 1, 1]),
)


def network(**settings) -> TextCNN:
    torch.manual_seed(0)
    return TextCNN(11, 2, VECTORS, **{"hidden": 8} | settings)


@pytest.mark.parametrize(
    ("embedding", "trained"), [("random", True), ("static", False), ("non_static", True)]
)
def test_each_kind_of_embedding_is_initialized_and_trained_as_documented(embedding, trained):
    model = network(embedding=embedding)
    weight = model.embedding.weight
    assert torch.equal(weight, VECTORS) == (embedding != "random")
    model.loss(WORDS, OFFSETS, LABELS).backward()
    assert (weight.grad is not None) == trained
    if trained:
        assert set(weight.grad.any(1).nonzero().flatten().tolist()) <= set(WORDS.tolist())


def test_the_given_vectors_are_copied():
    model = network()
    with torch.no_grad():
        model.embedding.weight.zero_()
    assert VECTORS.any()


def test_an_embedding_by_word_vectors_is_refused_without_any():
    with pytest.raises(
        ValueError, match=r"model\.embedding=static needs word vectors: name them in task\.vectors"
    ):
        TextCNN(11, 2, None, embedding="static")
    TextCNN(11, 2, None, embedding="random", width=5)(WORDS, OFFSETS)


def test_features_of_a_sentence_do_not_depend_on_the_rest_of_the_batch():
    model = network().eval()
    together = model(WORDS, OFFSETS)
    for i, (a, b) in enumerate([(0, 1), (1, 5), (5, 9)]):
        torch.testing.assert_close(model(WORDS[a:b], torch.tensor([0, b - a])), together[i : i + 1])


def test_the_output_weights_stay_within_their_norm():
    model = network(max_norm=0.1).train()
    model(WORDS, OFFSETS)
    assert (model.output.weight.norm(dim=1) <= 0.1 + 1e-6).all()


def test_hidden_layers_are_the_convolutions():
    model = network(windows=[2, 4])
    assert model.msbp_hidden_layers == [["convs.0", "convs.1"]]
    assert convert(model, r=0.25, gamma=0.5) == {"convs.0": 2, "convs.1": 2}


@pytest.mark.parametrize("selection", ["per_example", "per_position", "pooled", "unified"])
def test_all_methods_share_one_forward_and_full_ratio_is_the_baseline(selection):
    plain, dense, full = network(), network(), network()
    fuse(dense, dropout=False)
    convert(full, r=1.0, gamma=0.8, selection=selection, dropout=False)
    losses, gradients = [], []
    for model in (plain, dense, full):
        torch.manual_seed(3)
        loss = model.loss(WORDS, OFFSETS, LABELS)
        loss.backward()
        losses.append(loss.item())
        gradients.append([p.grad for p in model.parameters()])
    assert losses[1] == losses[2] and losses[0] == pytest.approx(losses[1], rel=1e-5)
    for a, b, c in zip(*gradients, strict=True):
        torch.testing.assert_close(b, c, rtol=1e-6, atol=1e-8)  # selections differ in the order of sums
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_weights_load_between_plain_and_converted_models():
    plain, sparse = network(), network()
    convert(sparse, r=0.25, gamma=0.5, selection="pooled")
    sparse.loss(WORDS, OFFSETS, LABELS).backward()
    assert set(memories(sparse)) == {"convs.0", "convs.1", "convs.2"}
    plain.load_state_dict(sparse.state_dict())
    sparse.load_state_dict(copy.deepcopy(plain).state_dict())
    assert "convs.0.weight" in plain.state_dict() and plain.convs[0].weight.shape == (8, 1, 3, 6)
