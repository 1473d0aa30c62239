"""The parser of Chen and Manning (2014): one embedding table, hidden layers, a unit for each transition.

Letters: B batch, C transitions.
"""

from typing import Literal

from torch import Tensor, nn

from ..sparse import Cube, cross_entropy, look_up
from .layers import Count, Scale, Share, checked
from .mlp import hidden_stack

ACTIVATIONS = {"relu": nn.ReLU, "cube": Cube}
FEATURES = 48  # 18 words, 18 tags, 12 labels


class Parser(nn.Module):
    """Scores transitions of the arc-standard system; `words`, `tags` and `labels` are their numbers.

    Embeddings begin uniform within ±init; other weights keep torch's default, uniform within ±1/sqrt(inputs).
    """

    @checked
    def __init__(self, words: Count, tags: Count, labels: Count, embedding: Count = 50, hidden: Count = 500,
                 layers: Count = 1, activation: Literal["relu", "cube"] = "relu", dropout: Share = 0.2,
                 init: Scale = 0.1, name: str = "parser"):  # fmt: skip
        super().__init__()
        self.name = name
        self.embedding = nn.Embedding(words + tags + labels + 1, embedding)
        nn.init.uniform_(self.embedding.weight, -init, init)
        self.net, self.msbp_hidden_layers = hidden_stack(
            FEATURES * embedding, hidden, layers, 1 + 2 * labels, dropout, ACTIVATIONS[activation]
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (B, C) of the features' tokens (B, 48)."""
        return look_up(self.embedding, self.net, tokens)

    def loss(self, tokens: Tensor, legal: Tensor, transitions: Tensor) -> Tensor:
        """Return the mean cross-entropy of the right transitions (B) among the legal ones (B, C)."""
        return cross_entropy(self(tokens), transitions, allowed=legal)
