"""Comparison rows: the same models, trained without the project's backward pass or around it.

Letters: B batch, n out_features, k kept; of TextCNN N words of a batch laid end to end, B sentences, T the
longest, E width, F channels of a window, o outputs.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, max_pool1d, relu
from torch.nn.utils.rnn import pad_sequence

from ..methods import Method, Ratio
from ..models.mlp import MLP
from ..models.textcnn import TextCNN
from ..sparse import entries_kept
from ..sparse.layers import hidden_groups


@dataclass(frozen=True)
class PlainTorch(Method):
    """The model as it is built: torch.nn layers and autograd."""

    name: str = "torch"

    def install(self, model: nn.Module) -> dict[str, int]:
        return {}


@dataclass(frozen=True)
class MaskedDense(Method):
    """Algorithm 1 in torch's own operations: topk, a mask, and dense products with what is left."""

    r: Ratio
    name: str = "masked_dense"

    def install(self, model: nn.Module) -> dict[str, int]:
        for name in (name for group in hidden_groups(model) or () for name in group):
            layer = model.get_submodule(name)
            k = entries_kept(self.r, layer.out_features)  # type: ignore[arg-type]
            layer.register_forward_hook(partial(masks_gradient, k))
        return {}  # no layer is replaced, so every product stays dense


def masks_gradient(k: int, layer: nn.Module, inputs: tuple[Tensor, ...], h: Tensor) -> None:
    """Forward hook: let ∂ℓ/∂h (B, n) keep the k largest entries of each row."""
    if h.requires_grad:
        h.register_hook(partial(masked, k))


def masked(k: int, grad_h: Tensor) -> Tensor:
    """Return ∂ℓ/∂h (B, n) with zeros for all but the k largest entries of each row."""
    columns = grad_h.abs().topk(k, dim=-1).indices
    return torch.zeros_like(grad_h).scatter_(-1, columns, grad_h.gather(-1, columns))


class TorchLossMLP(MLP):
    """MLP with torch's own cross entropy, whose backward pass goes through the autograd engine.

    This is the ordinary training loop of others' code, where only the layers have been converted.
    """

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean cross-entropy of labels y (B)."""
        return cross_entropy(self(x), y)


class PlainTextCNN(TextCNN):
    """TextCNN as one writes it in torch: padded sentences, nn.Conv1d and max_pool1d, equal first weights.

    As usual, windows of padding alone are not masked; in a shorter sentence they may exceed its words.
    """

    def __init__(self, *sizes: Any, **settings: Any):
        super().__init__(*sizes, **settings)
        table, trained = self.embedding.weight.detach(), self.embedding.weight.requires_grad
        self.padding = len(table)
        with_padding = torch.cat([table, table.new_zeros(1, table.shape[1])])
        self.embedding = nn.Embedding.from_pretrained(with_padding, not trained, self.padding)
        self.convs = nn.ModuleList(map(conv1d, self.convs))

    def forward(self, words: Tensor, offsets: Tensor) -> Tensor:
        """Return logits (B, o) of words (N) with the offsets of sentences in them (B + 1)."""
        ids = pad_sequence(words.split(offsets.diff().tolist()), True, self.padding)
        x = self.embedding(ids).transpose(1, 2)  # (B, E, T)
        channels = [relu(conv(x)) for conv in self.convs]
        pooled = torch.cat([max_pool1d(z, z.shape[2]).squeeze(2) for z in channels], 1)
        return self.output(self.dropout(pooled))


def conv1d(conv: nn.Module) -> nn.Conv1d:
    """Return nn.Conv1d with the weights of a convolution over words (F, 1, w, E)."""
    assert isinstance(conv, nn.Conv2d)
    window, width = conv.kernel_size
    layer = nn.utils.skip_init(nn.Conv1d, width, conv.out_channels, window, padding=window - 1)
    with torch.no_grad():
        layer.weight.copy_(conv.weight[:, 0].transpose(1, 2))
        layer.bias.copy_(conv.bias)
    return layer
