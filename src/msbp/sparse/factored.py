"""Weight gradients that wait as factors: ∂ℓ/∂W = gᵀx with k entries a row of g, formed only when somebody looks.

Letters: B batch, i in_features, n out_features, k kept.
"""

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

    def add_to(self, grad: Tensor) -> Tensor:
        """grad (n, i) += gᵀx."""
        self.check()
        (B, k), (n, i) = self.values.shape, grad.shape
        addresses = (t.data_ptr() for t in (self.values, self.columns, self.x, grad))
        accumulate(*addresses, B, n, i, k, self.limit)
        return grad


class FactoredParameter(nn.Parameter):
    """A weight whose gradient may wait as factors. Reading `.grad` forms it, so every reader sees a true gradient;
    an optimizer that calls `take_factors` first is spared the forming.

    torch.autograd.grad and hooks get a dense gradient, too. Only C++ code that reads the slot itself sees none.
    """

    factors: tuple[Factors, ...] = ()

    @staticmethod
    def adopt(parameter: nn.Parameter) -> None:
        """Change the class of a parameter in place: optimizers, ties and keys keep the same object."""
        if type(parameter) is nn.Parameter:
            parameter.__class__ = FactoredParameter

    @property  # type: ignore[override]
    def grad(self) -> Tensor | None:
        for factors in self.take_factors():
            if _grad.__get__(self) is None:
                _grad.__set__(self, torch.zeros_like(self, requires_grad=False))
            factors.add_to(_grad.__get__(self))
        return _grad.__get__(self)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        self.factors = ()
        _grad.__set__(self, value)

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def has_dense_grad(self) -> bool:
        """Whether a formed gradient is there; the factors, if any, come on top of it."""
        return _grad.__get__(self) is not None

    def take_factors(self) -> tuple[Factors, ...]:
        """The waiting factors, which the caller now has to use."""
        taken, self.factors = self.factors, ()
        return taken

    def leave(self, factors: Factors) -> None:
        """Add factors to the gradient."""
        if self.factors and self.factors[-1].limit:  # a bound holds for what was there when it was set
            self.grad
        self.factors = (*self.factors, factors)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuild, (nn.Parameter(self.data, self.requires_grad),)


def _rebuild(parameter: nn.Parameter) -> nn.Parameter:
    FactoredParameter.adopt(parameter)
    return parameter
