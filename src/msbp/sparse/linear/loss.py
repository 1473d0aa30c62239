"""cross_entropy: torch's, with its gradient in one pass over the logits; backward: loss.backward(), past the
autograd engine where a cross_entropy comes straight from a chain.

Letters: B batch, C classes.
"""

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from ..buffers import address_of, empty
from ..kernels import parallel
from ..kernels.chain_forward import cross_entropy as kernel
from ..layers import with_reasons
from ..torch_compat import Context, eager, node_class
from .autograd import Pass, backward_by_kernel

PASS = node_class(Pass)
distributed = torch.distributed.is_initialized if torch.distributed.is_available() else bool


class NotAClass(Exception):
    """Raised for a target that is no class: torch ignores -100 and refuses others."""


@eager
def cross_entropy(logits: Tensor, target: Tensor, allowed: Tensor | None = None, **choices: Any) -> Tensor:
    """Return the mean cross entropy of logits (B, C) and class indices (B), as torch's own.

    allowed (B, C) bool: classes outside it have no share in the softmax. choices: weight, ignore_index,
    reduction and label_smoothing, with which it is torch's function. If the logits come straight from a
    converted chain, one kernel computes the loss and its gradient, and `msbp.sparse.backward` can use that.
    """
    node: Any = logits.grad_fn
    if type(node) is PASS and node.uses_kernel and not choices and not logits.is_neg():
        target, mask = target.contiguous(), None if allowed is None else allowed.contiguous()
        inputs = _addresses(logits, target, mask)
        if inputs:
            with suppress(NotAClass):
                return CrossEntropy.apply(logits, target, mask, inputs)
    return nn.functional.cross_entropy(
        logits if allowed is None else logits.masked_fill(~allowed, -torch.inf), target, **choices
    )


def _addresses(logits: Tensor, target: Tensor, allowed: Tensor | None) -> tuple[int, ...]:
    """Return the addresses of the arguments, 0 for none, then B and C; nothing if no kernel can read one."""
    shape = logits.shape
    if len(shape) != 2:
        return ()
    given = address_of(logits, shape), address_of(target, shape[:1], torch.int64)
    mask = 0 if allowed is None else address_of(allowed, shape, torch.bool)
    return (*given, mask, *shape) if all(given) and (mask or allowed is None) else ()


class CrossEntropy(torch.autograd.Function):
    """The loss as an autograd function.

    Its first saved tensor is an empty one that holds the gradient and the logits, so that torch frees them
    together.
    """

    @staticmethod
    def forward(
        ctx: Context, logits: Tensor, target: Tensor, allowed: Tensor | None, inputs: tuple[int, ...]
    ) -> Tensor:
        *given, B, C = inputs
        token, grad, loss = empty(0), empty(B, C), logits.new_empty(())
        if not kernel(*given, grad.data_ptr(), loss.data_ptr(), B, C, parallel.threads()):
            raise NotAClass
        token.grad_logits, token.logits = grad, logits  # type: ignore[attr-defined]
        ctx.save_for_backward(token)
        return loss

    @staticmethod
    @eager
    def backward(ctx: Context, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("this cross entropy has no second derivative: leave out create_graph=True")
        (token,) = ctx.saved_tensors
        if token.grad_logits is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time: msbp.sparse.backward has freed it; use "
                "loss.backward(retain_graph=True)"
            )
        return token.grad_logits * grads[0], None, None, None


CROSS_ENTROPY = node_class(CrossEntropy)


@eager
@with_reasons
def backward(loss: Tensor) -> None:
    """Accumulate the gradients of a loss in its parameters' `.grad`, as `loss.backward()`.

    Where the loss is a `cross_entropy` of logits that come straight from a converted chain, the chain's
    backward pass is called directly, which saves the 0.1 ms that the autograd engine takes. Where anything
    else takes part, as another loss term, a gradient hook, anomaly detection, a loss that was changed or
    distributed training, this is `loss.backward()`. The graph is freed in both cases. torch does not say
    whether a parameter's gradient accumulator node has hooks: a loop that sets any calls `loss.backward()`.
    """
    node: Any = loss.grad_fn
    token: Any = node.saved_tensors[0] if type(node) is CROSS_ENTROPY else None
    logits = None if token is None else token.logits
    if logits is None or not _direct(loss, logits):
        loss.backward()
        return
    chain: Any = logits.grad_fn
    _, gradients = backward_by_kernel(chain, token.grad_logits, chain.needs_input_grad[3:], False, free=True)
    token.grad_logits = token.logits = None
    for p, gradient in zip(chain.parameters, gradients, strict=True):
        if gradient is not None and p.requires_grad:  # not frozen since the forward pass
            if p.grad is None:
                p.grad = gradient
            else:
                p.grad.add_(gradient)


def _direct(loss: Tensor, logits: Tensor) -> bool:
    """Return whether calling the chain behind the logits directly has all effects of loss.backward()."""
    chain: Any = logits.grad_fn
    node: Any = loss.grad_fn
    if type(chain) is not PASS or not chain.uses_kernel or chain.needs_input_grad[2]:
        return False
    for tensor in (loss, logits):
        if tensor._version or tensor._backward_hooks or tensor.retains_grad:
            return False
    if chain.hooked or node.hooked or torch.is_anomaly_enabled() or distributed():
        return False  # DistributedDataParallel and its like hook on gradient accumulators
    for p in chain.parameters:
        if p is None:
            continue
        if type(p) is not nn.Parameter or p._backward_hooks or p._post_accumulate_grad_hooks or not p.is_leaf:
            return False
        if p.grad is not None and (p.grad.layout is not torch.strided or p.grad.requires_grad):
            return False
    return True
