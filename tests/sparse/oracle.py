"""An oracle that follows a network of linear layers step by step, by the paper's algorithms.

Letters: B batch, i in_features, n out_features, k kept, p dropout.
"""

import torch
from torch import Tensor, nn

from msbp.sparse.dropout import draw_key, keep_mask, keep_scale, key_at
from msbp.sparse.reference import Unit

from .problems import memory_of


class Oracle:
    """Reference units under copies of the weights of `model`, an mlp not yet converted; its output is dense.

    A step is undecided when float32 could not tell which columns are largest, or on which side of its ReLU
    an h lies: the k-th and the next magnitude, or h and zero, are within `tolerance` times the largest one.
    Two right answers then differ by more than rounding, and the caller starts the oracle anew (`follow`)
    instead of comparing. Where all numbers are exact the tolerance is zero, and not even ties are undecided.
    """

    def __init__(
        self,
        model: nn.Sequential,
        r: float,
        gamma: float,
        *,
        dtype=torch.float64,
        tolerance: float = 1e-5,
        bias: str = "sparse",
        **choices,
    ):
        self.tolerance, self.units = tolerance, {}
        linears = {name: m for name, m in model.named_children() if isinstance(m, nn.Linear)}
        for name, linear in linears.items():
            hidden = name != list(linears)[-1]
            W, b = (p if p is None else p.detach().to(dtype, copy=True) for p in (linear.weight, linear.bias))
            self.units[name] = (
                Unit(W, b, max(1, round(r * len(W))), gamma, bias_gradient=bias, **choices)
                if hidden
                else Unit(W, b, len(W), 0.0, relu=False)
            )

    def forward(self, x: Tensor, keeps: dict[str, Tensor] | None = None) -> Tensor:
        x = x.to(next(iter(self.units.values())).weight.dtype)
        for name, unit in self.units.items():
            self.terms = (x.abs() @ unit.weight.abs().T).max().item()  # that the largest logit is the sum of
            x = unit.forward(x, (keeps or {}).get(name, 1.0))
        return x

    def backward(self, grad: Tensor) -> dict[str, Tensor]:
        """Gradients by parameter name, and that of the input as `x`."""
        gradients: dict[str, Tensor] = {}
        grad = grad.to(next(iter(self.units.values())).weight.dtype)
        for name, unit in reversed(self.units.items()):
            weight, bias, grad = unit.backward(grad)
            biases = {} if unit.bias is None else {f"{name}.bias": bias}
            gradients = {f"{name}.weight": weight, **biases, **gradients}
        return {**gradients, "x": grad}

    @property
    def memory(self) -> dict[str, Tensor]:
        return {
            name: torch.stack([m for _, m in sorted(unit.m.items())])
            for name, unit in self.hidden
            if unit.gamma
        }

    @property
    def remainders(self) -> dict[str, float]:
        """The scale of each memory: a difference of larger numbers, sometimes their rounding alone."""
        return {name: unit.gamma * unit.carried.abs().max().item() for name, unit in self.hidden}

    @property
    def hidden(self) -> list[tuple[str, Unit]]:
        return list(self.units.items())[:-1]

    def undecided(self) -> bool:
        """Return whether the last step depended on rounding."""
        return bool(self.tolerance) and any(self._hangs(unit) for _, unit in self.hidden)

    def _hangs(self, unit: Unit) -> bool:
        carried, h, smallest = unit.carried.abs(), unit.h.abs(), 64 * 2.0**-149
        v = carried.sum(0, keepdim=True) if unit.selection == "unified" else carried
        v = v.sort(1, descending=True).values
        if h.min() <= self.tolerance * h.max() + smallest:
            return True
        if unit.k == v.shape[1]:
            return False
        last, next_ = v[:, unit.k - 1], v[:, unit.k]
        return bool(((last - next_ <= self.tolerance * v[:, 0] + smallest) & (last > 0)).any())

    def follow(self, model: nn.Module) -> None:
        """Take over the weights and memories of a converted network."""
        for name, p in model.named_parameters():
            unit, kind = self.units[name.rpartition(".")[0]], name.rpartition(".")[2]
            setattr(unit, kind, p.detach().to(unit.weight.dtype, copy=True))
        for name, m in memory_of(model).items():
            self.units[name].m = dict(enumerate(m.to(self.units[name].weight.dtype)))


def keeps(model: nn.Sequential, B: int) -> dict[str, Tensor]:
    """The dropout masks, divided by 1 − p, that the next forward pass of an mlp will draw when it trains."""
    state = torch.get_rng_state()
    key = draw_key()
    torch.set_rng_state(state)
    masks: dict[str, Tensor] = {}
    linears = [(name, module) for name, module in model.named_children() if isinstance(module, nn.Linear)]
    for depth, (name, linear) in enumerate(linears):
        follower = model._modules.get(str(int(name) + 2))
        if isinstance(follower, nn.Dropout):
            mask = keep_mask((B, linear.out_features), follower.p, key_at(key, depth))
            masks[name] = mask.double() * keep_scale(follower.p)
    return masks
