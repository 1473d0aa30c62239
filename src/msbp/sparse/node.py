"""A run of stages as one autograd node: by kernel where they fit, in plain torch on any device and dtype.

Letters: B batch, i in_features, n out_features.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from .blas import SGEMM
from .factored import FactoredParameter, Factors, leave
from .plain import Saved, pull, push
from .stage import Stage
from .workspace import Gradient, Workspace

_kernels_allowed = ContextVar("kernels_allowed", default=bool(SGEMM))
PARAMETERS = (nn.Parameter, FactoredParameter)


@contextmanager
def plain_torch() -> Iterator[None]:
    """Within it nothing runs by kernel, so the two ways can be compared."""
    token = _kernels_allowed.set(False)
    try:
        yield
    finally:
        _kernels_allowed.reset(token)


def suits(tensor: Tensor) -> bool:
    """Whether a kernel may read it: float32 on the CPU, rows contiguous."""
    ordinary = (
        (type(tensor) is Tensor or type(tensor) in PARAMETERS)
        and tensor.dtype is torch.float32
        and tensor.is_cpu
    )
    return ordinary and tensor.is_contiguous() and not tensor.is_neg()


def by_kernel(*tensors: Tensor) -> bool:
    """Whether kernels may be used, and can read all of these."""
    return _kernels_allowed.get() and all(suits(tensor) for tensor in tensors)


class Lease:
    """The right to a workspace; when the last holder lets go, it returns to its pool."""

    __slots__ = ("pool", "workspace")

    def __init__(self, pool: list[Workspace], workspace: Workspace):
        self.pool, self.workspace = pool, workspace
        workspace.fresh = True

    def __del__(self) -> None:
        self.pool.append(self.workspace)


class Run:
    """Stages that follow one another, and the workspaces that their passes take turns in."""

    def __init__(self, stages: tuple[Stage, ...]):
        self.stages = stages
        self.inputs, self.outputs = stages[0].linear.in_features, stages[-1].linear.out_features
        self.owners = [stage.linear._parameters for stage in stages]
        self.addresses: list[int] = []
        self.pools: dict[tuple[int, ...], list[Workspace]] = {}

    def parameters(self) -> list[Tensor | None]:
        """A weight and a bias, or None, for each stage."""
        try:
            return [p for own in self.owners for p in (own["weight"], own["bias"])]
        except KeyError:  # pruned and parametrised ones are no parameters of their layer
            return [p for stage in self.stages for p in (stage.linear.weight, stage.linear.bias)]

    def __call__(self, x: Tensor) -> Tensor:
        """The stages applied to x (..., i)."""
        *batch, width = x.shape
        if width != self.inputs:
            raise ValueError(
                f"{self.stages[0].linear} got an input of shape {tuple(x.shape)}, not (..., {self.inputs})"
            )
        device = x.device.type
        if torch.is_autocast_enabled(device):
            # selection and memory need the parameters' precision, so the stages step out of autocast
            with torch.autocast(device, enabled=False):
                return self(x.to(self.stages[0].linear.weight.dtype))
        if len(batch) != 1:
            return self(x.reshape(-1, width)).view(*batch, self.outputs)
        if torch.is_grad_enabled():
            return Pass.apply(self, x, *self.parameters())
        return push(self.stages, x, self.parameters())[0]

    def lease(self, x: Tensor, parameters: tuple[Tensor | None, ...]) -> Lease | None:
        """A workspace for a batch, or None if the batch has to go through plain torch."""
        B = x.shape[0]
        if not (B and _kernels_allowed.get() and suits(x)) or saving_is_hooked():
            return None
        addresses = addresses_of(parameters)
        if addresses != self.addresses:
            if not all(p is None or suits(p) for p in parameters):
                return None
            self.addresses, self.pools = addresses, {}
        pool = self.pools.setdefault(tuple([stage.k for stage in self.stages]), [])
        workspace = pool.pop() if pool else None
        if workspace is None or workspace.capacity < B:
            workspace = Workspace(self.stages, addresses, B)
        return Lease(pool, workspace)


def saving_is_hooked() -> bool:
    """Whether somebody, such as checkpointing, stands between the tensors that are saved and those that come back."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def addresses_of(parameters: Sequence[Tensor | None]) -> list[int]:
    return [0 if p is None else p.data_ptr() for p in parameters]


