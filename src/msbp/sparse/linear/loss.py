"""cross_entropy: the loss that knows chains, whose plain backward() goes round the autograd engine.

Letters: B batch, C classes.
"""

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from ..eager import eager
from ..kernels.loss import cross_entropy as kernel
from .node import Pass, shortcut

PASS = Pass._backward_cls


class NotAClass(Exception):
    """A target that the kernel leaves to torch, which ignores -100 and refuses others."""


@eager
def cross_entropy(logits: Tensor, target: Tensor, allowed: Tensor | None = None, **choices: Any) -> Tensor:
    """Mean cross entropy of logits (B, C) and class indices (B), as torch.nn.functional.cross_entropy.

    allowed (B, C) bool: classes outside it have no share in the softmax. If the logits come straight from
    a chain, a plain backward() costs less; everything else works as ever. choices: weight, ignore_index,
    reduction and label_smoothing, with which it is torch's function.
    """
    node: Any = logits.grad_fn
    if type(node) is PASS and node.by_kernel and not choices and _fits(logits, target, allowed):
        with suppress(NotAClass):
            loss = CrossEntropy.apply(logits, target, allowed)
            loss.__class__ = Loss  # a view as Loss would put another node into the graph
            loss.logits, loss.chain_node = logits, node
            return loss
    return nn.functional.cross_entropy(
        logits if allowed is None else logits.masked_fill(~allowed, -torch.inf), target, **choices
    )


def _fits(logits: Tensor, target: Tensor, allowed: Tensor | None) -> bool:
    """Whether target and allowed are what the kernel takes."""
    if allowed is not None and not (
        allowed.shape == logits.shape and allowed.dtype is torch.bool and allowed.is_cpu
    ):
        return False
    return target.dtype is torch.int64 and target.is_cpu and target.shape == logits.shape[:1]


class CrossEntropy(torch.autograd.Function):
    """The node of a loss; its gradient is known after the forward pass."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, allowed: Tensor | None) -> Tensor:
        grad, loss, target = torch.empty_like(logits), torch.empty(()), target.contiguous()
        mask = None if allowed is None else allowed.contiguous()
        addresses = [0 if t is None else t.data_ptr() for t in (logits, target, mask, grad, loss)]
        if not kernel(*addresses, *logits.shape):
            raise NotAClass
        ctx.save_for_backward(grad)
        return loss

    @staticmethod
    @eager
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("this cross entropy has no second derivative: leave out create_graph=True")
        (grad,) = ctx.saved_tensors
        return grad * grads[0], None, None


class Loss(Tensor):
    """A loss with an ordinary graph behind it; a plain backward() takes the short way through the chain."""

    __torch_function__: Any = torch._C._disabled_torch_function_impl
    grad_fn: Any

    logits: Tensor
    chain_node: Any  # that the logits come from

    @eager
    def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None) -> None:
        """As torch.Tensor.backward."""
        plain = gradient is None and not retain_graph and not create_graph and inputs is None
        if not (plain and self._alone() and shortcut(self.chain_node, self.grad_fn.saved_tensors[0])):
            super().backward(gradient, retain_graph, create_graph, inputs)

    def __format__(self, spec: str) -> str:
        return format(self.detach().item(), spec)

    def _alone(self) -> bool:
        """Whether nobody has changed the loss, or watches the gradients on the way."""
        logits = self.logits
        watched = self._backward_hooks or logits._backward_hooks or self.retains_grad or logits.retains_grad
        return not watched and self._version == 0
