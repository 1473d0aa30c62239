"""Algorithms 1 and 2 of the paper as printed, one example at a time: the reference of the fast code.

Slow on purpose; any dtype and device. Letters: B batch, i in_features, n out_features, k kept.
The paper treats one example. For a mini-batch a choice is needed wherever two examples could share something:

memory     shared: all examples add the same m, which then becomes the mean of what each would have stored;
           per_slot: the b-th example of every batch has an m of its own;
           sequential: m passes from example to example, as if they came one by one.
selection  per_example: each example keeps k columns of its own;
           unified: all keep the k columns with the largest sum over the batch of |∂ℓ/∂h + m|
           (not with sequential memory, where no m is known before the example ahead of it is done).
bias       sparse: ∂ℓ/∂b ← g, as if the bias were a column of W; full: ∂ℓ/∂b ← ∂ℓ/∂h, as in meProp.
"""

from __future__ import annotations

import torch
from torch import Tensor


def largest(v: Tensor, k: int) -> list[int]:
    """Return the indices of the k largest magnitudes of v (n), ties to the lowest index."""
    magnitudes = v.abs().tolist()
    return sorted(range(len(v)), key=lambda j: (-magnitudes[j], j))[:k]


def only(v: Tensor, columns: list[int]) -> Tensor:
    """𝕀(v) ⊙ v, where the indicator is one in the given columns (Definition 3)."""
    kept = torch.zeros_like(v)
    kept[columns] = v[columns]
    return kept


def top_k(v: Tensor, k: int) -> Tensor:
    """Return v (n) with all but its k largest magnitudes set to zero (Definition 4)."""
    return only(v, largest(v, k))


def algorithm_1(weight: Tensor, x: Tensor, grad_h: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """SBP for one example, from ∂ℓ/∂h (n) on: ∂ℓ/∂W (n, i) and ∂ℓ/∂x (i)."""
    g = top_k(grad_h, k)  # g ← S(∂ℓ/∂h)
    return torch.outer(g, x), weight.T @ g  # ∂ℓ/∂W ← g xᵀ;  ∂ℓ/∂x ← Wᵀ g


def algorithm_2(
    weight: Tensor, x: Tensor, grad_h: Tensor, k: int, gamma: float, m: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """MSBP for one example, from ∂ℓ/∂h (n) on: ∂ℓ/∂W (n, i), ∂ℓ/∂x (i) and the new m (n)."""
    g = top_k(grad_h + m, k)  # g ← S(∂ℓ/∂h + m)
    m = gamma * (grad_h + m - g)  # m ← γ(∂ℓ/∂h + m − g)
    return torch.outer(g, x), weight.T @ g, m  # ∂ℓ/∂W ← g xᵀ;  ∂ℓ/∂x ← Wᵀ g


class Unit:
    """A linear layer with its ReLU, learning from mini-batches by Algorithm 2; gamma = 0 is Algorithm 1."""

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        k: int,
        gamma: float,
        *,
        memory: str = "shared",
        selection: str = "per_example",
        bias_gradient: str = "sparse",
        relu: bool = True,
    ):
        if selection == "unified" and memory == "sequential":
            raise ValueError("unified selection needs every m beforehand: use memory shared or per_slot")
        self.weight, self.bias, self.k, self.gamma, self.relu = weight, bias, k, gamma, relu
        self.memory, self.selection, self.bias_gradient = memory, selection, bias_gradient
        self.m: dict[int, Tensor] = {}  # per slot; shared and sequential have slot 0 only

    def forward(self, x: Tensor, keep: Tensor | float = 1.0) -> Tensor:
        """z = σ(Wx + b) ⊙ keep (B, n), for x (B, i) and a dropout mask that holds 0 and 1/(1 − p)."""
        self.x, self.h = x, torch.stack([self.weight @ row for row in x])
        if self.bias is not None:
            self.h = self.h + self.bias
        self.derivative = ((self.h > 0) if self.relu else torch.ones_like(self.h)) * keep
        return self.h * self.derivative

    def backward(self, grad_z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """∂ℓ/∂W (n, i), ∂ℓ/∂b (n) and ∂ℓ/∂x (B, i) from ∂ℓ/∂z (B, n); m moves on by one step."""
        grad_h = self.derivative * grad_z  # ∂ℓ/∂h ← σ'(h) ⊙ ∂ℓ/∂z
        g = self.estimate(grad_h)
        grad_weight = torch.zeros_like(self.weight)
        grad_x = torch.zeros_like(self.x)
        for b in range(len(g)):
            grad_weight += torch.outer(g[b], self.x[b])
            grad_x[b] = self.weight.T @ g[b]
        return grad_weight, (g if self.bias_gradient == "sparse" else grad_h).sum(0), grad_x

    def estimate(self, grad_h: Tensor) -> Tensor:
        """Return the estimated gradient g (B, n), example after example; `carried` is ∂ℓ/∂h + m."""
        g, self.carried = torch.zeros_like(grad_h), torch.zeros_like(grad_h)
        for b, columns in enumerate(self.selected(grad_h)):
            self.carried[b] = carried = grad_h[b] + self.recall(b)
            g[b] = only(carried, largest(carried, self.k) if columns is None else columns)
            if self.memory != "shared":  # g ← S(∂ℓ/∂h + m);  m ← γ(∂ℓ/∂h + m − g)
                self.m[b if self.memory == "per_slot" else 0] = self.gamma * (carried - g[b])
        if self.memory == "shared":
            self.m[0] = self.gamma * (self.carried - g).mean(0)
        return g

    def recall(self, b: int) -> Tensor:
        """Return the m (n) that the b-th example adds; it is zero before training begins."""
        return self.m.get(b if self.memory == "per_slot" else 0, torch.zeros_like(self.weight[:, 0]))

    def selected(self, grad_h: Tensor) -> list[list[int] | None]:
        """Return for each example the columns fixed beforehand, or None."""
        if self.selection == "per_example":
            return [None] * len(grad_h)
        carried = torch.stack([row + self.recall(b) for b, row in enumerate(grad_h)])
        return [largest(carried.abs().sum(0), self.k)] * len(grad_h)
