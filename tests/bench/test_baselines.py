"""Comparison rows give the gradients of the layers that they are compared with."""

import torch

from msbp.bench.baselines import PlainTextCNN, TorchLossMLP, masked
from msbp.bench.case import BenchOptions
from msbp.config import compose
from msbp.models.textcnn import TextCNN
from msbp.sparse import top_k
from msbp.sparse.linear.loss import CROSS_ENTROPY

from .models import model

SIZES = {"vocabulary": 30, "outputs": 2, "vectors": torch.randn(30, 8)}


def test_masked_gradients_are_top_k():
    v = torch.randn(7, 30)
    assert torch.equal(masked(4, v), top_k(v, 4))


def test_the_masked_row_has_the_gradients_of_algorithm_1():
    batch = None
    gradients = []
    for name in ("masked_dense", "sbp"):
        one = model(name, "model.dropout=0.0", "paper.r=0.2")
        batch = next(one.run.batches()) if batch is None else batch
        one.run.task.loss(one.run.model, batch).backward()
        gradients.append([parameter.grad.clone() for parameter in one.run.model.parameters()])
    for theirs, ours in list(zip(*gradients, strict=True))[::2]:  # they differ in the bias: all or selected
        torch.testing.assert_close(theirs, ours)


def test_an_ordinary_loop_learns_what_the_trainer_does_and_goes_through_autograd():
    options = BenchOptions.of(compose(["case=example"], config="bench"))
    direct, ordinary = (model(name, "task.batch_size=32", options=options) for name in ("msbp", "torch_loop"))
    nodes = []
    for one in (direct, ordinary):
        nodes.append(type(one.run.task.loss(one.run.model, next(one.run.batches())).grad_fn))
        one.steps(3)
    for mine, theirs in zip(direct.run.model.parameters(), ordinary.run.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert type(ordinary.run.model) is TorchLossMLP and ordinary.k_per_layer == {"net.0": 10, "net.2": 10}
    assert nodes[0] is CROSS_ENTROPY and nodes[1] is not CROSS_ENTROPY  # which the direct pass starts from


def built(kind):
    torch.manual_seed(0)
    return kind(**SIZES, hidden=6, windows=(2, 3)).eval()


def test_the_plain_textcnn_is_the_same_network_where_no_window_is_padding_alone():
    words, offsets, labels = torch.randint(30, (20,)), torch.arange(0, 21, 5), torch.tensor([0, 1, 1, 0])
    ours, theirs = built(TextCNN), built(PlainTextCNN)
    torch.testing.assert_close(ours(words, offsets), theirs(words, offsets))
    for each in (ours, theirs):
        each.loss(words, offsets, labels).backward()
    torch.testing.assert_close(ours.embedding.weight.grad, theirs.embedding.weight.grad[:-1])
    for mine, other in zip(ours.convs, theirs.convs, strict=True):
        torch.testing.assert_close(mine.weight.grad[:, 0].transpose(1, 2), other.weight.grad)


def test_the_plain_textcnn_takes_sentences_of_any_length():
    logits = built(PlainTextCNN)(torch.randint(30, (9,)), torch.tensor([0, 1, 9]))
    assert logits.shape == (2, 2) and torch.isfinite(logits).all()
