"""Attention of a decoder to the words of a source sentence (Luong et al. 2015).

Letters: B sentences, S words of the longest source, T of the longest target, N decoder states, H their width.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

Kind = Literal["general", "dot", "luong_gate"]


class Source(NamedTuple):
    """The source in attention: context, keys (B, S, H), padding (B, S), true after its last word."""

    context: Tensor
    keys: Tensor
    padding: Tensor


class Attention(nn.Module):
    """Global attention.

    general: the score of state h and word c is hᵀWc, the result tanh(W [c; h]), equations 5 and 8 of Luong et
    al. | dot: the score is hᵀc | luong_gate: as general, with two layers of SELU and dropout as the result,
    as in the code of the authors' group.
    """

    def __init__(self, hidden: int, kind: Kind, dropout: float):
        super().__init__()
        self.kind = kind
        if kind != "dot":
            self.score = nn.Linear(hidden, hidden, bias=False)
        self.combine = nn.Linear(2 * hidden, hidden)
        if kind == "luong_gate":
            self.second = nn.Linear(hidden, hidden)
        self.dropout = nn.Dropout(dropout)

    def source(self, context: Tensor, padding: Tensor) -> Source:
        """Keys and padding beside the encoder's outputs (B, S, H)."""
        return Source(context, context if self.kind == "dot" else self.score(context), padding)

    def attend(self, states: Tensor, source: Source) -> Tensor:
        """The means of the context (B, T, H), weighted by the scores of states (B, T, H)."""
        scores = states @ source.keys.transpose(1, 2)
        return scores.masked_fill(source.padding.unsqueeze(1), -torch.inf).softmax(2) @ source.context

    def forward(self, states: Tensor, attended: Tensor) -> Tensor:
        """The attentional states (N, H) of states and their attended means (N, H)."""
        both = self.combine(torch.cat([attended, states], 1))
        if self.kind != "luong_gate":
            return both.tanh()
        return self.dropout(nn.functional.selu(self.second(self.dropout(nn.functional.selu(both)))))
