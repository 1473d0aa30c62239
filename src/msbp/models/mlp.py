"""The paper's MLP for MNIST: 784-500-500-10, "three layers" counting the output layer.

Letters: B batch, i inputs, o outputs.
"""

from torch import Tensor, nn

from ..sparse import cross_entropy
from .layers import Count, Share, checked


class MLP(nn.Module):
    """Hidden layers of linear, ReLU and dropout, then a linear output layer.

    Weights and biases keep torch's default, uniform within ±1/sqrt(i): the paper names no initialisation.
    """

    @checked
    def __init__(self, inputs: Count, outputs: Count, hidden: Count = 500, layers: Count = 2,
                 dropout: Share = 0.1, name: str = "mlp"):  # fmt: skip
        super().__init__()
        self.name = name
        self.net, self.msbp_hidden_layers = hidden_stack(inputs, hidden, layers, outputs, dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (B, o) of pixels (B, i)."""
        return self.net(x)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean cross-entropy of labels y (B)."""
        return cross_entropy(self(x), y)


def hidden_stack(
    inputs: int, hidden: int, layers: int, outputs: int, dropout: float, activation: type[nn.Module] = nn.ReLU
) -> tuple[nn.Sequential, list[list[str]]]:
    """Return hidden layers of linear, activation and dropout, then a linear output layer.

    Also the names of the hidden ones in a model whose attribute `net` is all of it.
    """
    parts: list[nn.Module] = []
    for width in [inputs] + [hidden] * (layers - 1):
        parts += [nn.Linear(width, hidden), activation()]
        parts += [nn.Dropout(dropout)] if dropout else []
    names = [f"net.{i}" for i, part in enumerate(parts) if isinstance(part, nn.Linear)]
    return nn.Sequential(*parts, nn.Linear(hidden, outputs)), [names]
