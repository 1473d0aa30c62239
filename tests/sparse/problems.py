"""Small networks, their paths, and the tensors to compare.

Letters: B batch, i in_features, n out_features, c classes, k kept.
"""

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from msbp.sparse import backward as sparse_backward
from msbp.sparse import convert, cross_entropy, memories

each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
each_memory = pytest.mark.parametrize("memory", ["shared", "per_slot", "sequential"])
ENTRIES = {
    "direct": lambda model, x, y: sparse_backward(cross_entropy(model(x), y)),
    "autograd": lambda model, x, y: nn.functional.cross_entropy(model(x), y).backward(),
    "cheap": lambda model, x, y: cross_entropy(model(x), y).backward(),
}
each_entry = pytest.mark.parametrize("backward", ENTRIES.values(), ids=ENTRIES)
B, i, n, c = 6, 10, 16, 3  # of the small problem that most tests share


def mlp(*widths: int, p: float = 0.0, bias: bool = True, dtype=torch.float32) -> nn.Sequential:
    """Linear, ReLU and, if p, Dropout for every hidden width; a Linear for the output."""
    layers: list[nn.Module] = []
    for i, n in pairwise(widths[:-1]):
        layers += [nn.Linear(i, n, bias=bias, dtype=dtype), nn.ReLU(), *([nn.Dropout(p)] if p else [])]
    return nn.Sequential(*layers, nn.Linear(*widths[-2:], bias=bias, dtype=dtype))


def batch(dtype=torch.float32, rows=B) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, i, dtype=dtype), torch.randint(c, (rows,))


def converted(dtype=torch.float32, p: float = 0.0, **choices) -> nn.Sequential:
    model = mlp(i, n, n, c, p=p, dtype=dtype)
    convert(model, r=0.2, **choices)
    return model


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: p.grad.to_dense().detach().clone() for name, p in model.named_parameters() if p.grad is not None
    }


def state(model: nn.Module) -> dict[str, Tensor]:
    """Gradients and memories."""
    return {**gradients(model), **{f"m of {name}": m for name, m in memory_of(model).items()}}


def memory_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies of the memories, one row a slot."""
    return {name: m.m.detach().clone().reshape(-1, m.m.shape[-1]) for name, m in memories(model).items()}


def assert_close(
    ours: dict[str, Tensor],
    theirs: dict[str, Tensor],
    relative: float = 1e-5,
    scales: dict[str, float] | None = None,
) -> None:
    """Equal up to `relative` times each tensor's largest entry, or the scale given for it if that is larger,
    and to a few of float32's smallest steps."""
    assert ours.keys() == theirs.keys()
    for name in ours:
        a, b = ours[name].double(), theirs[name].double()
        assert a.shape == b.shape, name
        scale = max(b.abs().max().item(), (scales or {}).get(name, 0.0))
        worst, allowed = (a - b).abs().max().item(), relative * scale + 64 * 2.0**-149
        assert worst <= allowed, f"{name}: {worst} apart, {allowed} allowed"


class Probe:
    """A network with observable gradients.

    Its input and its output weight are identities, so the gradient of the hidden weight is g transposed, and
    ∂ℓ/∂z is the argument of `backward`. `opened`: every ReLU propagates it.
    """

    def __init__(
        self,
        B: int,
        n: int,
        k: int,
        gamma: float = 0.8,
        *,
        dtype=torch.float64,
        opened: bool = True,
        **choices,
    ):
        self.model, self.x = mlp(B, n, n, dtype=dtype), torch.eye(B, dtype=dtype)
        with torch.no_grad():
            self.model[0].bias += 2.0 * opened
            self.model[2].weight.copy_(torch.eye(n))
            self.model[2].bias.zero_()
        self.weight, self.bias = self.model[0].weight, self.model[0].bias
        self.replaced = convert(self.model, r=k / n, gamma=gamma, **choices)

    def backward(self, grad_z: Tensor) -> tuple[Tensor, Tensor]:
        """g and ∂ℓ/∂h (B, n); a shorter grad_z is a shorter batch."""
        self.model.zero_grad()
        z = self.model(self.x[: len(grad_z)])
        z.backward(grad_z)
        return self.weight.grad.T[: len(grad_z)].clone(), grad_z * (z > 0)

    @property
    def m(self) -> Tensor:
        return memory_of(self.model)["0"]
