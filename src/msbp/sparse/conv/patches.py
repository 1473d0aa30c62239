"""Patches of a convolution's input: maxima over the windows of sentences, and gradients from single entries.

Functions come in plain torch, for any device and dtype, and by a kernel for float32 on a CPU. Letters:
U distinct rows of x, E their width, N positions, B sentences, F out_channels, w positions of a window,
M entries.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d, embedding

from ..buffers import arange, uses_kernel, zeros
from ..kernels import conv as kernels
from ..kernels import parallel

EMPTY = -1  # padding


class Batch(NamedTuple):
    """Concatenated sentences: an index into the rows of x (U, E), and the offsets of sentences in it."""

    x: Tensor
    ids: Tensor  # (N)
    offsets: Tensor  # (B + 1), the last is N

    def widened(self, margin: int) -> "Batch":
        """Return the batch with `margin` empty positions on both sides of each sentence.

        ValueError for offsets, IndexError for ids that make no batch.
        """
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
        """Return x at every position (N, E), zero at empty ones."""
        return self.x[self.ids.clamp(min=0)] * (self.ids >= 0)[:, None]


class Entries(NamedTuple):
    """Entries of ∂ℓ/∂h: values (M), channels (M), and the positions (M) at which their windows start."""

    values: Tensor
    channels: Tensor
    positions: Tensor


def best_windows(batch: Batch, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return the maximum over windows of h = Wx + b (B, F), and the position (B, F) of its first argmax."""
    lengths = batch.offsets.diff()
    time = torch.arange(int(lengths.max()), device=lengths.device)
    none = len(batch.x)  # the row of an empty position
    index = batch.ids.new_full((len(lengths), len(time)), none)
    index[time < lengths[:, None]] = torch.where(batch.ids == EMPTY, none, batch.ids)
    x = embedding(index, torch.cat([batch.x, batch.x.new_zeros(1, batch.x.shape[1])]))
    h = conv1d(x.transpose(1, 2), weight[:, 0].transpose(1, 2), bias)  # (B, F, T)
    beyond = time[: h.shape[2]] > (lengths - weight.shape[2])[:, None]
    best, at = h.masked_fill(beyond[:, None], -torch.inf).max(2)
    return best, at + batch.offsets[:-1, None]


