"""One autograd node for a run of stages (linear + activation + dropout), in plain torch.

Letters: B batch, i in_features, n out_features. Algorithms 1 and 2 of the paper, on any device and dtype.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .activations import IDENTITY, Activation
from .dropout import draw_key, keep_mask, keep_scale, key_at


class Stage(NamedTuple):
    """A linear layer with the activation and the dropout that follow it."""

    linear: nn.Linear
    sparse: bool = False
    activation: Activation = IDENTITY
    dropout: nn.Dropout | None = None

    @property
    def p(self) -> float:
        return self.dropout.p if self.dropout is not None and self.dropout.training else 0.0

    def parameters(self) -> list[nn.Parameter]:
        linear = self.linear
        return [linear.weight] if linear.bias is None else [linear.weight, linear.bias]


class Saved(NamedTuple):
    """What the backward pass needs: input x (B, i), pre-activation h (B, n), keep (B, n) = mask times scale."""

    x: Tensor
    h: Tensor
    keep: Tensor | None


def push(stages: tuple[Stage, ...], x: Tensor) -> tuple[Tensor, list[Saved]]:
    """Forward: the output of the last stage and what each stage saves."""
    key = draw_key() if any(stage.p for stage in stages) else 0
    saved = []
    for depth, stage in enumerate(stages):
        h = nn.functional.linear(x, stage.linear.weight, stage.linear.bias)
        z, keep = stage.activation.apply(h), None
        if stage.p:
            keep = keep_mask(h.shape, stage.p, key_at(key, depth), h.device).to(h.dtype) * keep_scale(stage.p)
            z = z * keep
        saved.append(Saved(x, h, keep))
        x = z
    return x, saved


def pull(stages: tuple[Stage, ...], saved: list[Saved], grad: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Backward: ∂ℓ/∂x and the gradients of all parameters in the order of `parameters`.

    Memories are stored last, so that an error in any stage leaves all of them as they were.
    """
    gradients: list[Tensor] = []
    memories = []
    for stage, (x, h, keep) in zip(reversed(stages), reversed(saved), strict=True):
        linear = stage.linear
        grad_h = stage.activation.grad(grad if keep is None else grad * keep, h)
        g = grad_h
        if stage.sparse and linear.enabled:
            g, m = linear.estimate(grad_h)
            memories.append((linear, m))
        bias = [] if linear.bias is None else [(grad_h if stage.sparse and linear.dense_bias else g).sum(0)]
        grad, grad_weight = g @ linear.weight, g.T @ x  # ∂ℓ/∂x, ∂ℓ/∂W
        gradients = [grad_weight, *bias, *gradients]
    for linear, m in memories:
        linear.finish(m)
    return grad, gradients


def run(stages: tuple[Stage, ...], x: Tensor) -> Tensor:
    """The stages applied to x (..., i) as one autograd node."""
    first = stages[0].linear
    if x.shape[-1] != first.in_features:
        raise ValueError(f"{first} got an input of shape {tuple(x.shape)}, not (..., {first.in_features})")
    device = x.device.type
    if torch.is_autocast_enabled(device):
        # the selection and the memory need the parameters' precision, so the stages step out of autocast
        with torch.autocast(device, enabled=False):
            return run(stages, x.to(first.weight.dtype))
    rows = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    if torch.is_grad_enabled():
        out = Pass.apply(stages, rows, *(p for stage in stages for p in stage.parameters()))
    else:
        out, _ = push(stages, rows)
    return out if x.dim() == 2 else out.view(*x.shape[:-1], out.shape[-1])


class Pass(torch.autograd.Function):
    """The node: forward saves, backward pulls once per call of the engine."""

    @staticmethod
    def forward(ctx: Any, stages: tuple[Stage, ...], x: Tensor, *parameters: Tensor) -> Tensor:
        out, saved = push(stages, x)
        ctx.stages = stages
        # the weights too, so that torch reports one that was changed in place before the backward pass
        ctx.save_for_backward(*(stage.linear.weight for stage in stages), *(t for s in saved for t in s))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the sparse backward pass has no second derivative: leave out create_graph=True"
            )
        tensors = ctx.saved_tensors[len(ctx.stages) :]
        saved = [Saved(*tensors[at : at + 3]) for at in range(0, len(tensors), 3)]
        with torch.autocast(grads[0].device.type, enabled=False):
            grad_x, gradients = pull(ctx.stages, saved, grads[0].contiguous())
        return None, grad_x, *gradients
