"""The autograd node of a run of stages, and the short way round the engine.

Letters: B batch, i in_features, n out_features. Parameters are a weight and a bias, or None, per stage,
and the table of an embedding, if there is one.
"""

from typing import Any

import torch
from torch import Tensor

from ..eager import eager
from ..factored import Factors, leave
from ..suited import PARAMETERS
from .plain import SavedStage, pull, push
from .stage import Stage
from .workspace import Gradient, Workspace

ORDINARY = {*PARAMETERS, type(None)}


class Lease:
    """The right to a workspace; when the last holder lets go, it returns to its pool."""

    __slots__ = ("pool", "workspace")

    def __init__(self, pool: list[Workspace], workspace: Workspace):
        self.pool, self.workspace = pool, workspace

    def __del__(self) -> None:
        self.pool.append(self.workspace)


class Pass(torch.autograd.Function):
    """The node. With a lease it runs by kernel; the first saved tensor, a view of x, then holds the
    lease, so that torch's own rules say how long it lasts."""

    @staticmethod
    def forward(
        ctx: Any, stages: tuple[Stage, ...], lease: Lease | None, x: Tensor, *parameters: Tensor | None
    ) -> Tensor:
        ctx.stages, ctx.parameters, ctx.by_kernel, ctx.has_shortcut = (
            stages,
            parameters,
            lease is not None,
            False,
        )
        needs_x, needs = ctx.needs_input_grad[2], ctx.needs_input_grad[3:]
        # weights that the backward pass reads are saved, so that torch reports one that was changed
        weights = parameters[0 if needs_x else 2 :: 2]
        if lease is None:
            out, saved = push(stages, x, parameters)
            ctx.save_for_backward(*(t for s in saved for t in s), *weights)
            return out
        token = x.detach()
        token.lease = lease  # type: ignore[attr-defined]
        out = lease.workspace.forward(x, needs)
        ctx.save_for_backward(token, out if lease.workspace.reads_out else None, *weights)
        whole = needs == lease.workspace.trainable and not needs_x
        ctx.has_shortcut = whole and ORDINARY.issuperset(map(type, parameters))
        return out

    @staticmethod
    @eager
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the sparse backward pass has no second derivative: leave out create_graph=True"
            )
        tensors, grad, parameters = ctx.saved_tensors, grads[0].contiguous(), ctx.parameters
        if not ctx.by_kernel:
            saved = [SavedStage(*tensors[at : at + 3]) for at in range(0, 3 * len(ctx.stages), 3)]
            with torch.autocast(grad.device.type, enabled=False):
                dense_x, formed = pull(ctx.stages, saved, parameters[::2], grad)
            return (
                None,
                None,
                dense_x,
                *(None if p is None else g for p, g in zip(parameters, formed, strict=True)),
            )
        token, out, *_ = tensors
        lease = lease_of(token, parameters)
        grad_x, found = lease.workspace.backward(grad, token, out, lease, ctx.needs_input_grad[2])
        accumulators = iter([node for node, _ in ctx.next_functions[1:]])
        handed = [
            None if p is None else hand_over(p, gradient, next(accumulators))
            for p, gradient in zip(parameters, found, strict=True)
        ]
        return None, None, grad_x, *handed


def lease_of(token: Tensor, parameters: tuple[Tensor | None, ...]) -> Lease:
    """The lease that a token holds; RuntimeError if it was given back, or if a weight lies elsewhere now."""
    lease = getattr(token, "lease", None)
    if lease is None:
        raise RuntimeError(
            "Trying to backward through the graph a second time: the first backward() needs retain_graph=True"
        )
    if [None if p is None else p.data_ptr() for p in parameters[::2]] != lease.workspace.weights:
        raise RuntimeError("a weight was moved between the forward and the backward pass; run both again")
    return lease


def hand_over(p: Any, gradient: Gradient, accumulator: Any) -> Tensor | None:
    """What the engine gets for a parameter: nothing if factors are left on it in place of a gradient."""
    if not isinstance(gradient, Factors):
        return gradient
    try:
        accumulates = torch._C._will_engine_execute_node(accumulator)
    except RuntimeError:  # torch.autograd.grad asks for this gradient
        accumulates = False
    if accumulates and type(p) in PARAMETERS and not is_hooked(p):
        leave(p, gradient)
        return None
    return gradient.formed()


def is_hooked(p: Any) -> bool:
    """Whether somebody wants to see the parameter's gradient as a tensor."""
    return bool(p._backward_hooks or p._post_accumulate_grad_hooks)


def shortcut(node: Any, grad: Tensor) -> bool:
    """Do what a plain backward() from this node on would do, without the engine; False if it needs it."""
    parameters = node.parameters
    if not node.has_shortcut or torch.is_anomaly_enabled():
        return False
    for p in parameters:
        if p is not None and is_hooked(p):
            return False
    token, out, *_ = node.saved_tensors
    lease = lease_of(token, parameters)
    _, gradients = lease.workspace.backward(grad, token, out, lease)
    del token.lease
    for p, gradient in zip(parameters, gradients, strict=True):
        if type(gradient) is Factors:
            leave(p, gradient)
        elif gradient is not None:
            p.grad = gradient if p.grad is None else p.grad.add_(gradient)
    return True
