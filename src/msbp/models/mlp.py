"""The paper's MLP for MNIST: 784-500-500-10, "three layers" counting the output layer.

Letters: B batch, i inputs, o outputs.
"""

from torch import Tensor, nn

from ..limits import check_counts, check_shares
from ..sparse import cross_entropy


class MLP(nn.Module):
    """Hidden layers of linear, ReLU and dropout, then a linear output layer.

    Weights and biases keep torch's default, uniform within ±1/sqrt(i): the paper names no initialisation.
    """

    def __init__(self, inputs: int, outputs: int, hidden: int = 500, layers: int = 2, dropout: float = 0.1,
                 name: str = "mlp"):  # fmt: skip
        super().__init__()
        check_counts("model", hidden=hidden, layers=layers)
        check_shares("model", dropout=dropout)
        widths = [inputs] + [hidden] * layers
        parts: list[nn.Module] = []
        for i in range(layers):
            parts += [nn.Linear(widths[i], widths[i + 1]), nn.ReLU()]
            parts += [nn.Dropout(dropout)] if dropout else []
        self.name = name
        self.net = nn.Sequential(*parts, nn.Linear(hidden, outputs))
        linear = [f"net.{i}" for i, part in enumerate(self.net) if isinstance(part, nn.Linear)]
        self.hidden_layers = [linear[:-1]]

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, o) of pixels (B, i)."""
        return self.net(x)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Mean cross-entropy of labels y (B)."""
        return cross_entropy(self(x), y)
