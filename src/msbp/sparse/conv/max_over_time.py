"""MaxOverTime: a convolution over the words of sentences, ReLU and the maximum over time, as one unit.

The maximum leaves one entry of ∂ℓ/∂h for each sentence and channel, so the backward pass goes over entries
and never over windows. `fuse` makes a layer do so exactly, for the baseline; `convert` makes it propagate
fewer entries.

Letters: U distinct rows of x, E their width, N positions (the words of the batch, sentence after sentence),
B sentences, F out_channels, w width of a window, T windows, k kept. A sentence is padded with w - 1 empty
positions before and after it, so that each word is in w windows; a window without any word is left out.
"""

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..buffers import uses_kernel
from ..layers import with_reasons
from ..torch_compat import Context, Converted, eager, eager_forward
from .base import SparseConvolution, flat_top_k
from .patches import (
    Batch,
    Entries,
    best_windows,
    best_windows_fast,
    gradients,
    gradients_fast,
    rows_with_gradient,
)


class MaxOverTime(nn.Conv2d):
    """relu(max over windows of Wx + b) in plain torch; weight (F, 1, w, E) and bias (F)."""

    bias: nn.Parameter

    def __init__(self, width: int, channels: int, window: int):
        super().__init__(1, channels, (window, width))

    @property
    def out_features(self) -> int:
        """Return the width of h at one window."""
        return self.out_channels

    def forward(self, x: Tensor, index: Tensor, offsets: Tensor) -> Tensor:  # type: ignore[override]
        """Return features (B, F) of sentences, from rows x (U, E), their index (N) and offsets (B + 1)."""
        best, _ = best_windows(self.batch(x, index, offsets), self.weight, self.bias)
        return torch.relu(best)

    def batch(self, x: Tensor, index: Tensor, offsets: Tensor) -> Batch:
        """Return the padded sentences."""
        return Batch(x, index.long(), offsets.long()).widened(self.kernel_size[0] - 1)


class FusedMaxOverTime(Converted, MaxOverTime):
    """MaxOverTime as one autograd node whose backward pass goes over the argmax entries."""

    dense_bias, plain = False, MaxOverTime

    @eager_forward
    def forward(self, x: Tensor, index: Tensor, offsets: Tensor) -> Tensor:
        maps, window = self.bias.shape[0], self.kernel_size[0]
        if self.weight.shape != (maps, 1, window, x.shape[1]):
            raise RuntimeError(
                f"weight of a MaxOverTime with window {window} and a bias of {maps} must have shape "
                f"{(maps, 1, window, x.shape[1])} for this x, got {tuple(self.weight.shape)}"
            )
        if torch.is_autocast_enabled(x.device.type):
            with torch.autocast(x.device.type, enabled=False):  # a selection needs the parameters' precision
                return self(x.to(self.weight.dtype), index, offsets)
        return MaxPass.apply(self, *self.batch(x, index, offsets), self.weight, self.bias)

    @property
    def active(self) -> bool:
        """Return True if the backward pass is sparse at present."""
        return False

    def select(
        self, gradient: Tensor, start: Tensor, offsets: Tensor
    ) -> tuple[Entries, Tensor | None] | None:
        """Return the entries to propagate of ∂ℓ/∂h at the maxima (B, F), and the memory after them."""
        return one_per_channel(gradient, start), None

    def finish(self, m: Tensor | None) -> None:
        """Do nothing: there is no memory."""


class SparseMaxOverTime(SparseConvolution, FusedMaxOverTime):
    """FusedMaxOverTime that propagates the entries its selection keeps; `adopt` converts a layer in place."""

    def select(
        self, gradient: Tensor, start: Tensor, offsets: Tensor
    ) -> tuple[Entries, Tensor | None] | None:
        """Return the estimated gradient g as entries and the memory after it; None if g is not finite."""
        if self.memory is not None:
            self.memory.on(gradient, gradient.shape[1])
        windows = int(offsets.diff().max()) - self.kernel_size[0] + 1
        if self.keeps_all(windows):
            return one_per_channel(gradient, start), None
        if self.selection.pooled:
            estimated = self.estimate(gradient, torch.arange(len(gradient), device=start.device), 1)
            return None if estimated is None else (one_per_channel(estimated[0], start), estimated[1])
        rows, example, position = rows_with_gradient(gradient, start, offsets)
        return self.entries(rows, example, position, windows)

    def keeps_all(self, windows: int) -> bool:
        """Return True if k T covers the F entries that an example has at most, and no memory adds others."""
        covers = self.selection.sparsifier is flat_top_k and self.k * windows >= self.out_channels
        return covers and (self.memory is None or not self.memory.m.any())


def one_per_channel(gradient: Tensor, start: Tensor) -> Entries:
    """Return one entry, even if zero, for each sentence and channel of gradient and start (B, F)."""
    channels = torch.arange(gradient.shape[1], device=start.device).expand_as(start)
    return Entries(gradient.reshape(-1), channels.reshape(-1), start.reshape(-1))


class MaxContext(Context, Protocol):
    layer: FusedMaxOverTime
    active: bool


class MaxPass(torch.autograd.Function):
    """MaxOverTime as an autograd node: forward saves the argmax, backward starts from its entries."""

    @staticmethod
    def forward(
        ctx: MaxContext,
        layer: FusedMaxOverTime,
        x: Tensor,
        index: Tensor,
        offsets: Tensor,
        *parameters: Tensor,
    ) -> Tensor:
        weight, bias = parameters
        find = best_windows_fast if uses_kernel(x, weight, bias) else best_windows
        best, start = find(Batch(x, index, offsets), weight, bias)
        pooled = best.relu_()
        ctx.layer, ctx.active = layer, layer.active
        ctx.save_for_backward(x, index, offsets, weight, pooled, start)
        return pooled

    @staticmethod
    @eager
    @with_reasons
    @once_differentiable
    def backward(ctx: MaxContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, index, offsets, weight, pooled, start = ctx.saved_tensors
        layer = ctx.layer
        gradient = torch.where(pooled <= 0, 0, grad)  # σ'(h) ⊙ ∂ℓ/∂z; a NaN passes
        selected = layer.select(gradient, start, offsets) if ctx.active else None
        entries, m = (one_per_channel(gradient, start), None) if selected is None else selected
        form = gradients_fast if uses_kernel(x, weight) else gradients
        batch = Batch(x, index, offsets)
        grad_weight, grad_bias, grad_x = form(entries, batch, weight, ctx.needs_input_grad[1])
        if selected is not None:
            layer.finish(m)
        return None, grad_x, None, None, grad_weight, gradient.sum(0) if layer.dense_bias else grad_bias
