"""SparseConv1d and SparseConv2d: convolutions whose backward pass propagates part of ∂ℓ/∂h.

Letters: B examples, F maps (out_channels), T positions of the output, R rows, k kept. A row is the gradient
of all F maps at one position of one example; rows without any gradient take no part: they neither get memory
nor leave any. The memory is one vector over the maps, shared by all positions as the weight is, for any T.
"""

from functools import partial
from typing import Any, NoReturn, Self, cast

import torch
from torch import Tensor, nn

from .linear import BIAS_GRADIENTS, check_choices
from .memory import MEMORIES, GradientMemory, SequentialMemory
from .selections import SELECTIONS, Selection


class SparseConvolution(nn.Module):
    """What sparse convolutions share: k of F maps, a selection, a memory. See SparseLinear for the choices.

    selection: per_example (k T of all F T entries of an example) | per_position (k of the F maps at each
    position) | pooled (k maps for the batch).
    """

    name = ""
    out_channels: int
    k: int
    selection: Selection
    dense_bias: bool
    enabled: bool
    step: int
    memory: GradientMemory | None

    @classmethod
    def adopt(
        cls,
        convolution: nn.Module,
        name: str,
        k: int,
        gamma: float,
        memory: str = "shared",
        selection: str = "per_example",
        bias_gradient: str = "sparse",
    ) -> Self:
        """Turn a layer into a sparse one in place: the same object, parameters, hooks and state_dict keys."""
        check_choices(gamma, memory, selection, bias_gradient)
        sparse = cast(Self, convolution)
        sparse.__class__, sparse.name, sparse.k = cls, name, k
        sparse.selection, sparse.dense_bias = SELECTIONS[selection], BIAS_GRADIENTS[bias_gradient]
        sparse.enabled, sparse.step = True, 0
        weight = cast(Tensor, convolution.weight)
        sparse.memory = MEMORIES[memory](sparse.out_channels, gamma).to(weight) if gamma > 0 else None
        return sparse

    @property
    def out_features(self) -> int:
        """The width that k is a part of: the maps, whatever the number of positions."""
        return self.out_channels

    def estimate(self, grad_h: Tensor, example: Tensor, positions: int) -> tuple[Tensor, Tensor | None]:
        """The gradient g that is propagated in place of rows of ∂ℓ/∂h (R, F), and the memory that follows it.

        example (R) says which example a row is of, in ascending order; positions is T.
        """
        if not len(grad_h):
            return grad_h, None
        sparsifier = partial(self.selection.sparsifier, k=self.k, example=example, positions=positions)
        if self.memory is None:
            g, m = sparsifier(grad_h), None
        elif isinstance(self.memory, SequentialMemory):
            g, m = self.example_by_example(grad_h, example, positions, self.memory)
        else:
            g, m = self.memory.estimate(grad_h, sparsifier)
        self.check(g)  # a NaN or Inf is among the largest, so looking at g is enough
        return g, m

    def example_by_example(
        self, grad_h: Tensor, example: Tensor, positions: int, memory: SequentialMemory
    ) -> tuple[Tensor, Tensor]:
        """The same with a memory that passes from example to example, shared by the rows of each."""
        m, estimates = memory.m, []
        for rows in grad_h.split(example.unique_consecutive(return_counts=True)[1].tolist()):
            carried, alone = rows + m, example.new_zeros(len(rows))  # ∂ℓ/∂h + m
            estimates.append(self.selection.sparsifier(carried, self.k, alone, positions))
            m = memory.gamma * (carried - estimates[-1]).mean(0, keepdim=True)  # m ← γ(∂ℓ/∂h + m − g)
        return torch.cat(estimates), m

    def check(self, g: Tensor) -> None:
        """Refuse a gradient unless all of it is finite."""
        if not torch.isfinite(g).all():
            self.refuse()

    def refuse(self) -> NoReturn:
        """Report a gradient that is not finite."""
        raise FloatingPointError(
            f"the gradient of layer {self.name or self} is NaN or infinite in its backward pass, step "
            f"{self.step + 1}; nothing of it was kept: the learning rate is too high, or the data hold "
            "bad values"
        )

    def finish(self, m: Tensor | None) -> None:
        """End a backward pass that went well: store the memory and count the step."""
        if m is not None and self.memory is not None:
            self.memory.store(m)
        self.step += 1


class Sparsify(torch.autograd.Function):
    """Identity on h (B, F, ...); its backward pass replaces ∂ℓ/∂h by the estimated gradient g."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, layer: SparseConvolution) -> Tensor:
        ctx.layer = layer
        return h.view_as(h)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        gradient, layer = grads[0].movedim(1, -1), ctx.layer
        flat = gradient.reshape(-1, layer.out_channels)
        positions = flat.shape[0] // len(gradient)
        active = (flat != 0).any(1).nonzero().squeeze(1)
        g, m = layer.estimate(flat[active], active // positions, positions)
        layer.finish(m)
        out = torch.zeros_like(flat).index_copy_(0, active, g)
        return out.view(gradient.shape).movedim(-1, 1), None


class SparseConv1d(SparseConvolution, nn.Conv1d):
    """nn.Conv1d with a sparse backward pass; made by `adopt`."""

    def forward(self, x: Tensor) -> Tensor:
        """h (B, F, T) of x (B, C, L)."""
        return convolve(self, x)


class SparseConv2d(SparseConvolution, nn.Conv2d):
    """nn.Conv2d with a sparse backward pass; made by `adopt`."""

    def forward(self, x: Tensor) -> Tensor:
        """h (B, F, T', T'') of x (B, C, H, W)."""
        return convolve(self, x)


def convolve(layer: SparseConv1d | SparseConv2d, x: Tensor) -> Tensor:
    """The layer's output h (B, F, ...), with a sparse backward pass."""
    if x.dim() == len(layer.kernel_size) + 1:
        return convolve(layer, x[None])[0]
    if not layer.enabled:
        return layer._conv_forward(x, layer.weight, layer.bias)
    if layer.bias is None or not layer.dense_bias:
        return Sparsify.apply(layer._conv_forward(x, layer.weight, layer.bias), layer)
    bias = layer.bias.view(-1, *[1] * len(layer.kernel_size))
    return Sparsify.apply(layer._conv_forward(x, layer.weight, None), layer) + bias
