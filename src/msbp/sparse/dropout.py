"""Dropout masks from a counter: a hash of (position, key), so that all paths draw the same mask.

The key is one draw from torch's generator per forward, so torch.manual_seed, or a checkpoint of the
generator, fixes the masks.
"""

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, fx, nn

from .buffers import empty, kernels_allowed, plain, supports
from .kernels import parallel
from .kernels.chain_forward import drop
from .kernels.simd import KEY_STEP, ROUNDS
from .torch_compat import Context, Converted, dispatch_modes, eager_forward, is_batched, transforming

WORD = 0xFFFFFFFF


def draw_key() -> int:
    """Return one draw from torch's generator."""
    return int(empty(1, dtype=torch.int64).random_(0, 2**31))


def key_at(key: int, depth: int) -> int:
    """Return the key of one stage of a chain."""
    return (key + KEY_STEP * depth) & WORD


def threshold(p: float) -> int:
    """Return the hash below which a position is dropped."""
    return int(p * 2**32 + 0.5)


def keep_mask(shape: Sequence[int], p: float, key: int, device: torch.device | str = "cpu") -> Tensor:
    """Return a mask of this shape, True where dropout keeps the entry."""
    word = torch.arange(math.prod(shape), device=device) ^ key
    for shift, factor in ROUNDS:
        word = ((word ^ (word >> shift)) * factor) & WORD
    return (word >= threshold(p)).view(shape)


def keep_scale(p: float) -> float:
    """Return the factor of kept entries, which keeps the expectation."""
    return 1 / (1 - p) if p < 1 else 0.0


def probability(dropout: nn.Dropout) -> float:
    """Return the probability at present; ValueError, as torch's, unless it is one."""
    p = float(dropout.p) if dropout.training else 0.0
    if 0 <= p <= 1:
        return p
    raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


class DropoutFused(Converted, nn.Dropout):
    """nn.Dropout with one pass over x, which draws the mask as it goes; the backward pass draws it again.

    torch's own takes several times as long, most of it for random numbers, and saves the mask. `adopt`
    converts in place. Inputs of other types and layouts, and tracers, get torch's own. Programs that look for
    dropout by its name expect that this begins with Dropout.
    """

    plain = nn.Dropout

    @classmethod
    def adopt(cls, module: nn.Module) -> None:
        """Convert a dropout in place."""
        module.__class__ = cls

    def forward(self, input: Tensor) -> Tensor:
        """Return the input (...) with entries dropped with probability p and the others scaled."""
        if torch.compiler.is_compiling():  # which fuses torch's own with what is around it
            return super().forward(input)
        return self._drop(input)

    @eager_forward
    def _drop(self, input: Tensor) -> Tensor:
        p = probability(self)
        # by what the input is alone: a pass that checkpointing repeats has to draw the same mask
        if not p or self.inplace or dispatch_modes() or not readable(input):
            return super().forward(input)
        return dropout(input, p)

    def _instead(self, x: Any, *others: Any, **named: Any) -> Any:
        if isinstance(x, fx.Proxy):
            return super()._instead(x)
        return super().forward(x)  # torch.func can differentiate it


def readable(x: Tensor) -> bool:
    """Return whether the kernel could read x as it is."""
    return supports(x) and not x._is_zerotensor()


def dropout(x: Tensor, p: float) -> Tensor:
    """Return x (...) with entries dropped with probability p and the others scaled, under a new key."""
    return Masked.apply(x, p, draw_key())


class MaskedContext(Context, Protocol):
    p: float
    key: int


class Masked(torch.autograd.Function):
    """Dropout as an autograd function, whose backward pass draws the mask again rather than save it."""

    @staticmethod
    def forward(ctx: MaskedContext, x: Tensor, p: float, key: int) -> Tensor:
        ctx.p, ctx.key = p, key
        return masked(x, p, key)

    @staticmethod
    def backward(ctx: MaskedContext, grad: Tensor) -> tuple[Tensor, None, None]:
        if torch.is_grad_enabled() and transforming() is None:
            return Masked.apply(grad, ctx.p, ctx.key), None, None
        return masked(grad, ctx.p, ctx.key), None, None

    @staticmethod
    def jvp(ctx: MaskedContext, tangent: Tensor, *_: None) -> Tensor:
        return masked(tangent, ctx.p, ctx.key)


def masked(x: Tensor, p: float, key: int) -> Tensor:
    """Return x (...) times mask and scale, by kernel where it supports x."""
    if transforming() is None and kernels_allowed() and not is_batched(x):
        x = plain(x)
        if readable(x):
            out = torch.empty_like(x)
            drop(x.data_ptr(), out.data_ptr(), x.numel(), p, key, parallel.threads())
            return out
    return x * (keep_mask(x.shape, p, key, x.device).to(x.dtype) * keep_scale(p))