class Pass(torch.autograd.Function):
    """The node. Its first saved tensor, a view of x, holds the lease: torch's own rules say how long it lasts."""

    @staticmethod
    def forward(ctx: Any, run: Run, x: Tensor, *parameters: Tensor | None) -> Tensor:
        x = x.contiguous()
        lease = run.lease(x, parameters)
        ctx.run, ctx.parameters, ctx.by_kernel = run, parameters, lease is not None
        ordinary = all([p is None or (type(p) in PARAMETERS and p.requires_grad) for p in parameters])
        ctx.has_shortcut = ctx.by_kernel and ordinary and not ctx.needs_input_grad[1]
        # weights that the backward pass reads are saved, so that torch reports one that was changed
        weights = parameters[0 if ctx.needs_input_grad[1] else 2 :: 2]
        if lease is None:
            out, saved = push(run.stages, x, parameters)
            ctx.save_for_backward(*(t for s in saved for t in s), *weights)
            return out
        token = x.detach()
        token.lease = lease  # type: ignore[attr-defined]
        out = lease.workspace.forward(x)
        ctx.save_for_backward(token, out if lease.workspace.reads_out else None, *weights)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the sparse backward pass has no second derivative: leave out create_graph=True"
            )
        tensors, grad, stages = ctx.saved_tensors, grads[0].contiguous(), ctx.run.stages
        if not ctx.by_kernel:
            saved = [Saved(*tensors[at : at + 3]) for at in range(0, 3 * len(stages), 3)]
            with torch.autocast(grad.device.type, enabled=False):
                grad_x, gradients = pull(stages, saved, ctx.parameters[::2], grad)
            return (
                None,
                grad_x,
                *(None if p is None else g for p, g in zip(ctx.parameters, gradients, strict=True)),
            )
        token, out, *_ = tensors
        lease = lease_of(token, ctx)
        needs_x, *needs = ctx.needs_input_grad[1:]
        grad_x, found = lease.workspace.backward(grad, token, out, lease, needs, needs_x)
        accumulators = iter([node for node, _ in ctx.next_functions[1:]])
        return (
            None,
            grad_x,
            *(
                None if p is None else hand_over(p, gradient, next(accumulators))
                for p, gradient in zip(ctx.parameters, found, strict=True)
            ),
        )


def lease_of(token: Tensor, node: Any) -> Lease:
    """The lease that a node's token holds; RuntimeError if it was given back, or if a weight lies elsewhere now."""
    lease = getattr(token, "lease", None)
    if lease is None:
        raise RuntimeError(
            "Trying to backward through the graph a second time: pass retain_graph=True to the first backward()"
        )
    if addresses_of(node.parameters[::2]) != lease.workspace.weights:
        raise RuntimeError("a weight was moved between the forward and the backward pass; run both again")
    return lease


def takes_factors(p: Tensor) -> bool:
    """Whether a gradient may wait on the parameter as factors; hooks want a tensor."""
    return type(p) in PARAMETERS and not hooked(p)


def hooked(p: Tensor) -> bool:
    return bool(p._backward_hooks or p._post_accumulate_grad_hooks)  # type: ignore[attr-defined]


def hand_over(p: Tensor, gradient: Gradient, accumulator: Any) -> Tensor | None:
    """What the engine gets for a parameter: nothing if factors are left on it and the engine would accumulate."""
    if not isinstance(gradient, Factors):
        return gradient
    try:
        accumulates = torch._C._will_engine_execute_node(accumulator)
    except RuntimeError:  # torch.autograd.grad asks for this gradient
        accumulates = False
    if accumulates and takes_factors(p):
        leave(p, gradient)
        return None
    return gradient.add_to(torch.zeros_like(p, requires_grad=False))


def shortcut(node: Any, grad: Tensor) -> bool:
    """Do what a plain backward() that starts at this node would do, without the engine; False if that needs the engine."""
    if not node.has_shortcut or torch.is_anomaly_enabled():
        return False
    for p in node.parameters:
        if p is not None and (p._backward_hooks or p._post_accumulate_grad_hooks):
            return False
    token, out, *_ = node.saved_tensors
    lease = lease_of(token, node)
    _, gradients = lease.workspace.backward(grad, token, out, lease)
    del token.lease
    for p, gradient in zip(node.parameters, gradients, strict=True):
        if type(gradient) is Factors:
            leave(p, gradient)
        elif gradient is not None:
            p.grad = gradient if p.grad is None else p.grad.add_(gradient)
    return True
