"""Weight gradients that wait as factors: ∂ℓ/∂W = gᵀx with k entries a row of g, formed only when somebody
looks.

Letters: B batch, i in_features, n out_features, k kept.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from .eager import eager
from .kernels.gradient import accumulate


class Factors:
    """values and columns (B, k) of g, and x (B, i); `limit` is a bound on the entries of the product, if any.

    All are their own: x is no tensor that anybody else can write to. They stay valid until the buffers that
    they lie in are needed again, which `lease` prevents. shape is the (n, i) of the product, whatever the
    parameter that it waits on becomes in the meantime.
    """

    __slots__ = ("columns", "lease", "limit", "shape", "values", "x")

    def __init__(self, values: Tensor, columns: Tensor, x: Tensor, n: int, lease: object = None):
        self.values, self.columns, self.x, self.lease = values, columns, x, lease
        self.shape, self.limit = (n, x.shape[1]), 0.0

    @classmethod
    def joined(cls, parts: Sequence["Factors"]) -> "Factors":
        """The sum of several products of one shape and k, as the product of longer factors."""
        names = "values", "columns", "x"
        values, columns, x = (torch.cat([getattr(part, name) for part in parts]) for name in names)
        return cls(values, columns, x, parts[0].shape[0])

    def norm(self) -> Tensor:
        """The 2-norm of the product, a scalar tensor."""
        return torch.tensor(self._accumulate(0)).sqrt()

    def add_to(self, grad: Tensor) -> Tensor:
        """grad (n, i) += gᵀx; RuntimeError if grad has another shape."""
        if grad.shape != self.shape:
            raise RuntimeError(
                f"gradients of shapes {tuple(grad.shape)} and {self.shape} do not add up: a weight was "
                "replaced between two backward passes; zero the gradients before the second"
            )
        if _kind(grad) == (self.shape, self.x.dtype, self.x.device) and grad.is_contiguous():
            self._accumulate(grad.data_ptr())
            return grad
        with torch.no_grad():
            return grad.add_(self.formed().to(grad.device))

    def formed(self) -> Tensor:
        """gᵀx (n, i)."""
        grad = torch.zeros(self.shape)
        self._accumulate(grad.data_ptr())
        return grad

    def _accumulate(self, grad: int) -> float:
        addresses = (t.data_ptr() for t in (self.values, self.columns, self.x))
        (B, k), (n, i) = self.values.shape, self.shape
        return accumulate(*addresses, grad, B, n, i, k, self.limit)


class FactoredParameter(nn.Parameter):
    """What an nn.Parameter is for as long as a gradient waits on it as factors: the same object under
    another class.

    Reading `.grad` forms the gradient, so every reader sees a true one; an optimizer that looks at
    `factors` first is spared the forming. Either way, and when `.grad` is set to None, it becomes an
    nn.Parameter again. Only C++ code that reads the slot itself sees no gradient.
    """

    factors: tuple[Factors, ...]

    @property
    @eager
    def grad(self) -> Tensor | None:
        waiting = self.factors
        self._settle()
        gradient = self.grad  # of the nn.Parameter that this has become
        for factors in waiting:
            gradient = factors.formed() if gradient is None else factors.add_to(gradient)
        if self.grad is not gradient:
            _place(self, gradient)
        return self.grad

    @grad.setter
    @eager
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
        """The waiting factors as one, or None if they differ in k or shape and cannot be joined."""
        if len(self.factors) > 1 and len({(f.values.shape[1], f.shape) for f in self.factors}) == 1:
            self.factors = (Factors.joined(self.factors),)
        return self.factors[0] if len(self.factors) == 1 else None

    @eager
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


def _place(p: nn.Parameter, gradient: Tensor | None) -> None:
    """Set p.grad. As in plain torch it stays what it is where p.data has become another kind of tensor."""
    present = p.data
    if gradient is None or _kind(present) == _kind(gradient):
        p.grad = gradient
        return
    p.data = torch.empty(1, 1).expand(gradient.shape)  # torch compares a gradient with what is there
    p.grad = gradient
    p.data = present


def _kind(tensor: Tensor) -> tuple[tuple[int, ...], torch.dtype, torch.device]:
    return tensor.shape, tensor.dtype, tensor.device


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
