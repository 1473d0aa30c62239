"""One layer of an LSTM as an autograd node, in one or both directions.

Letters: N rows (the words of a batch, time step after time step), n rows of a time step, B sequences, D
directions, i input_size, H hidden_size. The 4H columns of the gates are input, forget, candidate and output
gate, as in nn.LSTM. The paper's h are the gates' pre-activations at one time step. g is propagated instead of
their gradient: to both weights, to the input, and through weight_hh to the time step before.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..buffers import empty, uses_kernel
from ..kernels import lstm_forward as kernels
from ..kernels import parallel
from ..layers import with_reasons
from ..torch_compat import Context, eager
from . import cell
from .gradients import FullGradient, NotFinite, Saved, Weights, addresses, rows_of, step_table


class Plan(NamedTuple):
    """Rows of each time step in order of time, parameters per direction, and each direction's propagation."""

    steps: list[slice]
    parameters: int
    gradients: Sequence[Callable[[Weights, Saved, Sequence[slice]], FullGradient]]

    def order(self, direction: int) -> list[slice]:
        """Return the time steps in the order of a direction: the second one runs backwards in time."""
        return self.steps[::-1] if direction else self.steps

    def weights(self, parameters: tuple[Tensor, ...]) -> list[Weights]:
        """Return the parameters by direction."""
        return [
            Weights(*parameters[at : at + self.parameters])
            for at in range(0, len(parameters), self.parameters)
        ]


def forward_direction(
    steps: list[slice], weights: Weights, x: Tensor, h: Tensor, c: Tensor, out: Tensor, from_zero: bool
) -> Saved:
    """Run one direction over x (N, i): fill out (N, H), advance the states h, c (B, H) to their last values.

    Sequences come longest first, so the n that have a time step are the first; one that has ended keeps its
    state.
    """
    size = len(x), h.shape[1]
    weights.check(x.shape[1], size[1], x.dtype)
    saved = Saved(x @ weights.ih.T, x.new_empty(size), x.new_empty(size), x.new_empty(size))
    if weights.bias_ih is None or weights.bias_hh is None:
        bias = x.new_zeros(4 * size[1])
    else:
        bias = weights.bias_ih + weights.bias_hh
    if uses_kernel(h, c, bias, weights.hh, *saved):
        advance_all(steps, weights.hh, bias, h, c, out, saved, from_zero)
        return saved
    for rows in steps:
        n = rows.stop - rows.start
        if not from_zero or rows is not steps[0]:
            saved.gates[rows].addmm_(h[:n], weights.hh.T)
        cell.advance(h[:n], c[:n], bias, *(t[rows] for t in saved))
        out[rows] = h[:n]
    return saved


def advance_all(
    steps: list[slice], hh: Tensor, bias: Tensor, h: Tensor, c: Tensor, out: Tensor, saved: Saved,
    from_zero: bool,
) -> None:  # fmt: skip
    """Run all time steps in one call of a kernel."""
    m, H = hh.shape
    panels, table = empty(-(-m // kernels.LANES), H, kernels.LANES), step_table(steps)
    kernels.pack_rows(hh.data_ptr(), panels.data_ptr(), m, H)
    kernels.forward(
        *addresses(saved.gates, bias, panels, h, c), *rows_of(out), *addresses(*saved[1:]),
        table.buffer_info()[0], len(steps), H, from_zero, parallel.threads(),
    )  # fmt: skip


class LayerContext(Context, Protocol):
    plan: Plan


class Layer(torch.autograd.Function):
    """A layer as an autograd function.

    From x (N, i), first states (D, B, H) or None for zeros, and parameters to out (N, D · H) and last states.
    """

    @staticmethod
    def forward(
        ctx: LayerContext, plan: Plan, x: Tensor, h0: Tensor | None, c0: Tensor | None, *parameters: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        x, directions, batch = x.contiguous(), plan.weights(parameters), plan.steps[0].stop
        hidden = directions[0].hh.shape[-1]
        h, c = (
            x.new_zeros(len(directions), batch, hidden) if state is None else own(state) for state in (h0, c0)
        )
        out = x.new_empty(len(x), len(directions) * hidden)
        tensors: list[Tensor] = []
        for d, (weights, part) in enumerate(zip(directions, out.split(hidden, 1), strict=True)):
            tensors += forward_direction(plan.order(d), weights, x, h[d], c[d], part, from_zero=h0 is None)
        ctx.plan = plan
        ctx.save_for_backward(x, *tensors, *parameters)
        return out, h, c

    @staticmethod
    @eager
    @with_reasons
    def backward(ctx: LayerContext, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the backward pass of an LSTM has no second derivative: leave out create_graph=True"
            )
        with torch.autocast(grads[0].device.type, enabled=False):
            return None, *pull_layer(ctx.plan, ctx.saved_tensors, ctx.needs_input_grad[1:], *grads)


def pull_layer(
    plan: Plan,
    tensors: tuple[Tensor, ...],
    needs: tuple[bool, ...],
    grad_out: Tensor,
    grad_h: Tensor,
    grad_c: Tensor,
) -> list[Tensor | None]:
    """Return the gradients of x, of the first states and of the parameters.

    Memories are stored last. A gradient that is not finite is propagated whole, as by torch, and leaves all
    memories unchanged.
    """
    try:
        return propagate(plan, tensors, needs, grad_out, grad_h, grad_c)
    except NotFinite:
        whole = plan._replace(
            gradients=[lambda weights, saved, _: FullGradient(weights, saved)] * len(grad_h)
        )
        return propagate(whole, tensors, needs, grad_out, grad_h, grad_c)


def propagate(
    plan: Plan,
    tensors: tuple[Tensor, ...],
    needs: tuple[bool, ...],
    grad_out: Tensor,
    grad_h: Tensor,
    grad_c: Tensor,
) -> list[Tensor | None]:
    """Return the gradients of x, of the first states and of the parameters; NotFinite if one is not."""
    x, *rest = tensors
    directions = grad_h.shape[0]
    saved, parameters = rest[: 4 * directions], rest[4 * directions :]
    if grad_out.stride(1) != 1 or grad_out.is_neg() or type(grad_out) is not Tensor:
        grad_out = own(grad_out)  # such as the gradient of a sum, one number for all
    grad_h, grad_c = own(grad_h), own(grad_c)
    grad_x, gradients, of_parameters = None, [], list[Tensor]()
    parts = zip(plan.weights(tuple(parameters)), grad_out.chunk(directions, 1), strict=True)
    for d, (weights, part) in enumerate(parts):
        gradient = plan.gradients[d](weights, Saved(*saved[4 * d : 4 * d + 4]), plan.steps)
        gradient.backward(plan.order(d), part, grad_h[d], grad_c[d], to_start=needs[1])
        gradient.check()
        of_parameters += gradient.of_weights(x)
        if weights.bias_ih is not None:
            bias = gradient.of_bias()
            of_parameters += [bias, bias.clone()]
        if needs[0]:
            grad_x = gradient.of_input(grad_x)
        gradients.append(gradient)
    for gradient in gradients:
        gradient.finish()
    return [grad_x, grad_h if needs[1] else None, grad_c if needs[2] else None, *of_parameters]


def own(state: Tensor) -> Tensor:
    """Return a contiguous copy that may be changed."""
    return state.clone(memory_format=torch.contiguous_format)
