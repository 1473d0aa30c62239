"""The autograd node of a chain of stages: by kernel where supported, else in plain torch.

Letters: B batch, i in_features, n out_features, F tokens an example. Parameters are a weight and a bias, or
None, per stage, and the table of an embedding, if there is one.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from ..buffers import STRIDED, Layouts, address, address_of, empty, kernels_allowed, plain, supports
from ..layers import with_reasons
from ..torch_compat import Context, autocast_anywhere, eager
from .stage import SavedStage, Stage, backward_stages, forward_stages, lowest
from .workspace import Table, Workspace

Parameters = list[Tensor | None]
SECOND_TIME = (
    "Trying to backward through the graph a second time: the first backward() needs retain_graph=True, and "
    "msbp.sparse.backward frees the graph"
)


class StageRun:
    """Consecutive stages as one autograd node; with an embedding, the input is looked up in it."""

    def __init__(self, stages: tuple[Stage, ...], embedding: nn.Embedding | None = None):
        self.stages, self.embedding = stages, embedding
        self.owners: list[tuple[nn.Module, str]] = [
            (stage.linear, name) for stage in stages for name in ("weight", "bias")
        ]
        if embedding is not None:
            self.owners.append((embedding, "weight"))
        self.pools: dict[tuple[object, ...], list[Workspace]] = {}
        self.checked: Checked | None = None

    def __deepcopy__(self, memo: object) -> None:
        """Return None: a copied layer, whose class may be torch's for parametrized ones, builds its own."""

    def parameters(self) -> Parameters:
        """Return a weight and a bias, or None, per stage; then the embedding's table, if there is one."""
        try:
            return [layer._parameters[name] for layer, name in self.owners]
        except KeyError:  # pruned and parametrized ones are no parameters of their layer
            return [getattr(layer, name) for layer, name in self.owners]

    def __call__(self, x: Tensor) -> Tensor:
        """Return the output (..., n) of the stages for x (..., i)."""
        if x.layout is not STRIDED or x.is_nested:
            return self.by_torch(x)
        *batch, width = x.shape
        parameters = self.parameters()
        first, last = parameters[0], parameters[2 * len(self.stages) - 2]
        assert first is not None and last is not None
        if width != first.shape[-1]:
            raise ValueError(
                f"{self.stages[0].linear} got an input of shape {tuple(x.shape)}, "
                f"not (..., {first.shape[-1]})"
            )
        if autocast_anywhere() and torch.is_autocast_enabled(x.device.type):
            # selection and memory need the parameters' precision, so the stages step out of autocast
            with torch.autocast(x.device.type, enabled=False):
                return self(x.to(first.dtype))
        if torch.is_grad_enabled():
            x = plain(x)
            kernel_pass = self.prepare(x, parameters) if supports(x) else None
            if kernel_pass is not None or len(batch) == 1:
                return Pass.apply(self, kernel_pass, x, *parameters)
        if len(batch) != 1:
            return self(x.reshape(-1, width)).view(*batch, len(last))
        return forward_stages(self.stages, x, parameters)[0]

    def by_torch(self, x: Tensor) -> Tensor:
        """Return the output for a sparse or nested x as torch computes it, with its own backward pass."""
        parameters = self.parameters()
        for depth, stage in enumerate(self.stages):
            h = nn.functional.linear(x, *parameters[2 * depth : 2 * depth + 2])  # type: ignore[arg-type]
            x = nn.functional.dropout(stage.activation.apply(h), stage.p, training=stage.p > 0)
        return x

    def look_up(self, tokens: Tensor) -> Tensor | None:
        """Return the output of the stages for rows of the tokens (B, F), or None without kernel support."""
        if not torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
            return None
        if tokens.dim() != 2 or tokens.dtype not in (torch.int32, torch.int64) or not tokens.is_cpu:
            return None
        tokens, parameters = tokens.long().contiguous(), self.parameters()
        if not supports(tokens, torch.int64):
            return None
        kernel_pass = self.prepare(tokens, parameters)
        return None if kernel_pass is None else Pass.apply(self, kernel_pass, tokens, *parameters)

    def prepare(self, x: Tensor, parameters: Parameters) -> "KernelPass | None":
        """Return a workspace and checked addresses, or None if a batch has to use plain torch."""
        width = x.shape[-1]
        B = x.numel() // width if width else 0
        if not B or not kernels_allowed():
            return None
        table: Table | None = None
        if self.embedding is not None:
            rows = parameters[-1]
            if rows is None or rows.dim() != 2:
                return None
            table = (*rows.shape, self.embedding.padding_idx)
            width *= rows.shape[1]
        checked = self.checked
        addresses = checked and checked.parameters.addresses(parameters)
        if checked is None or addresses is None or width != checked.sizes[0][1]:
            checked, addresses = self.check(parameters, width)
            if checked is None:
                return None
            self.checked = checked
        choices = [stage.for_kernel() for stage in self.stages]
        if None in choices:
            return None
        settings = (table, checked.sizes, *choices)
        if len(self.pools) > MOST_POOLS:
            self.pools.clear()
        pool = self.pools.setdefault(settings, [])
        workspace = pool.pop() if pool else None
        if workspace is None or workspace.capacity < B:
            workspace = Workspace(self.stages, checked.sizes, B, table)
        return KernelPass(pool, workspace, x, B, addresses, checked.weights)

    def check(self, parameters: Parameters, width: int) -> "tuple[Checked | None, list[int]]":
        """Return sizes and layouts of the parameters for an input of this width, and the address of each.

        The address of a bias that is not there is 0. None if no kernel can read a parameter.
        """
        sizes: list[tuple[int, int]] = []
        addresses: list[int] = []
        for depth in range(len(self.stages)):
            weight, bias = parameters[2 * depth : 2 * depth + 2]
            if weight is None or weight.dim() != 2:
                return None, addresses
            size = weight.shape[0], width
            width = size[0]
            pointer, of_bias = address_of(weight, size), 0 if bias is None else address_of(bias, (width,))
            if not pointer or (bias is not None and not of_bias):
                return None, addresses
            sizes.append(size)
            addresses += pointer, of_bias
        if self.embedding is not None:
            table = parameters[-1]
            pointer = 0 if table is None else address_of(table, table.shape)
            if not pointer:
                return None, addresses
            addresses.append(pointer)
        return Checked(tuple(sizes), Layouts(parameters), Layouts(parameters[::2])), addresses


