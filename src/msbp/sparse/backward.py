"""backward: loss.backward() without the autograd engine, where a loss comes straight from a chain."""

from typing import Any

import torch
from torch import Tensor, nn

from .linear.autograd import pull_by_kernel
from .linear.loss import CROSS_ENTROPY, PASS
from .torch_compat import eager

distributed = torch.distributed.is_initialized if torch.distributed.is_available() else bool


@eager
def backward(loss: Tensor) -> None:
    """Accumulate the gradients of a loss in its parameters' `.grad`, as `loss.backward()`.

    Where the loss is a `cross_entropy` of logits that come straight from a converted chain, the chain's
    backward pass is called directly, which saves the 0.1 ms that the autograd engine takes. Where anything
    else takes part, as another loss term, a gradient hook, anomaly detection, a loss that was changed or
    distributed training, this is `loss.backward()`. The graph is freed in both cases. torch does not say
    whether a parameter's gradient accumulator node has hooks: a loop that sets any calls `loss.backward()`.
    """
    node: Any = loss.grad_fn
    if type(node) is not CROSS_ENTROPY or not _direct(loss, node):
        loss.backward()
        return
    (token,), chain = node.saved_tensors, node.next_functions[0][0]
    _, gradients = pull_by_kernel(chain, token.grad_logits, chain.needs_input_grad[3:], False, free=True)
    token.grad_logits = token.logits = None
    for p, gradient in zip(chain.parameters, gradients, strict=True):
        if gradient is not None:
            if p.grad is None:
                p.grad = gradient
            else:
                p.grad.add_(gradient)


def _direct(loss: Tensor, node: Any) -> bool:
    """Return whether calling the chain directly has all effects of loss.backward()."""
    chain, logits = node.next_functions[0][0], node.saved_tensors[0].logits
    if type(chain) is not PASS or logits is None or not chain.uses_kernel or chain.needs_input_grad[2]:
        return False
    for tensor in (loss, logits):
        if tensor._version or tensor._backward_hooks or tensor.retains_grad:
            return False
    if torch.is_anomaly_enabled() or distributed():
        return False  # DistributedDataParallel and its like hook on gradient accumulators
    for p in chain.parameters:
        if p is not None and (
            type(p) is not nn.Parameter or p._backward_hooks or p._post_accumulate_grad_hooks or not p.is_leaf
        ):
            return False
    return True
