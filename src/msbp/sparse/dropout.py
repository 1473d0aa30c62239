"""Dropout masks from a counter: a hash of (position, key), so that all paths draw the same mask.

The key is one draw from torch's generator per forward, so torch.manual_seed, or a checkpoint of the
generator, fixes the masks.
"""

from typing import Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .buffers import empty, uses_kernel
from .kernels import parallel
from .kernels.chain_forward import drop
from .torch_compat import Context

WORD = 0xFFFFFFFF
DEPTH_STEP = 0x9E3779B9  # 2**32 over the golden ratio: keys of neighbouring depths share no pattern
ROUNDS = ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1))  # lowbias32 (Wellons), as shifts and factors


def draw_key() -> int:
    """Return one draw from torch's generator."""
    return int(empty(1, dtype=torch.int64).random_(0, 2**31))


def key_at(key: int, depth: int) -> int:
    """Return the key of one stage of a chain."""
    return (key + DEPTH_STEP * depth) & WORD


def threshold(p: float) -> int:
    """Return the hash below which a position is dropped."""
    return int(p * 2**32 + 0.5)


def keep_mask(shape: tuple[int, int], p: float, key: int, device: torch.device | str = "cpu") -> Tensor:
    """Return a mask (B, n), True where dropout keeps the entry."""
    word = torch.arange(shape[0] * shape[1], device=device) ^ key
    for shift, factor in ROUNDS:
        word = ((word ^ (word >> shift)) * factor) & WORD
    return (word >= threshold(p)).view(shape)


def keep_scale(p: float) -> float:
    """Return the factor of kept entries, which keeps the expectation."""
    return 1 / (1 - p) if p < 1 else 0.0


def dropout(x: Tensor, p: float) -> Tensor:
    """Return x (B, n) with entries dropped with probability p and the others scaled, under a new key."""
    return Dropout.apply(x, p, draw_key())


class DropoutContext(Context, Protocol):
    p: float
    key: int


class Dropout(torch.autograd.Function):
    """Dropout as an autograd function, whose backward pass draws the mask again rather than save it."""

    @staticmethod
    def forward(ctx: DropoutContext, x: Tensor, p: float, key: int) -> Tensor:
        ctx.p, ctx.key = p, key
        return masked(x, p, key)

    @staticmethod
    @once_differentiable
    def backward(ctx: DropoutContext, grad: Tensor) -> tuple[Tensor, None, None]:
        return masked(grad, ctx.p, ctx.key), None, None


def masked(x: Tensor, p: float, key: int) -> Tensor:
    """Return x (B, n) times mask and scale, by kernel where it supports x."""
    if not uses_kernel(x):
        return x * (keep_mask((x.shape[0], x.shape[1]), p, key, x.device).to(x.dtype) * keep_scale(p))
    out = torch.empty_like(x)
    drop(x.data_ptr(), out.data_ptr(), x.numel(), p, key, parallel.threads())
    return out