class Checked(NamedTuple):
    """Sizes (n, i) of each stage, and layouts of all parameters, as a kernel can read them."""

    sizes: tuple[tuple[int, int], ...]
    parameters: Layouts
    weights: Layouts  # of every second one


MOST_POOLS = 8  # of settings of a chain; a schedule of k has many


class KernelPass:
    """A pass between forward and backward: its workspace and input, freed when torch frees the graph."""

    __slots__ = ("B", "addresses", "layouts", "pool", "version", "workspace", "x", "x_address")

    def __init__(
        self,
        pool: list[Workspace],
        workspace: Workspace,
        x: Tensor,
        B: int,
        addresses: list[int],
        layouts: Layouts,
    ):
        self.pool, self.workspace, self.x, self.B = pool, workspace, x, B
        self.addresses, self.layouts = addresses, layouts
        self.version, self.x_address = x._version, x.data_ptr()

    def __del__(self) -> None:
        self.pool.append(self.workspace)

    def forward(self) -> Tensor:
        """Return the output (..., n)."""
        return self.workspace.forward(self.x, self.B, self.addresses)

    def backward(
        self, grad: Tensor, out: Tensor | None, weights: list[Tensor], needs: tuple[bool, ...], needs_x: bool
    ) -> tuple[Tensor | None, list[Tensor | None]]:
        """Return ∂ℓ/∂x and the parameters' gradients; RuntimeError if x or a weight has changed."""
        x, workspace = self.x, self.workspace
        if x._version != self.version or x.data_ptr() != self.x_address:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace "
                "operation: the input of a converted layer"
            )
        if self.layouts.addresses(weights) != self.addresses[::2]:
            self._check_each(weights)
        return workspace.backward(grad, x, self.B, out, weights, needs, needs_x)

    def _check_each(self, weights: list[Tensor]) -> None:
        """Raise RuntimeError if a weight is not as it was in the forward pass."""
        for w, shape, before in zip(weights, self.workspace.shapes, self.addresses[::2], strict=True):
            if address_of(w, shape) != before:
                address(w, shape, "a weight")
                raise RuntimeError(
                    "a weight was moved between the forward and the backward pass; run both again"
                )


