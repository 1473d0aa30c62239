"""Windows over sentences: the maximum of a convolution over time, and gradients from single entries.

Each comes in plain torch, for any device and dtype, and by a kernel for float32 on a CPU, with equal results.
Letters: U distinct rows of x, E their width, N places, B sentences, F maps, w window, M entries.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import conv1d, embedding

from ..buffers import arange, uses_kernel
from ..kernels import conv as kernels
from ..kernels import entries as select

EMPTY = -1  # no word: beyond a sentence's ends


class Batch(NamedTuple):
    """Sentences laid end to end: which row of x (U, E) stands at each place, and where sentences begin."""

    x: Tensor
    ids: Tensor  # (N)
    offsets: Tensor  # (B + 1), the last is N

    def widened(self, margin: int) -> "Batch":
        """The same with `margin` empty places on both sides of each sentence; refuses what is no batch."""
        extra = 2 * margin * (len(self.offsets) - 1)
        wide, offsets = self.ids.new_empty(len(self.ids) + extra), torch.empty_like(self.offsets)
        if not uses_kernel(self.x):
            self._check()
            return self._widened(margin, wide)
        if not kernels.widen(margin, len(self.x), *arrays(self.ids, self.offsets, wide, offsets)):
            self._check()
        return Batch(self.x, wide, offsets)

    def _widened(self, margin: int, wide: Tensor) -> "Batch":
        extra = 2 * margin * torch.arange(len(self.offsets), device=self.offsets.device)
        shift = (extra[:-1] + margin).repeat_interleave(self.offsets.diff())
        wide.fill_(EMPTY)[torch.arange(len(self.ids), device=wide.device) + shift] = self.ids
        return Batch(self.x, wide, self.offsets + extra)

    def _check(self) -> None:
        at, words = self.offsets.tolist(), len(self.ids)
        if len(at) < 2 or at[0] != 0 or at[-1] != words or any(a >= b for a, b in pairwise(at)):
            raise ValueError(
                f"offsets must rise from 0 to the {words} words of the batch, one word a sentence at least; "
                f"got {at}: leave empty sentences out"
            )
        low, high = (int(end) for end in self.ids.aminmax())
        if low < 0 or high >= len(self.x):
            raise IndexError(
                f"index must lie in 0 ... {len(self.x) - 1}, the rows of x; got {low} ... {high}"
            )

    def rows(self) -> Tensor:
        """x at every place (N, E), zero at empty ones."""
        return self.x[self.ids.clamp(min=0)] * (self.ids >= 0)[:, None]


class Entries(NamedTuple):
    """Single numbers of ∂ℓ/∂h: values (M), their maps (M), and the places (M) where their windows start."""

    values: Tensor
    maps: Tensor
    places: Tensor


def best_windows(batch: Batch, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """max over a sentence's windows of h = Wx + b (B, F), and the place (B, F) of the first winner."""
    lengths = batch.offsets.diff()
    time = torch.arange(int(lengths.max()), device=lengths.device)
    none = len(batch.x)  # the row of an empty place
    index = batch.ids.new_full((len(lengths), len(time)), none)
    index[time < lengths[:, None]] = torch.where(batch.ids == EMPTY, none, batch.ids)
    x = embedding(index, torch.cat([batch.x, batch.x.new_zeros(1, batch.x.shape[1])]))
    h = conv1d(x.transpose(1, 2), weight[:, 0].transpose(1, 2), bias)  # (B, F, T)
    beyond = time[: h.shape[2]] > (lengths - weight.shape[2])[:, None]
    best, at = h.masked_fill(beyond[:, None], -torch.inf).max(2)
    return best, at + batch.offsets[:-1, None]


def best_windows_fast(batch: Batch, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The same, each row of x multiplied by each slice of the weight once."""
    maps, _, window, width = weight.shape
    slices = weight.view(maps, window, width).transpose(0, 1).reshape(window * maps, width)
    shape = len(batch.offsets) - 1, maps
    best, start = batch.x.new_empty(shape), batch.ids.new_empty(shape)
    kernels.best_windows(window, *arrays(batch.x @ slices.T, batch.ids, batch.offsets, bias, best, start))
    return best, start


def gradients(
    entries: Entries, batch: Batch, weight: Tensor, need_x: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """∂ℓ/∂W (F, 1, w, E), ∂ℓ/∂b (F) and ∂ℓ/∂x (U, E) of the entries."""
    values, maps, places = entries
    window = places[:, None] + torch.arange(weight.shape[2], device=places.device)  # (M, w)
    words = (values[:, None, None] * batch.rows()[window])[:, None]
    grad_weight = torch.zeros_like(weight).index_add_(0, maps, words)
    grad_bias = weight.new_zeros(len(weight)).index_add_(0, maps, values)
    if not need_x:
        return grad_weight, grad_bias, None
    shares = (values[:, None, None] * weight[maps, 0]).flatten(0, 1)
    rows = batch.ids[window].flatten()
    here = rows != EMPTY
    return grad_weight, grad_bias, torch.zeros_like(batch.x).index_add_(0, rows[here], shares[here])


def gradients_fast(
    entries: Entries, batch: Batch, weight: Tensor, need_x: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The same by kernels, which pass over entries that are zero."""
    return scatter(entries, batch.x, batch.ids, arange(weight.shape[2]), weight, need_x)


def scatter(
    entries: Entries, x: Tensor, ids: Tensor, shifts: Tensor, weight: Tensor, need_x: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The same for windows of any form: to a place belong those that are shifts (w) further."""
    maps, _, window, width = weight.shape
    inputs = arrays(*entries, ids, shifts)
    grad_weight, grad_bias = weight.new_empty(weight.shape), weight.new_empty(maps)
    kernels.weight_gradient(*inputs, *arrays(x, grad_weight.view(maps, window, width), grad_bias))
    if not need_x:
        return grad_weight, grad_bias, None
    grad_x = x.new_empty(x.shape)
    kernels.input_gradient(*inputs, *arrays(weight.view(maps, window, width), grad_x))
    return grad_weight, grad_bias, grad_x


def rows_with_gradient(gradient: Tensor, start: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """∂ℓ/∂h at the places that have any: rows (R, F), their sentences (R) and places (R), in order.

    gradient and start (B, F) are the entries of the winners and the places where they start.
    """
    places = int(offsets[-1])
    rows = gradient.new_zeros(places, gradient.shape[1])
    if uses_kernel(gradient):
        place, example = start.new_empty(places), start.new_empty(places)
        count = kernels.rows_with_gradient(*arrays(gradient, start, offsets, place, example, rows))
        return rows[:count], example[:count], place[:count]
    rows.scatter_(0, start, gradient)
    place = (rows != 0).any(1).nonzero().squeeze(1)
    return rows[place], torch.searchsorted(offsets, place, right=True) - 1, place


def keep_entries(
    rows: Tensor, place: Tensor, k: int, m: Tensor, gamma: float
) -> tuple[Entries, Tensor] | None:
    """By kernel the k largest entries of each row (R, F) plus a shared memory m (1, F), and the next memory.

    None if some are not finite.
    """
    room, after = len(rows) * k, torch.empty_like(m)
    entries = Entries(rows.new_empty(room), place.new_empty(room), place.new_empty(room))
    found = select.keep_entries(k, gamma, *arrays(rows, m[0], place, *entries, after[0]))
    return None if found < 0 else (Entries(*(part[:found] for part in entries)), after)


def arrays(*tensors: Tensor) -> Any:
    """The tensors as numpy arrays, on the same memory if they are contiguous, as outputs must be."""
    return [t.detach().contiguous().numpy() for t in tensors]
