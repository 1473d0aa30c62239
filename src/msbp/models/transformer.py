"""A Transformer encoder that classifies sentences (Vaswani et al. 2017), of pre-norm blocks.

Letters: N words of a batch, concatenated, B sentences, T words of the longest, H width, A heads, o outputs.
Linear layers see the N words alone; only attention is padded.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from ..sparse import cross_entropy
from .layers import WIDTH, Count, Embedding, Share, checked, word_embedding

SPARSE = {  # hidden layers of a block
    "feed_forward": ("feed_forward.0", "feed_forward.3"),
    "all": ("attention.projections", "attention.out", "feed_forward.0", "feed_forward.3"),
}


class Attention(nn.Module):
    """Self-attention of several heads within each sentence."""

    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.projections = nn.Linear(hidden, 3 * hidden)  # queries, keys and values
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor, sentence: Tensor, position: Tensor, mask: Tensor) -> Tensor:
        """Return the attended words (N, H) of words x; mask (B, T) is true for words, false for padding."""
        B, T = mask.shape
        padded = x.new_zeros(B, T, 3 * x.shape[1]).index_put((sentence, position), self.projections(x))
        queries, keys, values = padded.view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(queries, keys, values, attn_mask=mask[:, None, None])
        return self.out(attended.transpose(1, 2).flatten(2)[sentence, position])


class Block(nn.Module):
    """Attention and a feed-forward network of one hidden layer, each added to its normalized input."""

    def __init__(self, hidden: int, feed_forward: int, heads: int, dropout: float):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))
        self.attention, self.dropout = Attention(hidden, heads), nn.Dropout(dropout)
        self.feed_forward = nn.Sequential(
            nn.Linear(hidden, feed_forward), nn.ReLU(), nn.Dropout(dropout), nn.Linear(feed_forward, hidden)
        )

    def forward(self, x: Tensor, sentence: Tensor, position: Tensor, mask: Tensor) -> Tensor:
        """Return the words x (N, H) after the block."""
        x = x + self.dropout(self.attention(self.norms[0](x), sentence, position, mask))
        return x + self.dropout(self.feed_forward(self.norms[1](x)))


class Transformer(nn.Module):
    """Embedding, projection to `hidden`, sinusoidal positions, blocks, mean over the words, output layer.

    embedding, width, vectors: of the words, as `word_embedding` takes them.
    sparse: which layers are hidden ones for a method: those of feed-forward networks, or attention's, too.
    """

    @checked
    def __init__(
        self, vocabulary: Count, outputs: Count, vectors: Tensor | None, hidden: Count = 256,
        feed_forward: Count = 1024, layers: Count = 2, heads: Count = 4,
        sparse: Literal["feed_forward", "all"] = "feed_forward", embedding: Embedding = "non_static",
        width: Count = WIDTH, dropout: Share = 0.1, name: str = "transformer",
    ):  # fmt: skip
        super().__init__()
        if hidden % (2 * heads):
            raise ValueError(
                f"model.hidden={hidden} must be a multiple of 2 * model.heads = {2 * heads}: change either"
            )
        self.name = name
        self.embedding = word_embedding(embedding, vocabulary, width, vectors)
        self.project, self.dropout = nn.Linear(self.embedding.embedding_dim, hidden), nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(hidden, feed_forward, heads, dropout) for _ in range(layers))
        self.norm, self.output = nn.LayerNorm(hidden), nn.Linear(hidden, outputs)
        self.msbp_hidden_layers = [[f"blocks.{i}.{name}" for name in SPARSE[sparse]] for i in range(layers)]

    def forward(self, words: Tensor, offsets: Tensor) -> Tensor:
        """Return logits (B, o) of words (N) with the offsets of sentences in them (B + 1)."""
        lengths = offsets.diff()
        sentence = torch.repeat_interleave(lengths)
        position = torch.arange(len(words), device=words.device) - offsets[sentence]
        mask = torch.arange(int(lengths.max()), device=words.device) < lengths[:, None]
        x = self.project(self.embedding(words))
        x = self.dropout(x + sinusoids(position, x.shape[1]).to(x))
        for block in self.blocks:
            x = block(x, sentence, position, mask)
        sums = x.new_zeros(len(lengths), x.shape[1]).index_add(0, sentence, self.norm(x))
        return self.output(sums / lengths[:, None])

    def loss(self, words: Tensor, offsets: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross entropy of labels (B)."""
        return cross_entropy(self(words, offsets), labels)


def sinusoids(position: Tensor, width: int) -> Tensor:
    """Return the encodings (N, width) of positions: sines, then cosines, of falling frequencies."""
    rates = 10000.0 ** (-torch.arange(0, width, 2, device=position.device) / width)
    angles = position[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], 1)
