"""TextCNN as one would write it in torch, the opponent of the layers that the project has for it.

Letters: N words of a batch laid end to end, B sentences, T the longest, E width,
F maps of a window, o outputs.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool1d, relu
from torch.nn.utils.rnn import pad_sequence

from ..models.textcnn import TextCNN


class PlainTextCNN(TextCNN):
    """The same network and first weights with padded sentences, nn.Conv1d and max_pool1d.

    As usual, windows of padding alone are not masked; in a shorter sentence they may win over its words.
    """

    def __init__(self, *sizes: Any, **settings: Any):
        super().__init__(*sizes, **settings)
        table, trained = self.embedding.weight.detach(), self.embedding.weight.requires_grad
        self.padding = len(table)
        with_padding = torch.cat([table, table.new_zeros(1, table.shape[1])])
        self.embedding = nn.Embedding.from_pretrained(with_padding, not trained, self.padding)
        self.convs = nn.ModuleList(map(plain, self.convs))

    def forward(self, words: Tensor, offsets: Tensor) -> Tensor:
        """Logits (B, o) of words (N) and offsets (B + 1) where sentences begin."""
        ids = pad_sequence(words.split(offsets.diff().tolist()), True, self.padding)
        x = self.embedding(ids).transpose(1, 2)  # (B, E, T)
        maps = [relu(conv(x)) for conv in self.convs]
        pooled = torch.cat([max_pool1d(z, z.shape[2]).squeeze(2) for z in maps], 1)
        return self.output(self.dropout(pooled))


def plain(conv: nn.Module) -> nn.Conv1d:
    """nn.Conv1d with the weights of a convolution over words (F, 1, w, E)."""
    assert isinstance(conv, nn.Conv2d)
    window, width = conv.kernel_size
    layer = nn.utils.skip_init(nn.Conv1d, width, conv.out_channels, window, padding=window - 1)
    with torch.no_grad():
        layer.weight.copy_(conv.weight[:, 0].transpose(1, 2))
        layer.bias.copy_(conv.bias)
    return layer
