"""The element-wise operations of one time step of an LSTM, in plain torch.

Letters: N rows of a batch, n of them of this time step, H hidden_size.
"""

from typing import NamedTuple, Self

import torch
from torch import Tensor


def advance(
    h: Tensor,
    c: Tensor,
    bias: Tensor,
    gates: Tensor,
    previous_h: Tensor,
    previous_c: Tensor,
    tanh_c: Tensor,
) -> None:
    """Advance the states h, c (n, H) by one step, in place.

    gates (n, 4H): pre-activations without bias; they become the activated gates. For float32 on the CPU,
    `kernels/lstm_forward.py` does it for all steps.
    """
    previous_h.copy_(h)
    previous_c.copy_(c)
    gates += bias
    input_gate, forget, candidate, output = gates.chunk(4, 1)
    gates[:, : 2 * input_gate.shape[1]].sigmoid_()  # both at once
    candidate.tanh_()
    output.sigmoid_()
    c.mul_(forget).addcmul_(input_gate, candidate)  # c ← f ⊙ c + i ⊙ g
    torch.tanh(c, out=tanh_c)
    torch.mul(output, tanh_c, out=h)  # h ← o ⊙ tanh(c)


class Slopes(NamedTuple):
    """Derivatives of the states by the gates' pre-activations.

    Of c by input, forget and candidate gate (N, 3, H), of h by the output gate, and of h by c, (N, H) each.
    They need no gradient, so they are formed for all rows at once.
    """

    of_c: Tensor
    of_h: Tensor
    through_c: Tensor

    @classmethod
    def of(cls, gates: Tensor, previous_c: Tensor, tanh_c: Tensor) -> Self:
        """Return them from the gates' values (N, 4H), c before and tanh(c) after the step, (N, H) each."""
        input_gate, forget, candidate, output = gates.chunk(4, 1)
        parts = [
            candidate * input_gate * (1 - input_gate),
            previous_c * forget * (1 - forget),
            input_gate * (1 - candidate.square()),
        ]
        return cls(torch.stack(parts, 1), tanh_c * output * (1 - output), output * (1 - tanh_c.square()))


def gate_gradients(
    grad_out: Tensor, grad_h: Tensor, grad_c: Tensor, forget: Tensor, slopes: Slopes, out: Tensor
) -> None:
    """out (n, 4H) ← the gradient of the gates' pre-activations; grad_c (n, H) becomes that of the c before.

    ∂ℓ/∂h is grad_out, from the output at this time step, plus grad_h, from the time step after it. forget
    (n, H): the value of that gate. For float32 on the CPU there is `kernels/lstm_backward.py`.
    """
    grad_h = grad_h + grad_out
    grad_c.addcmul_(grad_h, slopes.through_c)
    parts = out.unflatten(1, (4, -1))
    torch.mul(grad_c.unsqueeze(1), slopes.of_c, out=parts[:, :3])
    torch.mul(grad_h, slopes.of_h, out=parts[:, 3])
    grad_c *= forget
