"""The element-wise part of an LSTM, one time step at a time: by kernel for float32 on the CPU, else in plain
torch.

Letters: n sequences that have this time step, H hidden_size.
"""

import torch
from torch import Tensor

from .kernels import lstm as kernels


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
    if fast(*tensors):
        kernels.advance(*(t.data_ptr() for t in tensors), *h.shape)
        return
    previous_h.copy_(h)
    previous_c.copy_(c)
    gates += bias
    enter, forget, candidate, output = gates.chunk(4, 1)
    for gate in (enter, forget, output):
        gate.sigmoid_()
    candidate.tanh_()
    c.mul_(forget).addcmul_(enter, candidate)  # c ← f ⊙ c + i ⊙ g
    torch.tanh(c, out=tanh_c)
    torch.mul(output, tanh_c, out=h)  # h ← o ⊙ tanh(c)


def gate_gradients(
    grad_out: Tensor,
    grad_h: Tensor,
    grad_c: Tensor,
    gates: Tensor,
    previous_c: Tensor,
    tanh_c: Tensor,
    out: Tensor,
) -> None:
    """out (n, 4H) ← the gradient of the gates' pre-activations; grad_c (n, H) becomes that of the c before.

    ∂ℓ/∂h is grad_out, from the output at this time step, plus grad_h, from the time step after it.
    """
    tensors = (grad_h, grad_c, gates, previous_c, tanh_c, out)
    if fast(*tensors):
        kernels.gate_gradients(*rows_of(grad_out), *(t.data_ptr() for t in tensors), *grad_h.shape)
        return
    enter, forget, candidate, output = gates.chunk(4, 1)
    grad_h = grad_h + grad_out
    grad_c += grad_h * output * (1 - tanh_c.square())
    parts = [
        grad_c * candidate * enter * (1 - enter),
        grad_c * previous_c * forget * (1 - forget),
        grad_c * enter * (1 - candidate.square()),
        grad_h * tanh_c * output * (1 - output),
    ]
    torch.cat(parts, 1, out=out)
    grad_c *= forget


def rows_of(matrix: Tensor) -> tuple[int, int]:
    """Where a matrix lies whose rows are contiguous, and how many bytes these are apart."""
    return matrix.data_ptr(), matrix.stride(0) * matrix.element_size()


def fast(*tensors: Tensor) -> bool:
    """Whether the kernels can take these."""
    return all(t.dtype is torch.float32 and t.device.type == "cpu" and t.is_contiguous() for t in tensors)
