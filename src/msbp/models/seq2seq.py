"""An LSTM encoder and decoder with Luong et al.'s (2015) attention (Section 6 of the paper).

Letters: B sentences, S words of the longest source, T of the longest target, N target words of a batch
(in attention, decoder states), A active rows of decoding, V target vocabulary, H hidden, L layers.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ..sparse import cross_entropy
from .layers import Count, Scale, Share, checked

PADDING = 0
Kind = Literal["general", "dot", "luong_gate"]
DIRECTIONS = {"sum": 1, "concatenate": 2}  # directions that share H


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
        """Return keys and padding beside the encoder's outputs (B, S, H)."""
        return Source(context, context if self.kind == "dot" else self.score(context), padding)

    def attend(self, states: Tensor, source: Source) -> Tensor:
        """Return the means of the context (B, T, H), weighted by the scores of states (B, T, H)."""
        scores = states @ source.keys.transpose(1, 2)
        return scores.masked_fill(source.padding.unsqueeze(1), -torch.inf).softmax(2) @ source.context

    def forward(self, states: Tensor, attended: Tensor) -> Tensor:
        """Return the attentional states (N, H) of states and their attended means (N, H)."""
        both = self.combine(torch.cat([attended, states], 1))
        if self.kind != "luong_gate":
            return both.tanh()
        return self.dropout(nn.functional.selu(self.second(self.dropout(nn.functional.selu(both)))))


@dataclass(frozen=True)
class State:
    """The state of decoding: of the LSTM (L, A, H), the source of each row, and its sentence (A)."""

    h: Tensor
    c: Tensor
    source: Source
    sentence: Tensor

    def select(self, index: Tensor) -> "State":
        """Return the rows of index, in its order; a row may be repeated or left out."""
        sentence, source = self.sentence[index], self.source
        if not torch.equal(sentence, self.sentence):  # a beam mostly reorders rows of one sentence
            source = Source(*(part[index] for part in source))
        return State(self.h[:, index], self.c[:, index], source, sentence)


class Seq2Seq(nn.Module):
    """Bidirectional LSTM encoder, LSTM decoder without input feeding, Luong's attention, output layer.

    directions: sum (each has H units, their outputs are added and the decoder starts from the states of the
    forward one) | concatenate (each has H / 2). dropout: between the LSTMs' layers and before the output
    layer; embedding_dropout: on the embeddings. tied: the output layer has the weights of the target's
    embeddings. Embeddings begin uniform within ±init.
    """

    @checked
    def __init__(
        self, source_words: Count, target_words: Count, embedding: Count = 512, hidden: Count = 512,
        layers: Count = 3, directions: Literal["sum", "concatenate"] = "sum", attention: Kind = "general",
        dropout: Share = 0.4, embedding_dropout: Share = 0.0, label_smoothing: Share = 0.0,
        tied: bool = False, init: Scale = 0.1, name: str = "seq2seq",
    ):  # fmt: skip
        super().__init__()
        if hidden % DIRECTIONS[directions]:
            raise ValueError(f"model.hidden counts both directions, so it must be even, got {hidden}")
        if tied and embedding != hidden:
            raise ValueError(
                f"model.tied shares weights of width embedding={embedding} with an output layer of "
                f"hidden={hidden}: make them equal, or leave it out"
            )
        self.name, self.directions, self.label_smoothing = name, directions, label_smoothing
        self.source_embedding = nn.Embedding(source_words, embedding, padding_idx=PADDING)
        self.target_embedding = nn.Embedding(target_words, embedding, padding_idx=PADDING)
        between = dropout if layers > 1 else 0.0  # torch warns of dropout in a single layer
        each = hidden // DIRECTIONS[directions]
        self.encoder = nn.LSTM(embedding, each, layers, dropout=between, bidirectional=True)
        self.decoder = nn.LSTM(embedding, hidden, layers, dropout=between)
        self.attention = Attention(hidden, attention, dropout)
        self.output = nn.Linear(hidden, target_words)
        for table in (self.source_embedding, self.target_embedding):
            nn.init.uniform_(table.weight, -init, init)
        if tied:
            self.output.weight = self.target_embedding.weight
        self.dropout, self.embedding_dropout = nn.Dropout(dropout), nn.Dropout(embedding_dropout)
        self.msbp_hidden_layers = [["encoder"], ["decoder"]]

    def forward(self, source: Tensor, lengths: Tensor, inputs: Tensor, sizes: Tensor) -> Tensor:
        """Return logits (N, V) of the word after each of the input words (B, T), in the order of `packed`.

        sizes (B): the number of input words of each sentence.
        """
        state = self.encode(source, lengths)
        words = self._embedded(self.target_embedding, packed(inputs, sizes))
        rows, _ = self.decoder(words, (state.h, state.c))
        states, _ = pad_packed_sequence(rows, batch_first=True)
        attended = packed(self.attention.attend(states, state.source), sizes).data
        return self._logits(rows.data, attended)

    def loss(self, source: Tensor, lengths: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy of the labels (B, T), which follow the input words (B, T).

        source (B, S), lengths (B); all are padded with 0.
        """
        sizes = (labels != PADDING).sum(1).cpu()
        logits, target = self(source, lengths, inputs, sizes), packed(labels, sizes).data
        if self.label_smoothing and self.training:
            return nn.functional.cross_entropy(logits, target, label_smoothing=self.label_smoothing)
        return cross_entropy(logits, target)

    def encode(self, source: Tensor, lengths: Tensor) -> State:
        """Return the state before the first word; source (B, S), lengths (B)."""
        words = self._embedded(self.source_embedding, packed(source, lengths))
        rows, (h, c) = self.encoder(words)
        context, _ = pad_packed_sequence(rows, batch_first=True, total_length=source.shape[1])
        if self.directions == "sum":
            context = context.unflatten(2, (2, -1)).sum(2)
        padding = torch.arange(source.shape[1], device=source.device) >= lengths.to(source.device)[:, None]
        sentence = torch.arange(len(source), device=source.device)
        return State(self._first(h), self._first(c), self.attention.source(context, padding), sentence)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Return log-probabilities (A, V) of the words after tokens (A), and the next state."""
        x = self.embedding_dropout(self.target_embedding(tokens)).unsqueeze(0)
        rows, (h, c) = self.decoder(x, (state.h, state.c))
        attended = self.attention.attend(rows.transpose(0, 1), state.source).squeeze(1)
        logits = self._logits(rows.squeeze(0), attended)
        return logits.log_softmax(1), State(h, c, state.source, state.sentence)

    def _embedded(self, table: nn.Embedding, ids: PackedSequence) -> PackedSequence:
        return PackedSequence(self.embedding_dropout(table(ids.data)), *ids[1:])

    def _logits(self, states: Tensor, attended: Tensor) -> Tensor:
        return self.output(self.dropout(self.attention(states, attended)))

    def _first(self, last: Tensor) -> Tensor:
        """Return the decoder's first states (L, B, H) from the encoder's last ones (2 L, B, ·)."""
        forward, backward = last[::2], last[1::2]
        return forward.contiguous() if self.directions == "sum" else torch.cat([forward, backward], 2)


def packed(padded: Tensor, lengths: Tensor) -> PackedSequence:
    """Return rows of the sequences (B, T, ...), time step after time step, the longest sequence first."""
    return pack_padded_sequence(padded, lengths.cpu(), batch_first=True, enforce_sorted=False)
