"""Sparsifying functions S of the paper (Definition 3): which k entries of a gradient are propagated.

Letters: B batch, n width (out_features), k kept. A sparsifier maps v (B, ..., n) to a tensor of that shape.
The paper's is top_k, which alone has CPU kernels (kernels/select.py); the others are here to compare it
with, in torch.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from .buffers import uses_kernel
from .kernels.conv import keep_largest
from .running import Draws, Level

Sparsifier = Callable[[Tensor, int], Tensor]


def entries_kept(r: float, out_features: int) -> int:
    """Return k, the number of entries that a sparse ratio r keeps of a layer's width: at least one."""
    return max(1, round(r * out_features))


def checked_k(k: object, out_features: int, name: str) -> int:
    """Return the number of entries that a layer of this name keeps; ValueError unless it has as many."""
    if isinstance(k, Integral) and not isinstance(k, bool) and 1 <= int(k) <= out_features:
        return int(k)
    raise ValueError(
        f"layer {name} cannot keep k = {k!r} of its {out_features} outputs: give a whole number from 1 to "
        f"{out_features}"
    )


class KeepsEntries(nn.Module):
    """Base of layers that keep k entries of a gradient; a k that they do not have is refused."""

    name: str
    k: int
    enabled: bool

    @property
    def active(self) -> bool:
        """Return True if the backward pass is sparse at present: enabled, and in training mode."""
        return self.enabled and self.training

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "k":
            layer: Any = self
            value = checked_k(value, layer.out_features, self.name or str(self))
        super().__setattr__(name, value)


def largest(magnitude: Tensor, k: int) -> Tensor:
    """Return indices (..., k) of the k largest entries of the last dimension, ties to the lowest index."""
    width = magnitude.shape[-1]
    if not 1 <= k <= width:
        raise ValueError(f"k must lie between 1 and the width {width}, got {k}")
    # torch.topk picks ties differently by build, device and k; a stable sort has one answer.
    return magnitude.sort(dim=-1, descending=True, stable=True).indices[..., :k]


def top_k(v: Tensor, k: int) -> Tensor:
    """Keep the k entries of largest magnitude of each row (the paper's top_k), zeros elsewhere."""
    return kept(v, v.abs(), k)


def largest_of_rows(v: Tensor, k: int) -> Tensor:
    """Return top_k of v (R, n), by kernel where it supports v."""
    if not uses_kernel(v):
        return top_k(v, k)
    out = torch.empty_like(v)
    keep_largest(v.numpy(), k, out.numpy())
    return out


def unified_top_k(v: Tensor, k: int) -> Tensor:
    """Keep the same k columns for the batch, those of largest sums of magnitudes (meProp's unified top-k)."""
    return kept(v, v.abs().sum(dim=0, keepdim=True), k)


def kept(v: Tensor, magnitude: Tensor, k: int) -> Tensor:
    """Return v where magnitude, of as many rows or one for all, is among the k largest of its row; else 0."""
    chosen = torch.zeros_like(magnitude, dtype=torch.bool).scatter_(-1, largest(magnitude, k), True)
    return v.where(chosen, 0)


# A row of a linear layer is an example, a position and a pooled vector at once; convolutions separate these.
SPARSIFIERS: dict[str, Sparsifier] = {
    "per_example": top_k,
    "per_position": top_k,
    "pooled": top_k,
    "unified": unified_top_k,
}


TOP_K = "top_k"


class OtherSparsifier(nn.Module, ABC):
    """A sparsifier that is not top_k: g = v times a weight for each entry, zero for those not kept.

    shared: the batch shares one choice, by the sum of magnitudes over its rows. scaled: kept entries of a
    random choice are divided by their probability, so that the mean of g is v; without it g is a part of v,
    as a memory needs that takes up the rest.
    """

    def __init__(self, name: str = "", *, shared: bool = False, scaled: bool = True):
        super().__init__()
        self.shared, self.scaled = shared, scaled

    def forward(self, v: Tensor, k: int) -> Tensor:
        magnitude = v.abs()
        if self.keeps_all(k, v.shape[-1]) or not torch.isfinite(magnitude).all():
            return v  # which is propagated whole
        if self.shared:
            magnitude = magnitude.sum(dim=0, keepdim=True)
        return v * self.weights(magnitude, k)

    def keeps_all(self, k: int, n: int) -> bool:
        """Return whether all n entries of a row are kept at this k."""
        return k >= n

    @abstractmethod
    def weights(self, magnitude: Tensor, k: int) -> Tensor:
        """Return the weight of each entry, for magnitudes (..., n) of a batch or its sum."""