def best_windows_fast(batch: Batch, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """As best_windows, by kernel: each row of x is multiplied by each slice of the weight once."""
    channels, _, window, width = weight.shape
    slices = weight.view(channels, window, width).transpose(0, 1).reshape(window * channels, width)
    shape = len(batch.offsets) - 1, channels
    best, start = batch.x.new_empty(shape), batch.ids.new_empty(shape)
    inputs = arrays(batch.x @ slices.T, batch.ids, batch.offsets, bias)
    kernels.best_windows(window, *inputs, *arrays(best, start), parallel.threads())
    return best, start


def gradients(
    entries: Entries, batch: Batch, weight: Tensor, need_x: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return ∂ℓ/∂W (F, 1, w, E), ∂ℓ/∂b (F) and ∂ℓ/∂x (U, E) of the entries."""
    values, channels, positions = entries
    window = positions[:, None] + torch.arange(weight.shape[2], device=positions.device)  # (M, w)
    words = (values[:, None, None] * batch.rows()[window])[:, None]
    grad_weight = torch.zeros_like(weight).index_add_(0, channels, words)
    grad_bias = weight.new_zeros(len(weight)).index_add_(0, channels, values)
    if not need_x:
        return grad_weight, grad_bias, None
    shares = (values[:, None, None] * weight[channels, 0]).flatten(0, 1)
    rows = batch.ids[window].flatten()
    here = rows != EMPTY
    return grad_weight, grad_bias, torch.zeros_like(batch.x).index_add_(0, rows[here], shares[here])


def gradients_fast(
    entries: Entries, batch: Batch, weight: Tensor, need_x: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """As gradients, by kernels, which skip entries that are zero."""
    return scatter(entries, batch.x, batch.ids, arange(weight.shape[2]), weight, need_x)


def scatter(
    entries: Entries, x: Tensor, ids: Tensor, shifts: Tensor, weight: Tensor, need_x: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """As gradients_fast, for windows of any form: one that starts at p has the positions p + shifts (w)."""
    channels, _, window, width = weight.shape
    inputs = arrays(*entries, ids, shifts)
    grad_weight, grad_bias = weight.new_empty(weight.shape), weight.new_empty(channels)
    outputs = arrays(grad_weight.view(channels, window, width), grad_bias)
    kernels.weight_gradient(*inputs, *arrays(x), *outputs, parallel.threads())
    if not need_x:
        return grad_weight, grad_bias, None
    grad_x = x.new_empty(x.shape)
    kernels.input_gradient(*inputs, *arrays(weight.view(channels, window, width), grad_x), parallel.threads())
    return grad_weight, grad_bias, grad_x


def rows_with_gradient(gradient: Tensor, start: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return ∂ℓ/∂h where it is not zero: rows (R, F), their sentences (R) and positions (R), in order.

    gradient and start (B, F) are the argmax entries and the positions at which their windows start.
    """
    positions = int(offsets[-1])
    rows = gradient.new_zeros(positions, gradient.shape[1])
    if uses_kernel(gradient):
        position, example = start.new_empty(positions), start.new_empty(positions)
        count = kernels.rows_with_gradient(*arrays(gradient, start, offsets, position, example, rows))
        return rows[:count], example[:count], position[:count]
    rows.scatter_(0, start, gradient)
    position = (rows != 0).any(1).nonzero().squeeze(1)
    return rows[position], torch.searchsorted(offsets, position, right=True) - 1, position


def keep_entries(
    rows: Tensor, position: Tensor, k: int, m: Tensor, gamma: float
) -> tuple[Entries, Tensor] | None:
    """Return the k largest entries of each row (R, F) plus a shared memory m (1, F), and the next memory.

    By kernel; None if some are not finite.
    """
    room, after = len(rows) * k, torch.empty_like(m)
    entries = Entries(rows.new_empty(room), position.new_empty(room), position.new_empty(room))
    kept = kernels.keep_entries(k, gamma, *arrays(rows, m[0], position, *entries, after[0]))
    return None if kept < 0 else (Entries(*(part[:kept] for part in entries)), after)


def arrays(*tensors: Tensor) -> list[np.ndarray]:
    """Return tensors as numpy arrays, on the same memory if they are contiguous, as outputs must be."""
    return [t.detach().contiguous().numpy() for t in tensors]


class Grid:
    """The positions of a batch of images x (B, C, H, W): rows of C channels, with empty ones as padding.

    Letters: H and W height and width of the input (H = 1 in one dimension), T windows.
    """

    def __init__(self, layer: nn.Conv1d | nn.Conv2d, x: Tensor, weight: Tensor, out: Sequence[int]):
        self.layer, self.x, self.out = layer, x, out
        self.images = x if x.dim() == 4 else x[:, :, None]
        self.stride, self.dilation = two(layer.stride), two(layer.dilation)
        self.window, self.padding = two(weight.shape[2:]), two(layer.padding, 0)  # type: ignore[arg-type]

    @staticmethod
    def fits(layer: nn.Conv1d | nn.Conv2d) -> bool:
        """Return True for a convolution over all channels at once, padded with zeros."""
        return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)

    @property
    def size(self) -> tuple[int, int]:
        """Return height and width with the padding."""
        (height, width), (down, right) = self.images.shape[2:], self.padding
        return height + 2 * down, width + 2 * right

    def positions(self) -> Tensor:
        """Return the positions at which the windows start (B T)."""
        height, width = self.size
        rows, columns = two(self.out)
        down = arange(rows) * self.stride[0] * width
        right = arange(columns) * self.stride[1]
        first = arange(len(self.x)) * height * width
        return (first[:, None, None] + down[:, None] + right).flatten()

    def gradients(
        self, entries: Entries, weight: Tensor, need_x: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return ∂ℓ/∂W, ∂ℓ/∂b and ∂ℓ/∂x of the entries, in the shapes of weight, bias and x."""
        (height, width), (down, right) = self.images.shape[2:], self.padding
        rows = self.images.permute(0, 2, 3, 1).reshape(-1, self.images.shape[1])
        ids = zeros(len(self.x), *self.size, dtype=torch.int64) + EMPTY
        ids[:, down : down + height, right : right + width] = arange(len(rows)).view(-1, height, width)
        shifts = (arange(self.window[0]) * self.dilation[0] * self.size[1])[:, None]
        shifts = (shifts + arange(self.window[1]) * self.dilation[1]).flatten()
        by_position = weight.flatten(2).transpose(1, 2)[:, None].contiguous()  # (F, 1, w, C)
        grad_weight, grad_bias, grad_x = scatter(entries, rows, ids.flatten(), shifts, by_position, need_x)
        grad_weight = grad_weight[:, 0].transpose(1, 2).reshape(weight.shape)
        if grad_x is None:
            return grad_weight, grad_bias, None
        images = grad_x.view(-1, height, width, rows.shape[1]).permute(0, 3, 1, 2)
        return grad_weight, grad_bias, images.reshape(self.x.shape)


def two(sizes: Sequence[int], first: int = 1) -> tuple[int, int]:
    """Return two sizes, the first being `first` if only one is given."""
    return (first, sizes[0]) if len(sizes) == 1 else (sizes[0], sizes[1])
