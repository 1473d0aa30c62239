"""Windows over packed sentences: the maximum of a convolution over time, and gradients from single entries.

Each comes in plain torch, for any device and dtype, and by a kernel for float32 on a CPU, with equal results.
Letters as in max_over_time.py: U distinct rows of x, E width, N places, B sentences, F maps, w window; and
M entries.
"""

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from . import conv_kernels as kernels


class Batch(NamedTuple):
    """Sentences of rows of x (U, E): which row stands at a place (N), and where sentences begin (B + 1)."""

    x: Tensor
    index: Tensor
    offsets: Tensor

    def ends(self) -> Tensor:
        """Where the sentence of each place ends (N)."""
        return self.offsets[1:].repeat_interleave(self.offsets.diff())

    def check(self) -> None:
        """ValueError unless the offsets cut the index into sentences of at least one word."""
        at, words = self.offsets.tolist(), len(self.index)
        if len(at) < 2 or at[0] != 0 or at[-1] != words or any(a >= b for a, b in pairwise(at)):
            raise ValueError(
                f"offsets must rise from 0 to the {words} words of the batch, one word a sentence at least; "
                f"got {at}: leave empty sentences out"
            )


class Entries(NamedTuple):
    """Single numbers of ∂ℓ/∂h: values (M), their maps (M), and the places (M) where their windows start."""

    values: Tensor
    maps: Tensor
    places: Tensor


def on_fast_path(*tensors: Tensor) -> bool:
    """Whether the kernels can take these."""
    return all(t.device.type == "cpu" and t.dtype == torch.float32 for t in tensors)


def best_windows(batch: Batch, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """max over windows of h = Wx + b (B, F), and the place (B, F) where the first winner starts."""
    batch.check()
    lengths, window = batch.offsets.diff(), weight.shape[2]
    time = torch.arange(max(int(lengths.max()), window), device=batch.x.device)
    padded = batch.x.new_zeros(len(lengths), len(time), batch.x.shape[1])
    padded[time < lengths[:, None]] = batch.x[batch.index]
    h = conv2d(padded[:, None], weight, bias).squeeze(3)  # (B, F, T)
    beyond = time[: h.shape[2]] >= (lengths - window + 1).clamp(min=1)[:, None]
    best, at = h.masked_fill(beyond[:, None], -torch.inf).max(2)
    return best, at + batch.offsets[:-1, None]


def best_windows_fast(batch: Batch, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The same, each distinct row of x multiplied by each slice of the weight once."""
    batch.check()
    maps, _, window, width = weight.shape
    slices = weight.view(maps, window, width).transpose(0, 1).reshape(window * maps, width)
    shape = len(batch.offsets) - 1, maps
    best, start = batch.x.new_empty(shape), batch.index.new_empty(shape)
    inputs = arrays(batch.x @ slices.T, batch.index, batch.offsets, bias)
    bad = kernels.best_windows(*inputs, window, *arrays(best, start))
    if bad:
        raise IndexError(
            f"index must lie in 0 ... {len(batch.x) - 1}, the rows of x; got {batch.index[bad - 1]}"
        )
    return best, start


def gradients(
    entries: Entries, batch: Batch, weight: Tensor, need_x: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """∂ℓ/∂W (F, 1, w, E), ∂ℓ/∂b (F) and ∂ℓ/∂x (U, E) of the entries."""
    (values, maps, places), (x, index, _) = entries, batch
    at = places[:, None] + torch.arange(weight.shape[2], device=x.device)
    here = (at < batch.ends()[places][:, None])[..., None]  # a short sentence cuts its window
    rows = index[at.clamp(max=len(index) - 1)]
    windows = (values[:, None, None] * x[rows] * here)[:, None]
    grad_weight = torch.zeros_like(weight).index_add_(0, maps, windows)
    grad_bias = weight.new_zeros(len(weight)).index_add_(0, maps, values)
    if not need_x:
        return grad_weight, grad_bias, None
    shares = values[:, None, None] * weight[maps, 0] * here
    return grad_weight, grad_bias, torch.zeros_like(x).index_add_(0, rows.flatten(), shares.flatten(0, 1))


def gradients_fast(
    entries: Entries, batch: Batch, weight: Tensor, need_x: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The same by kernels, which pass over entries that are zero."""
    maps, _, window, width = weight.shape
    inputs = arrays(*entries, batch.index, batch.ends())
    grad_weight, grad_bias = torch.empty_like(weight), weight.new_empty(maps)
    kernels.weight_gradient(*inputs, *arrays(batch.x, grad_weight.view(maps, window, width), grad_bias))
    if not need_x:
        return grad_weight, grad_bias, None
    grad_x = torch.zeros_like(batch.x)
    kernels.input_gradient(*inputs, *arrays(weight.view(maps, window, width), grad_x))
    return grad_weight, grad_bias, grad_x


def arrays(*tensors: Tensor) -> list:
    """The tensors as numpy arrays on the same memory."""
    return [t.detach().contiguous().numpy() for t in tensors]
