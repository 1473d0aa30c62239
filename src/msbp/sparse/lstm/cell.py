"""The element-wise part of an LSTM, one time step at a time: by kernel for float32 on the CPU, else in plain
torch.

Letters: N rows of a batch, n of them of this time step, H hidden_size.
"""

from typing import NamedTuple, Self

import torch
from torch import Tensor

from ..buffers import uses_kernel
from ..kernels import lstm as kernels


def advance(
    h: Tensor,
    c: Tensor,
    bias: Tensor,
    gates: Tensor,
    previous_h: Tensor,
    previous_c: Tensor,
    tanh_c: Tensor,
) -> None:
    """Move the states h, c (n, H) one step on, in place; gates (n, 4H) come without bias and leave
    activated."""
    tensors = (h, c, bias, gates, previous_h, previous_c, tanh_c)
    if uses_kernel(*tensors):
        kernels.advance(*(t.data_ptr() for t in tensors), *h.shape)
        return
    previous_h.copy_(h)
    previous_c.copy_(c)
    gates += bias
    enter, forget, candidate, output = gates.chunk(4, 1)
    gates[:, : 2 * enter.shape[1]].sigmoid_()  # both at once
    candidate.tanh_()
    output.sigmoid_()
    c.mul_(forget).addcmul_(enter, candidate)  # c ← f ⊙ c + i ⊙ g
    torch.tanh(c, out=tanh_c)
    torch.mul(output, tanh_c, out=h)  # h ← o ⊙ tanh(c)


class Slopes(NamedTuple):
    """How far a gate's pre-activation moves the states: c by input, forget and candidate gate (N, 3, H), h by
    the output gate, and h by c, (N, H) each. No gradient is in it, so it is formed for all rows at once."""

    of_c: Tensor
    of_h: Tensor
    through_c: Tensor

    @classmethod
    def of(cls, gates: Tensor, previous_c: Tensor, tanh_c: Tensor) -> Self:
        """From the gates' values (N, 4H), the c before and the tanh of the c after the step, (N, H) each."""
        enter, forget, candidate, output = gates.chunk(4, 1)
        parts = [
            candidate * enter * (1 - enter),
            previous_c * forget * (1 - forget),
            enter * (1 - candidate.square()),
        ]
        return cls(torch.stack(parts, 1), tanh_c * output * (1 - output), output * (1 - tanh_c.square()))


def gate_gradients(
    grad_out: Tensor, grad_h: Tensor, grad_c: Tensor, forget: Tensor, slopes: Slopes, out: Tensor
) -> None:
    """out (n, 4H) ← the gradient of the gates' pre-activations; grad_c (n, H) becomes that of the c before.

    ∂ℓ/∂h is grad_out, from the output at this time step, plus grad_h, from the time step after it. forget
    (n, H): the value of that gate. For float32 on the CPU there is `kernels.gate_gradients`.
    """
    grad_h = grad_h + grad_out
    grad_c.addcmul_(grad_h, slopes.through_c)
    parts = out.unflatten(1, (4, -1))
    torch.mul(grad_c.unsqueeze(1), slopes.of_c, out=parts[:, :3])
    torch.mul(grad_h, slopes.of_h, out=parts[:, 3])
    grad_c *= forget


def rows_of(matrix: Tensor) -> tuple[int, int]:
    """Where a matrix lies whose rows are contiguous, and how many bytes these are apart."""
    return matrix.data_ptr(), matrix.stride(0) * matrix.element_size()
