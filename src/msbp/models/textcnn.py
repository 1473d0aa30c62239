"""TextCNN (Kim 2014): convolutions of several windows over word embeddings, each with its maximum over time.

Letters: N words of a batch, concatenated, B sentences, F channels of a window, o outputs.
"""

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from ..sparse import MaxOverTime, cross_entropy
from .layers import WIDTH, Count, Embedding, Share, checked, word_embedding

Windows = Annotated[Sequence[Count], Field(min_length=1)]
Norm = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class TextCNN(nn.Module):
    """Embedding, `hidden` channels a window with ReLU and maximum over time, dropout, linear output layer.

    embedding, width, vectors: of the words, as `word_embedding` takes them.
    max_norm: the largest norm of an output's weights (3 in Kim 2014), enforced in training; None: no limit.
    """

    @checked
    def __init__(
        self, vocabulary: Count, outputs: Count, vectors: Tensor | None, hidden: Count = 100,
        windows: Windows = (3, 4, 5), embedding: Embedding = "non_static", width: Count = WIDTH,
        dropout: Share = 0.5, max_norm: Norm | None = None, name: str = "textcnn",
    ):  # fmt: skip
        super().__init__()
        self.name, self.max_norm = name, max_norm
        self.embedding = word_embedding(embedding, vocabulary, width, vectors)
        width = self.embedding.embedding_dim
        self.convs = nn.ModuleList(MaxOverTime(width, hidden, window) for window in windows)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(hidden * len(windows), outputs)
        self.msbp_hidden_layers = [[f"convs.{i}" for i in range(len(windows))]]

    def forward(self, words: Tensor, offsets: Tensor) -> Tensor:
        """Return logits (B, o) of words (N) with the offsets of sentences in them (B + 1)."""
        if self.max_norm is not None and self.training:
            with torch.no_grad():
                self.output.weight.renorm_(2, 0, self.max_norm)
        distinct, index = words.unique(return_inverse=True)  # a word is looked up and convolved once a batch
        x = self.embedding(distinct)
        features = torch.cat([conv(x, index, offsets) for conv in self.convs], 1)
        return self.output(self.dropout(features))

    def loss(self, words: Tensor, offsets: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross entropy of labels (B)."""
        return cross_entropy(self(words, offsets), labels)