class RandomK(OtherSparsifier):
    """k entries at random, whatever their size; scaled by n / k the mean of g is v."""

    def __init__(self, name: str = "", **options: bool):
        super().__init__(name, **options)
        self.draws = Draws(f"{name} sparsifier")

    def weights(self, magnitude: Tensor, k: int) -> Tensor:
        keys = torch.rand(magnitude.shape, generator=self.draws()).to(magnitude.device)
        chosen = torch.zeros_like(magnitude).scatter_(-1, keys.topk(k).indices, 1)
        return chosen * (magnitude.shape[-1] / k) if self.scaled else chosen


class ImportanceK(OtherSparsifier):
    """k entries at random with probabilities p by magnitude; scaled by 1 / p the mean of g is v.

    p = min(1, c |v|) with the c for which the sum of p is k: of all unbiased choices of k entries on average
    that one has the least variance. Systematic sampling draws exactly k entries with these probabilities, or
    all that are not zero where these are fewer.
    """

    def __init__(self, name: str = "", **options: bool):
        super().__init__(name, **options)
        self.draws = Draws(f"{name} sparsifier")

    def weights(self, magnitude: Tensor, k: int) -> Tensor:
        p = inclusion(magnitude.double(), k)
        start = torch.rand((*p.shape[:-1], 1), generator=self.draws(), dtype=torch.float64).to(p.device)
        ends = (p.cumsum(-1) - start).floor()  # drawn where the sum of p passes start + 0, 1, 2, ...
        chosen = ends.diff(dim=-1, prepend=torch.full_like(ends[..., :1], -1)) > 0
        return torch.where(chosen, 1 / p if self.scaled else 1.0, 0).to(magnitude.dtype)


def squares_of(magnitude: Tensor) -> Tensor:
    """Return the squares of magnitudes (..., n), in units of a power of two near each row's largest.

    That changes no choice by their ratios, and squares of very large or small gradients neither overflow nor
    vanish.
    """
    magnitude = magnitude.to(torch.promote_types(magnitude.dtype, torch.float32))
    exponent = torch.frexp(magnitude.amax(-1, keepdim=True)).exponent
    return torch.ldexp(magnitude, -exponent.clamp(-126, 126)).square()


def inclusion(magnitude: Tensor, k: int) -> Tensor:
    """Return min(1, c |v|) of magnitudes (..., n), where c makes the sum k; 0 for zeros."""
    falling = magnitude.topk(k).values
    tails = magnitude.sum(-1, keepdim=True) - falling.cumsum(-1) + falling  # sums from an entry on
    left = k - torch.arange(k, dtype=magnitude.dtype, device=magnitude.device)
    # t entries have p = 1, the others share k - t in proportion to |v|: the first t for which that is below 1
    below = left * falling < tails
    first = below.to(torch.int8).argmax(-1, keepdim=True)
    c = (k - first) / tails.gather(-1, first)
    few = ~below.any(-1, keepdim=True)  # no more than k entries that are not zero
    return torch.where(few, 1.0, (c * magnitude).clamp(max=1)) * (magnitude > 0)