class PassContext(Context, Protocol):
    run: StageRun
    parameters: tuple[Tensor | None, ...]
    uses_kernel: bool
    kept: list[int]  # k of each stage, in plain torch


class Pass(torch.autograd.Function):
    """Consecutive stages as an autograd function.

    By kernel, the first saved tensor is an empty one that holds the KernelPass, so that torch frees them
    together.
    """

    @staticmethod
    def forward(
        ctx: PassContext, run: StageRun, kernel_pass: KernelPass | None, x: Tensor, *parameters: Tensor | None
    ) -> Tensor:
        ctx.run, ctx.parameters, ctx.uses_kernel = run, parameters, kernel_pass is not None
        # weights are saved, so that torch reports one that was changed in place
        weights = parameters[::2]
        if kernel_pass is None:
            out, saved = forward_stages(run.stages, x, parameters)
            ctx.kept = [stage.k for stage in run.stages]
            ctx.save_for_backward(*(t for s in saved for t in s), *weights)
            return out
        token = empty(0)
        token.kernel_pass = kernel_pass  # type: ignore[attr-defined]
        out = kernel_pass.forward()
        ctx.save_for_backward(token, out if kernel_pass.workspace.reads_out else None, *weights)
        return out

    @staticmethod
    @eager
    @with_reasons
    def backward(ctx: PassContext, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the sparse backward pass has no second derivative: leave out create_graph=True"
            )
        grad, (needs_x, *needs) = plain(grads[0]), ctx.needs_input_grad[2:]
        grad_x: Tensor | None
        if not ctx.uses_kernel:
            count = len(ctx.run.stages)
            tensors = ctx.saved_tensors
            saved = [SavedStage(*tensors[at : at + 2]) for at in range(0, 2 * count, 2)]
            with torch.autocast(grad.device.type, enabled=False):
                weights, biases = tensors[2 * count :], ctx.parameters[1 : 2 * count : 2]
                low = 0 if needs_x else lowest(needs)
                used = slice(low, None)
                grad_x, formed = backward_stages(
                    ctx.run.stages[used], ctx.kept[used], saved[used], weights[used], grad, biases[used]
                )
            every = [None] * (2 * low) + formed
            needed = [g if need else None for g, need in zip(every, needs, strict=True)]
            return None, None, grad_x if needs_x else None, *needed
        grad_x, gradients = backward_by_kernel(ctx, grad, tuple(needs), needs_x)
        return None, None, grad_x, *gradients


def backward_by_kernel(
    node: Context, grad: Tensor, needs: tuple[bool, ...], needs_x: bool, free: bool = False
) -> tuple[Tensor | None, list[Tensor | None]]:
    """Return ∂ℓ/∂x and the parameters' gradients of a node; with `free` its buffers are given back.

    RuntimeError if they were before.
    """
    token, out, *weights = node.saved_tensors
    kernel_pass = token.kernel_pass
    if kernel_pass is None:
        raise RuntimeError(SECOND_TIME)
    gradients = kernel_pass.backward(grad, out, weights, needs, needs_x)
    if free:
        token.kernel_pass = None
    return gradients
