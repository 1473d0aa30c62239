"""A bidirectional LSTM tagger (Wang et al. 2015), of two layers in the paper.

Letters: N words of a batch, time step after time step; T time steps, F features of a word besides itself, C
tags.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..limits import check_choice, check_counts, check_shares
from ..sparse import cross_entropy
from .layers import word_embedding

HIDDEN_IS = {"per_direction": 1, "total": 2}


class BiLSTM(nn.Module):
    """Embeddings of words and their features, LSTM layers in both directions, a linear output layer.

    features: the number of values of each feature, by name; widths: the width of the embedding of each.
    hidden_is: whether `hidden` counts the units of each direction (per_direction) or of both (total).
    embedding, width, vectors: of the words, as `word_embedding` takes them.
    dropout: between the LSTM's layers and on its outputs.
    """

    def __init__(
        self, vocabulary: int, features: Mapping[str, int], outputs: int, vectors: Tensor | None,
        hidden: int = 500, hidden_is: str = "per_direction", layers: int = 2,
        embedding: str = "non_static", width: int = 100, widths: Mapping[str, int] | None = None,
        dropout: float = 0.5, name: str = "bilstm",
    ):  # fmt: skip
        super().__init__()
        check(hidden, hidden_is, layers, dropout)
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
        self.hidden_layers = [["lstm"]]

    def forward(self, words: Tensor, features: Tensor, sizes: Tensor) -> Tensor:
        """Logits (N, C) of words (N) and their features (N, F); sizes (T): of time steps, in words."""
        columns = zip(self.features.values(), features.unbind(1), strict=True)
        x = torch.cat([self.words(words), *(table(column) for table, column in columns)], 1)
        rows, _ = self.lstm(PackedSequence(x, sizes.cpu()))
        return self.output(self.dropout(rows.data))

    def loss(self, words: Tensor, features: Tensor, sizes: Tensor, tags: Tensor) -> Tensor:
        """Mean cross-entropy of tags (N)."""
        return cross_entropy(self(words, features, sizes), tags)


def width_of(feature: str, widths: Mapping[str, int]) -> int:
    """The width of a feature's embedding. ValueError if none is given."""
    if feature not in widths:
        raise ValueError(
            f"model.widths has no {feature}: give the width of its embedding, or leave the feature out"
        )
    if type(widths[feature]) is not int or widths[feature] < 1:
        raise ValueError(
            f"model.widths.{feature} must be a whole number of at least 1, got {widths[feature]!r}"
        )
    return widths[feature]


def check(hidden: int, hidden_is: str, layers: int, dropout: float) -> None:
    """ValueError unless the settings make a network."""
    check_counts("model", hidden=hidden, layers=layers)
    check_choice("model.hidden_is", hidden_is, HIDDEN_IS)
    if hidden % HIDDEN_IS[hidden_is]:
        raise ValueError(f"model.hidden counts both directions, so it must be even, got {hidden}")
    check_shares("model", dropout=dropout)