class Threshold(OtherSparsifier):
    """All entries above a running threshold, which moves so that a row keeps k on average.

    No entries have to be compared with one another, so that a row with larger gradients keeps more of them.
    The layers of an nn.LSTM share one threshold, and the average is over all of them.
    """

    def __init__(self, name: str = "", **options: bool):
        super().__init__(name, **options)
        self.log_threshold = Level()

    def weights(self, magnitude: Tensor, k: int) -> Tensor:
        level = self.log_threshold
        if not level.begun:
            kth = float(magnitude.topk(k).values[..., -1].mean())
            if not kth:
                return magnitude > 0
            level.begin(math.log(kth))
        chosen = magnitude > math.exp(float(level.state))
        level.move(float(chosen.sum(-1, dtype=torch.float64).mean()), k)
        return chosen


MANY = 4  # times k entries are sorted at first


class Energy(OtherSparsifier):
    """The fewest entries of each row that hold a share of its squared norm: k varies by row.

    share: 0 for a running one, which moves so that a row keeps k on average. least, most: bounds of k.
    """

    def __init__(
        self, name: str = "", *, share: float = 0.0, least: int = 0, most: int | None = None,
        shared: bool = False, scaled: bool = True,
    ):  # fmt: skip
        super().__init__(name, shared=shared, scaled=scaled)
        self.share, self.least, self.most = share, least, most
        self.log_odds = None if share else Level()  # of the share that is not kept

    def keeps_all(self, k: int, n: int) -> bool:
        return not self.share and k >= n

    def weights(self, magnitude: Tensor, k: int) -> Tensor:
        squares = squares_of(magnitude)
        total, level = squares.sum(-1, keepdim=True), self.log_odds
        falling, order = squares.topk(min(self.most or MANY * k, squares.shape[-1]))
        sums = falling.cumsum(-1)
        if level is None:
            share = self.share
        else:
            if not level.begun:
                held = (sums[..., k - 1] / total[..., 0])[total[..., 0] > 0]
                if not len(held):
                    return magnitude > 0
                held = held.mean().clamp(1e-6, 1 - 1e-6)
                level.begin(float(torch.log((1 - held) / held)))
            share = 1 / (1 + math.exp(float(level.state)))
        if self.most is None and (sums[..., -1:] < share * total).any():  # seldom
            falling, order = squares.sort(dim=-1, descending=True, stable=True)
            sums = falling.cumsum(-1)
        rank = torch.arange(falling.shape[-1], device=falling.device)
        chosen = ((sums - falling < share * total) | (rank < self.least)) & (falling > 0)
        if level is not None:
            level.move(float(chosen.sum(-1, dtype=torch.float64).mean()), k)
        return torch.zeros_like(magnitude, dtype=torch.bool).scatter_(-1, order, chosen)


class Block(OtherSparsifier):
    """The blocks of consecutive columns with the largest norms, as vector hardware has it: k / size of them.

    k / size is rounded, to at least one block, so that a row keeps more or fewer than k entries: for k = 20
    one block of 16 or of 64. The last block may be narrower.
    """

    size = 16

    def weights(self, magnitude: Tensor, k: int) -> Tensor:
        n, size = magnitude.shape[-1], self.size
        squares = nn.functional.pad(squares_of(magnitude), (0, -n % size)).unflatten(-1, (-1, size)).sum(-1)
        best = largest(squares, min(max(1, round(k / size)), squares.shape[-1]))
        chosen = torch.zeros_like(squares, dtype=torch.bool).scatter_(-1, best, True)
        return chosen.repeat_interleave(size, -1)[..., :n]


class WideBlock(Block):
    """As Block, with blocks of 64 columns."""

    size = 64


OTHER_SPARSIFIERS: dict[str, type[OtherSparsifier]] = {
    "random": RandomK,
    "importance": ImportanceK,
    "threshold": Threshold,
    "energy": Energy,
    "block": Block,
    "block_64": WideBlock,
}
HAVE_KERNELS = (top_k, unified_top_k)


def sparsifier_of(kind: str, selection: str, remembers: bool, name: str = "") -> Sparsifier:
    """Return the sparsifier of a layer of this name; remembers: a memory takes up what is not kept."""
    if kind == TOP_K:
        return SPARSIFIERS[selection]
    return OTHER_SPARSIFIERS[kind](name, shared=selection == "unified", scaled=not remembers)
