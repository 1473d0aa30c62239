"""Weight gradients that wait as factors: ∂ℓ/∂W = gᵀx with k entries a row of g, formed only when somebody
looks.

Letters: B batch, i in_features, n out_features, k kept.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from .kernels.gradient import accumulate

_grad = cast(Any, torch.Tensor.grad)  # the slot that autograd itself writes


class Factors:
    """values and columns (B, k) of g, and x (B, i); `limit` is a bound on the entries of the product, if any.

    They stay valid until the buffers that they lie in are needed again, which `lease` prevents.
    """

    __slots__ = ("columns", "lease", "limit", "values", "version", "x")

    def __init__(self, values: Tensor, columns: Tensor, x: Tensor, lease: object = None):
        self.values, self.columns, self.x, self.lease = values, columns, x, lease
        self.version, self.limit = x._version, 0.0

    def check(self) -> None:
        """RuntimeError if x is not what it was in the forward pass."""
        if self.x._version != self.version:
            raise RuntimeError(
                "a layer's input was changed in place before its weight gradient was formed; "
                "change it after optimizer.step(), or change a copy"
            )

    @classmethod
    def joined(cls, parts: Sequence["Factors"]) -> "Factors":
        """The sum of several products, as the product of longer factors."""
        for part in parts:
            part.check()
        return cls(
            *(torch.cat([getattr(part, name) for part in parts]) for name in ("values", "columns", "x"))
        )

    def norm(self) -> Tensor:
        """The 2-norm of the product, a scalar tensor."""
        self.check()
        (B, k), i, n = self.values.shape, self.x.shape[1], int(self.columns.max()) + 1
        addresses = (t.data_ptr() for t in (self.values, self.columns, self.x))
        return torch.tensor(accumulate(*addresses, 0, B, n, i, k, self.limit)).sqrt()

    def add_to(self, grad: Tensor) -> Tensor:
        """grad (n, i) += gᵀx."""
        self.check()
        (B, k), (n, i) = self.values.shape, grad.shape
        addresses = (t.data_ptr() for t in (self.values, self.columns, self.x, grad))
        accumulate(*addresses, B, n, i, k, self.limit)
        return grad


class FactoredParameter(nn.Parameter):
    """What an nn.Parameter is for as long as a gradient waits on it as factors: the same object under
    another class.

    Reading `.grad` forms the gradient, so every reader sees a true one; an optimizer that looks at
    `factors` first is spared the forming. Either way, and when `.grad` is set to None, it becomes an
    nn.Parameter again. Only C++ code that reads the slot itself sees no gradient.
    """

    factors: tuple[Factors, ...]

    @property
    def grad(self) -> Tensor | None:
        waiting = self.factors
        self._settle()
        for factors in waiting:
            if self.grad is None:
                self.grad = torch.zeros_like(self, requires_grad=False)
            factors.add_to(self.grad)
        return self.grad  # of the nn.Parameter that this has become

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        self._settle()
        self.grad = value

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def has_dense_grad(self) -> bool:
        """Whether there is a formed gradient that the factors come on top of."""
        return cast(Any, Tensor.grad).__get__(self) is not None

    def _settle(self) -> None:
        del self.factors
        self.__class__ = nn.Parameter  # type: ignore[assignment]

    def merged(self) -> Factors | None:
        """The waiting factors as one, or None if they differ in k and cannot be joined."""
        if len(self.factors) > 1 and len({f.values.shape[1] for f in self.factors}) == 1:
            self.factors = (Factors.joined(self.factors),)
        if len(self.factors) != 1:
            return None
        self.factors[0].check()
        return self.factors[0]

    def detach(self) -> Tensor:
        """An nn.Parameter, as this is one from now on: nn.Parameter(...) accepts only its own kind."""
        self.grad  # noqa: B018 - forms what waits
        detached = Tensor.detach(self)
        detached.__class__ = nn.Parameter
        return detached

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Parameter:
        memo[id(self)] = copy = nn.Parameter(self.data.clone(), self.requires_grad)
        return copy

    def __reduce_ex__(self, protocol: Any) -> Any:
        return nn.Parameter(self.data, self.requires_grad).__reduce_ex__(protocol)


def leave(p: nn.Parameter, factors: Factors) -> None:
    """Let factors wait on a parameter, on top of what its gradient is already."""
    if isinstance(p, FactoredParameter) and not p.factors[-1].limit:
        p.factors = (*p.factors, factors)
        return
    p.grad  # noqa: B018 - a limit holds for what was there when it was set, so that is formed first
    p.__class__ = FactoredParameter
    cast(FactoredParameter, p).factors = (factors,)


def gradient_of(p: Tensor) -> Tensor | Factors | None:
    """The gradient of a parameter: as factors if there is nothing else."""
    if type(p) is FactoredParameter and not p.has_dense_grad:
        return p.merged() or p.grad
    return p.grad
