"""MaxOverTime: a convolution over the words of sentences, ReLU and the maximum over time, as one unit.

The maximum leaves one entry of ∂ℓ/∂h for each sentence and map, so the backward pass goes over entries and
never over positions. `fuse` makes a layer do so exactly, as the baseline; `convert` lets it propagate fewer.

Letters: U distinct rows of x, E their width, N places (the words of the batch, sentence after sentence),
B sentences, F maps, w window, T positions, k kept. A sentence has w - 1 empty places before and after it, so
each word is seen by w windows; a window without any word does not exist, so padding can win nothing.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..buffers import uses_kernel
from ..torch_compat import Converted, eager, eager_forward
from .base import SparseConvolution
from .patches import (
    Batch,
    Entries,
    best_windows,
    best_windows_fast,
    gradients,
    gradients_fast,
    rows_with_gradient,
)
from .selections import flat_top_k


class MaxOverTime(nn.Conv2d):
    """relu(max over windows of Wx + b) in plain torch; weight (F, 1, w, E) and bias (F)."""

    bias: nn.Parameter

    def __init__(self, width: int, maps: int, window: int):
        super().__init__(1, maps, (window, width))

    @property
    def out_features(self) -> int:
        """The width of h at one position."""
        return self.out_channels

    def forward(self, x: Tensor, index: Tensor, offsets: Tensor) -> Tensor:  # type: ignore[override]
        """Features (B, F) of sentences: x (U, E), index (N) of its rows, offsets (B + 1) where they begin."""
        best, _ = best_windows(self.batch(x, index, offsets), self.weight, self.bias)
        return torch.relu(best)

    def batch(self, x: Tensor, index: Tensor, offsets: Tensor) -> Batch:
        """The sentences with their empty places."""
        return Batch(x, index.long(), offsets.long()).widened(self.kernel_size[0] - 1)


class FusedMaxOverTime(Converted, MaxOverTime):
    """The same as one node whose backward pass is over the entries that the maximum lets through."""

    dense_bias, plain = False, MaxOverTime

    @eager_forward
    def forward(self, x: Tensor, index: Tensor, offsets: Tensor) -> Tensor:
        if torch.is_autocast_enabled(x.device.type):
            with torch.autocast(x.device.type, enabled=False):  # a selection needs the parameters' precision
                return self(x.to(self.weight.dtype), index, offsets)
        return MaxPass.apply(self, *self.batch(x, index, offsets), self.weight, self.bias)

    @property
    def active(self) -> bool:
        """Whether the backward pass is sparse at present."""
        return False

    def select(
        self, gradient: Tensor, start: Tensor, offsets: Tensor
    ) -> tuple[Entries, Tensor | None] | None:
        """Return the entries to propagate of ∂ℓ/∂h at the maxima (B, F), and the memory after them."""
        return one_a_map(gradient, start), None

    def finish(self, m: Tensor | None) -> None:
        """End a backward pass that went well."""


class SparseMaxOverTime(SparseConvolution, FusedMaxOverTime):
    """FusedMaxOverTime that propagates what its selection keeps; made by `adopt`."""

    def select(
        self, gradient: Tensor, start: Tensor, offsets: Tensor
    ) -> tuple[Entries, Tensor | None] | None:
        """Return the estimated gradient g as entries and the memory after it, None if g is not finite."""
        positions = int(offsets.diff().max()) - self.kernel_size[0] + 1
        if self.keeps_all(positions):
            return one_a_map(gradient, start), None
        if self.selection.pooled:
            estimated = self.estimate(gradient, torch.arange(len(gradient), device=start.device), 1)
            return None if estimated is None else (one_a_map(estimated[0], start), estimated[1])
        rows, example, place = rows_with_gradient(gradient, start, offsets)
        return self.entries(rows, example, place, positions)

    def keeps_all(self, positions: int) -> bool:
        """Whether k T covers the F entries that an example has at most, and no memory adds others."""
        covers = self.selection.sparsifier is flat_top_k and self.k * positions >= self.out_channels
        return covers and (self.memory is None or not self.memory.m.any())


def one_a_map(gradient: Tensor, start: Tensor) -> Entries:
    """One entry, be it zero, for each sentence and map: gradient and start are (B, F)."""
    maps = torch.arange(gradient.shape[1], device=start.device).expand_as(start)
    return Entries(gradient.reshape(-1), maps.reshape(-1), start.reshape(-1))


class MaxPass(torch.autograd.Function):
    """The node: forward keeps where each maximum was, backward follows the entries from there."""

    @staticmethod
    def forward(
        ctx: Any, layer: FusedMaxOverTime, x: Tensor, index: Tensor, offsets: Tensor, *parameters: Tensor
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
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, index, offsets, weight, pooled, start = ctx.saved_tensors
        layer = cast(FusedMaxOverTime, ctx.layer)
        gradient = torch.where(pooled <= 0, 0, grad)  # σ'(h) ⊙ ∂ℓ/∂z; a NaN passes
        selected = layer.select(gradient, start, offsets) if ctx.active else None
        entries, m = (one_a_map(gradient, start), None) if selected is None else selected
        form = gradients_fast if uses_kernel(x, weight) else gradients
        batch = Batch(x, index, offsets)
        grad_weight, grad_bias, grad_x = form(entries, batch, weight, ctx.needs_input_grad[1])
        if selected is not None:
            layer.finish(m)
        return None, grad_x, None, None, grad_weight, gradient.sum(0) if layer.dense_bias else grad_bias
