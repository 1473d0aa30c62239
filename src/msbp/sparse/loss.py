"""cross_entropy: the loss that knows chains, whose plain backward() goes round the autograd engine.

Letters: B batch, C classes.
"""

from typing import Any

import torch
from torch import Tensor, nn

from .kernels.loss import cross_entropy as kernel
from .node import Pass, shortcut, suits


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross entropy of logits (B, C) and class indices (B), as torch.nn.functional.cross_entropy.

    If the logits come straight from a chain, a plain backward() costs less; everything else works as ever.
    """
    node = logits.grad_fn
    if isinstance(node, Pass._backward_cls) and node.by_kernel and target.dtype is torch.int64 and target.dim() == 1:
        grad, loss = torch.empty_like(logits, requires_grad=False), torch.empty(())
        if len(target) == len(logits) and target.is_cpu and target.is_contiguous():
            sizes = logits.shape
            if kernel(logits.data_ptr(), target.data_ptr(), grad.data_ptr(), loss.data_ptr(), *sizes):
                return CrossEntropy.apply(logits, loss, grad).as_subclass(Loss).of(logits, grad)
    return nn.functional.cross_entropy(logits, target)


class CrossEntropy(torch.autograd.Function):
    """The node of a loss whose gradient is known already."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, loss: Tensor, grad: Tensor) -> Tensor:
        ctx.save_for_backward(grad)
        return loss.view(())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("this cross entropy has no second derivative: leave out create_graph=True")
        (grad,) = ctx.saved_tensors
        return grad * grads[0], None, None


class Loss(Tensor):
    """A loss with an ordinary graph behind it; a plain backward() of it alone takes the short way through the chain."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    def of(self, logits: Tensor, grad: Tensor) -> "Loss":
        self._logits, self._grad_of_logits = logits, grad
        return self

    def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None) -> None:
        """As torch.Tensor.backward."""
        plain = gradient is None and not retain_graph and not create_graph and inputs is None
        if not (plain and self._alone() and shortcut(self._logits.grad_fn, self._grad_of_logits)):
            super().backward(gradient, retain_graph, create_graph, inputs)

    def __format__(self, spec: str) -> str:
        return format(self.detach().item(), spec)

    def _alone(self) -> bool:
        """Whether nobody has changed the loss, or watches the gradients on the way."""
        logits = self._logits
        watched = self._backward_hooks or logits._backward_hooks or self.retains_grad or logits.retains_grad
        return not watched and self._version == 0 and logits._version == 0
