"""Weight gradients that wait as factors: ∂ℓ/∂W = gᵀx with k entries a row of g, formed only when somebody looks.

Letters: B batch, i in_features, n out_features, k kept.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from .kernels.gradient import accumulate, squared_norm

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
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in ("values", "columns", "x")))

    def norm(self) -> Tensor:
        """The 2-norm of the product, a scalar tensor."""
        self.check()
        (B, k), i, n = self.values.shape, self.x.shape[1], int(self.columns.max()) + 1
        addresses = (t.data_ptr() for t in (self.values, self.columns, self.x))
        return torch.tensor(squared_norm(*addresses, B, n, i, k)).sqrt()

    def add_to(self, grad: Tensor) -> Tensor:
        """grad (n, i) += gᵀx."""
        self.check()
        (B, k), (n, i) = self.values.shape, grad.shape
        addresses = (t.data_ptr() for t in (self.values, self.columns, self.x, grad))
        accumulate(*addresses, B, n, i, k, self.limit)
        return grad


class FactoredParameter(nn.Parameter):
    """A weight whose gradient may wait as factors. Reading `.grad` forms it, so every reader sees a true gradient;
    an optimizer that looks at `factors` first is spared the forming.

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
        if self.factors:
            self._form()
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

    def _form(self) -> None:
        """Add the waiting factors to the dense gradient."""
        if not self.has_dense_grad:
            _grad.__set__(self, torch.zeros_like(self, requires_grad=False))
        taken, self.factors = self.factors, ()
        for factors in taken:
            factors.add_to(_grad.__get__(self))

    def merged(self) -> Factors | None:
        """The waiting factors as one, or None if they differ in k and cannot be joined."""
        if len(self.factors) > 1 and len({f.values.shape[1] for f in self.factors}) == 1:
            self.factors = (Factors.joined(self.factors),)
        if len(self.factors) != 1:
            return None
        self.factors[0].check()
        return self.factors[0]

    def leave(self, factors: Factors) -> None:
        """Add factors to the gradient."""
        if self.factors and self.factors[-1].limit:  # a bound holds for what was there when it was set
            self._form()
        self.factors = (*self.factors, factors)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuild, (nn.Parameter(self.data, self.requires_grad),)


def _rebuild(parameter: nn.Parameter) -> nn.Parameter:
    FactoredParameter.adopt(parameter)
    return parameter
