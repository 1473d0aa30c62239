"""TextCNN (Kim 2014): convolutions of several windows over word embeddings, each with its maximum over time.

Letters: N words of a batch, concatenated, B sentences, F channels of a window, o outputs.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..limits import check_counts, check_shares
from ..sparse import MaxOverTime, cross_entropy
from .layers import word_embedding


class TextCNN(nn.Module):
    """Embedding, `hidden` channels a window with ReLU and maximum over time, dropout, linear output layer.

    embedding, width, vectors: of the words, as `word_embedding` takes them.
    max_norm: the largest norm of an output's weights (3 in Kim 2014), enforced in training; None: no limit.
    """

    def __init__(
        self, vocabulary: int, outputs: int, vectors: Tensor | None, hidden: int = 100,
        windows: Sequence[int] = (3, 4, 5), embedding: str = "non_static", width: int = 100,
        dropout: float = 0.5, max_norm: float | None = None, name: str = "textcnn",
    ):  # fmt: skip
        super().__init__()
        check(hidden, windows, dropout, max_norm)
        self.name, self.max_norm = name, max_norm
        self.embedding = word_embedding(embedding, vocabulary, width, vectors)
        width = self.embedding.embedding_dim
        self.convs = nn.ModuleList(MaxOverTime(width, hidden, window) for window in windows)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(hidden * len(windows), outputs)
        self.hidden_layers = [[f"convs.{i}" for i in range(len(windows))]]

    def forward(self, words: Tensor, offsets: Tensor) -> Tensor:
        """Logits (B, o) of words (N) with the offsets of sentences in them (B + 1)."""
        if self.max_norm is not None and self.training:
            with torch.no_grad():
                self.output.weight.renorm_(2, 0, self.max_norm)
        distinct, index = words.unique(return_inverse=True)  # a word is looked up and convolved once a batch
        x = self.embedding(distinct)
        features = torch.cat([conv(x, index, offsets) for conv in self.convs], 1)
        return self.output(self.dropout(features))

    def loss(self, words: Tensor, offsets: Tensor, labels: Tensor) -> Tensor:
        """Mean cross entropy of labels (B)."""
        return cross_entropy(self(words, offsets), labels)


def check(hidden: int, windows: Sequence[int], dropout: float, max_norm: float | None) -> None:
    """ValueError unless the settings make a network."""
    check_counts("model", hidden=hidden)
    if not windows or any(type(window) is not int or window < 1 for window in windows):
        raise ValueError(f"model.windows must be whole numbers of at least 1, got {list(windows)}")
    check_shares("model", dropout=dropout)
    if max_norm is not None and not max_norm > 0:  # nor NaN
        raise ValueError(f"model.max_norm must be above 0, got {max_norm}; null sets no bound")
