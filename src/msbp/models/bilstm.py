"""A bidirectional LSTM tagger (Wang et al. 2015), of two layers in the paper.

Letters: N words of a batch, time step after time step; T time steps, F features of a word besides itself, C
tags.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..sparse import cross_entropy
from .layers import WIDTH, Count, Embedding, Share, checked, word_embedding

HIDDEN_IS = {"per_direction": 1, "total": 2}


class BiLSTM(nn.Module):
    """Embeddings of words and their features, LSTM layers in both directions, a linear output layer.

    features: the number of values of each feature, by name; widths: the width of the embedding of each.
    hidden_is: whether `hidden` counts the units of each direction (per_direction) or of both (total).
    embedding, width, vectors: of the words, as `word_embedding` takes them.
    dropout: between the LSTM's layers and on its outputs.
    """

    @checked
    def __init__(
        self, vocabulary: Count, features: Mapping[str, Count], outputs: Count, vectors: Tensor | None,
        hidden: Count = 500, hidden_is: Literal["per_direction", "total"] = "per_direction",
        layers: Count = 2, embedding: Embedding = "non_static", width: Count = WIDTH,
        widths: Mapping[str, Count] | None = None, dropout: Share = 0.5, name: str = "bilstm",
    ):  # fmt: skip
        super().__init__()
        if hidden % HIDDEN_IS[hidden_is]:
            raise ValueError(f"model.hidden counts both directions, so it must be even, got {hidden}")
        self.name = name
        self.words = word_embedding(embedding, vocabulary, width, vectors)
        tables = {key: nn.Embedding(count, width_of(key, widths or {})) for key, count in features.items()}
        self.features = nn.ModuleDict(tables)
        inputs = self.words.embedding_dim + sum(table.embedding_dim for table in tables.values())
        each = hidden // HIDDEN_IS[hidden_is]
        self.dropout = nn.Dropout(dropout)
        between = dropout if layers > 1 else 0.0  # torch warns of dropout in a single layer
        self.lstm = nn.LSTM(inputs, each, layers, bidirectional=True, dropout=between)
        self.output = nn.Linear(2 * each, outputs)
        self.msbp_hidden_layers = [["lstm"]]

    def forward(self, words: Tensor, features: Tensor, sizes: Tensor) -> Tensor:
        """Return logits (N, C) of words (N) and their features (N, F); sizes (T): of time steps, in words."""
        columns = zip(self.features.values(), features.unbind(1), strict=True)
        x = torch.cat([self.words(words), *(table(column) for table, column in columns)], 1)
        rows, _ = self.lstm(PackedSequence(x, sizes.cpu()))
        return self.output(self.dropout(rows.data))

    def loss(self, words: Tensor, features: Tensor, sizes: Tensor, tags: Tensor) -> Tensor:
        """Return the mean cross-entropy of tags (N)."""
        return cross_entropy(self(words, features, sizes), tags)


def width_of(feature: str, widths: Mapping[str, int]) -> int:
    """Return the width of a feature's embedding. ValueError if none is given."""
    if feature not in widths:
        raise ValueError(
            f"model.widths has no {feature}: give the width of its embedding, or leave the feature out"
        )
    return widths[feature]
