"""The opponent of TextCNN is the same network."""

import torch

from msbp.bench.plain_textcnn import PlainTextCNN
from msbp.models.textcnn import TextCNN

SIZES = {"vocabulary": 30, "outputs": 2, "vectors": torch.randn(30, 8)}


def built(kind):
    torch.manual_seed(0)
    return kind(**SIZES, hidden=6, windows=(2, 3)).eval()


def test_logits_and_gradients_are_the_same_where_no_window_is_padding_alone():
    words, offsets, labels = torch.randint(30, (20,)), torch.arange(0, 21, 5), torch.tensor([0, 1, 1, 0])
    ours, theirs = built(TextCNN), built(PlainTextCNN)
    torch.testing.assert_close(ours(words, offsets), theirs(words, offsets))
    for model in (ours, theirs):
        model.loss(words, offsets, labels).backward()
    torch.testing.assert_close(ours.embedding.weight.grad, theirs.embedding.weight.grad[:-1])
    for mine, other in zip(ours.convs, theirs.convs, strict=True):
        torch.testing.assert_close(mine.weight.grad[:, 0].transpose(1, 2), other.weight.grad)


def test_sentences_of_any_length_are_taken():
    logits = built(PlainTextCNN)(torch.randint(30, (9,)), torch.tensor([0, 1, 9]))
    assert logits.shape == (2, 2) and torch.isfinite(logits).all()
