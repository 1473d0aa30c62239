"""The paper's MLP for MNIST: 784-500-500-10, "three layers" counting the output layer.

Letters: B batch, i inputs, o outputs.
"""

from torch import Tensor, nn

from ..sparse import cross_entropy
from .layers import Count, Share, checked, hidden_stack


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
