"""SparseConv1d and SparseConv2d: torch's convolutions with a backward pass that propagates part of ∂ℓ/∂h.

Letters: B examples, C in_channels, F out_channels, T windows (positions of the output), R rows of ∂ℓ/∂h.
"""

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..buffers import uses_kernel
from ..layers import with_reasons
from ..torch_compat import Context, eager, eager_forward
from .base import SparseConvolution
from .patches import Grid


class SparseConv1d(SparseConvolution, nn.Conv1d):
    """nn.Conv1d with a sparse backward pass; `adopt` converts a layer in place."""

    plain = nn.Conv1d

    @eager_forward
    def forward(self, x: Tensor) -> Tensor:
        """Return h (B, F, T) of x (B, C, L)."""
        return convolve(self, x)


class SparseConv2d(SparseConvolution, nn.Conv2d):
    """nn.Conv2d with a sparse backward pass; `adopt` converts a layer in place."""

    plain = nn.Conv2d

    @eager_forward
    def forward(self, x: Tensor) -> Tensor:
        """Return h (B, F, T', T'') of x (B, C, H, W)."""
        return convolve(self, x)


def convolve(layer: SparseConv1d | SparseConv2d, x: Tensor) -> Tensor:
    """Return the layer's output h (B, F, ...) with a sparse backward pass, by kernel where supported."""
    if x.dim() == len(layer.kernel_size) + 1:
        return convolve(layer, x[None])[0]
    if torch.is_autocast_enabled(x.device.type):
        with torch.autocast(x.device.type, enabled=False):  # a selection needs the parameters' precision
            return convolve(layer, x.to(layer.weight.dtype))
    if not layer.active or not len(x):  # without an example there is no gradient to make sparse
        return layer._conv_forward(x, layer.weight, layer.bias)
    if Grid.fits(layer) and uses_kernel(x, layer.weight):
        return Convolve.apply(layer, x, layer.weight, layer.bias)
    if layer.bias is None or not layer.dense_bias:
        return Sparsify.apply(layer._conv_forward(x, layer.weight, layer.bias), layer)
    bias = layer.bias.view(-1, *[1] * len(layer.kernel_size))
    return Sparsify.apply(layer._conv_forward(x, layer.weight, None), layer) + bias


def rows_of(grad_h: Tensor) -> tuple[Tensor, Tensor, int]:
    """Return the gradients of all windows (B T, F), the indices of those that are not zero (R), and T."""
    rows = grad_h.flatten(2).transpose(1, 2).flatten(0, 1)
    return rows, (rows != 0).any(1).nonzero().squeeze(1), len(rows) // len(grad_h)


class ConvolveContext(Context, Protocol):
    layer: SparseConv1d | SparseConv2d


class Convolve(torch.autograd.Function):
    """Convolution as an autograd node whose backward pass goes over the kept entries."""

    @staticmethod
    def forward(
        ctx: ConvolveContext,
        layer: SparseConv1d | SparseConv2d,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
    ) -> Tensor:
        ctx.layer = layer
        ctx.save_for_backward(x, weight)
        return layer._conv_forward(x, weight, bias)

    @staticmethod
    @eager
    @with_reasons
    @once_differentiable
    def backward(ctx: ConvolveContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        layer, (x, weight) = ctx.layer, ctx.saved_tensors
        rows, active, windows = rows_of(grad)
        taken = rows if len(active) == len(rows) else rows[active]
        grid = Grid(layer, x, weight, grad.shape[2:])
        kept = layer.entries(taken, active // windows, grid.positions()[active], windows)
        if kept is None:
            return None, *whole(layer, ctx.needs_input_grad[1:], x, weight, grad)
        entries, m = kept
        grad_weight, grad_bias, grad_x = grid.gradients(entries, weight, ctx.needs_input_grad[1])
        layer.finish(m)
        if layer.bias is None:
            return None, grad_x, grad_weight, None
        return None, grad_x, grad_weight, rows.sum(0) if layer.dense_bias else grad_bias


def whole(
    layer: SparseConv1d | SparseConv2d, needs: tuple[bool, ...], x: Tensor, weight: Tensor, grad: Tensor
) -> list[Tensor | None]:
    """Return torch's gradients of x, weight and bias, for a gradient that is not finite."""
    with torch.enable_grad():
        inputs = [x.detach().requires_grad_(), weight.detach().requires_grad_()]
        if layer.bias is not None:
            inputs.append(layer.bias.detach().requires_grad_())
        out = layer._conv_forward(*inputs, *[None] * (3 - len(inputs)))
        gradients = [*torch.autograd.grad(out, inputs, grad), None]
    return [g if need else None for g, need in zip(gradients, needs, strict=False)]


class SparsifyContext(Context, Protocol):
    layer: SparseConvolution


class Sparsify(torch.autograd.Function):
    """Identity on h (B, F, ...); its backward pass puts g in place of ∂ℓ/∂h for torch's own convolution."""

    @staticmethod
    def forward(ctx: SparsifyContext, h: Tensor, layer: SparseConvolution) -> Tensor:
        ctx.layer = layer
        return h.view_as(h)

    @staticmethod
    @eager
    @with_reasons
    @once_differentiable
    def backward(ctx: SparsifyContext, grad: Tensor) -> tuple[Tensor, None]:
        rows, active, windows = rows_of(grad)
        estimated = ctx.layer.estimate(rows[active], active // windows, windows)
        if estimated is None:
            return grad, None
        g, m = estimated
        ctx.layer.finish(m)
        out = torch.zeros_like(rows).index_copy_(0, active, g)
        return out.view(len(grad), windows, -1).transpose(1, 2).reshape(grad.shape), None
