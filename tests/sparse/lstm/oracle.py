"""An LSTM in one direction, backpropagated through time by Algorithms 1 and 2, one row after the other.

Letters: T time steps, B sequences, H hidden_size, k kept of a gate. Slow on purpose; the derivatives of a
cell are autograd's.
"""

import torch
from torch import Tensor, nn

from msbp.sparse.reference import top_k


class LSTMOracle:
    """weight_ih, weight_hh, bias (their sum) in float64; m (slots, 4H) the memory, one slot where it is
    shared.

    `margin` is the smallest relative distance, in the last pass, between an entry kept and one that was not:
    where it is too small for float32, two right answers may differ.
    """

    def __init__(
        self, ih: Tensor, hh: Tensor, bias: Tensor, k: int, gamma: float, memory: str, carry: str, gates: str
    ):
        self.ih, self.hh, self.bias = ih.double(), hh.double(), bias.double()
        self.k, self.gamma, self.memory, self.carry = k, gamma, memory, carry
        self.groups = {"per_gate": 4, "joint": 1}[gates]
        self.m: dict[int, Tensor] = {}

    def slot(self, b: int) -> int:
        return b if self.memory == "per_slot" else 0

    def recall(self, b: int) -> Tensor:
        return self.m.get(self.slot(b), torch.zeros_like(self.bias))

    def keep(self, carried: Tensor) -> Tensor:
        """Top-k of each group of the 4H entries."""
        k, groups = 4 * self.k // self.groups, carried.chunk(self.groups)
        for group in groups:
            ranked = group.abs().sort(descending=True).values
            if (
                k < len(ranked) and ranked[k - 1] > 0
            ):  # the forget gate has no gradient at the first time step
                self.margin = min(self.margin, float((ranked[k - 1] - ranked[k]) / ranked[0]))
        return torch.cat([top_k(group, k) for group in groups])

    def estimate(self, rows: dict[int, Tensor]) -> dict[int, Tensor]:
        """g of the rows of one time step, by sequence; moves the memory on."""
        g, left = {}, {}
        for b, gradient in rows.items():
            carried = gradient + self.recall(b)  # ∂ℓ/∂h + m
            g[b] = self.keep(carried)
            left[b] = self.gamma * (carried - g[b])  # γ(∂ℓ/∂h + m − g)
            if self.memory == "sequential":
                self.m[0] = left[b]
        if self.carry == "batch":
            self.waiting += left.items()
        elif self.memory == "shared":
            self.m[0] = torch.stack(list(left.values())).mean(0)
        elif self.memory == "per_slot":
            self.m.update(left)
        return g

    def forward(self, x: Tensor, lengths: list[int]) -> Tensor:
        """h (T, B, H) of x (T, B, i), zero where a sequence has ended."""
        T, B, H = *x.shape[:2], self.hh.shape[1]
        self.x, self.lengths, self.cells, h, c = (
            x.double(),
            lengths,
            {},
            torch.zeros(B, H).double(),
            torch.zeros(B, H).double(),
        )
        out = torch.zeros(T, B, H, dtype=torch.float64)
        for t in range(T):
            for b in (b for b in range(B) if t < lengths[b]):
                a = (self.ih @ self.x[t, b] + self.hh @ h[b] + self.bias).requires_grad_()
                before = c[b].clone().requires_grad_()
                enter, forget, candidate, output = a.chunk(4)
                after = forget.sigmoid() * before + enter.sigmoid() * candidate.tanh()
                state = output.sigmoid() * after.tanh()
                self.cells[t, b] = a, before, after, state, h[b].clone()
                h[b], c[b], out[t, b] = state.detach(), after.detach(), state.detach()
        return out

    def backward(self, grad_out: Tensor) -> dict[str, Tensor]:
        """Gradients of the weights, the bias and x."""
        T, B, H = grad_out.shape
        gradients = {
            name: torch.zeros_like(t)
            for name, t in (("ih", self.ih), ("hh", self.hh), ("bias", self.bias), ("x", self.x))
        }
        grad_h, grad_c = torch.zeros(B, H).double(), torch.zeros(B, H).double()
        self.margin, self.waiting = float("inf"), []
        for t in reversed(range(T)):
            rows = {}
            for b in (b for b in range(B) if t < self.lengths[b]):
                a, before, after, state, _ = self.cells[t, b]
                above = (grad_h[b] + grad_out[t, b].double(), grad_c[b])
                rows[b], grad_c[b] = torch.autograd.grad((state, after), (a, before), above)
            for b, g in self.estimate(rows).items():
                gradients["ih"] += torch.outer(g, self.x[t, b])
                gradients["hh"] += torch.outer(g, self.cells[t, b][4])
                gradients["bias"] += g
                gradients["x"][t, b], grad_h[b] = self.ih.T @ g, self.hh.T @ g
        for slot in {self.slot(b) for b, _ in self.waiting}:
            self.m[slot] = torch.stack([m for b, m in self.waiting if self.slot(b) == slot]).mean(0)
        return gradients


def lstm(input_size=9, hidden_size=11, dtype=torch.float64, **choices) -> nn.LSTM:
    return nn.LSTM(input_size, hidden_size, dtype=dtype, **choices)
