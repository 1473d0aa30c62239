"""The parser of Chen and Manning (2014): one embedding table, hidden layers, a unit for each transition.

Letters: B batch, C transitions.
"""

from torch import Tensor, nn

from ..limits import check_choice, check_counts, check_scales, check_shares
from ..sparse import Cube, cross_entropy, look_up

ACTIVATIONS = {"relu": nn.ReLU, "cube": Cube}
FEATURES = 48  # 18 words, 18 tags, 12 labels


class Parser(nn.Module):
    """Scores transitions of the arc-standard system; `words`, `tags` and `labels` are their numbers.

    Embeddings begin uniform within ±init; other weights keep torch's default, uniform within ±1/sqrt(inputs).
    """

    def __init__(self, words: int, tags: int, labels: int, embedding: int = 50, hidden: int = 500,
                 layers: int = 1, activation: str = "relu", dropout: float = 0.2, init: float = 0.1,
                 name: str = "parser"):  # fmt: skip
        super().__init__()
        check_counts("model", embedding=embedding, hidden=hidden, layers=layers)
        check_choice("model.activation", activation, ACTIVATIONS)
        check_shares("model", dropout=dropout)
        check_scales("model", init=init)
        self.name = name
        self.embedding = nn.Embedding(words + tags + labels + 1, embedding)
        nn.init.uniform_(self.embedding.weight, -init, init)
        widths = [FEATURES * embedding] + [hidden] * layers
        parts: list[nn.Module] = []
        for i in range(layers):
            parts += [nn.Linear(widths[i], widths[i + 1]), ACTIVATIONS[activation]()]
            parts += [nn.Dropout(dropout)] if dropout else []
        self.net = nn.Sequential(*parts, nn.Linear(hidden, 1 + 2 * labels))
        linear = [f"net.{i}" for i, part in enumerate(self.net) if isinstance(part, nn.Linear)]
        self.hidden_layers = [linear[:-1]]

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, C) of the features' tokens (B, 48)."""
        return look_up(self.embedding, self.net, tokens)

    def loss(self, tokens: Tensor, legal: Tensor, transitions: Tensor) -> Tensor:
        """Mean cross-entropy of the right transitions (B) among the legal ones (B, C)."""
        return cross_entropy(self(tokens), transitions, allowed=legal)
