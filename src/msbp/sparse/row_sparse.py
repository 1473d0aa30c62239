"""RowSparseGradient: a weight's gradient as the rows that the backward pass formed.

Letters: n rows and i columns of the weight, u rows that have a gradient.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_map_only

from .torch_compat import eager

aten = torch.ops.aten
Named = dict[str, object]  # arguments
DENSE_FROM = 0.5  # of all rows: a sum that touches more of them is held as a dense tensor


class Parts:
    """Indices (u) and rows (u, i) of a gradient, or its dense form once an operation has needed that.

    A gradient and its detached aliases (`.data`, `.detach()`) share one of these, as torch's share a storage.
    """

    __slots__ = ("dense", "indices", "rows")

    def __init__(
        self, indices: Tensor | None = None, rows: Tensor | None = None, dense: Tensor | None = None
    ):
        self.indices, self.rows, self.dense = indices, rows, dense

    def form(self, shape: torch.Size) -> Tensor:
        """Return the dense form, and hold the gradient as that from now on."""
        if self.dense is None:
            assert self.rows is not None and self.indices is not None
            self.dense = self.rows.new_zeros(shape).index_copy_(0, self.indices, self.rows)
            self.indices = self.rows = None
        return self.dense


class RowSparseGradient(Tensor):
    """∂ℓ/∂W (n, i) of which only some rows are stored; all others are zero.

    `parts()` gives the indices (u, int64, distinct) and the rows (u, i) to an optimizer that takes them as
    they are. An operation that needs the values turns the gradient into a dense tensor, once, so that
    torch's optimizers, hooks, clipping, scaling, communication and serialization see an ordinary gradient.
    The sum of two of them has the union of their rows. Its shape is fixed. Functions in C that ask neither
    torch nor a method for the memory, such as torch.utils.dlpack.to_dlpack, and the `.data` of other tensors
    must be given `to_dense()`.
    """

    _parts: Parts
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, indices: Tensor, rows: Tensor, n: int) -> "RowSparseGradient":
        """Return the gradient of a weight with n rows from distinct indices (u, int64) and rows (u, i).

        ValueError if these do not fit each other, or n.
        """
        if rows.dim() != 2 or indices.shape != rows.shape[:1] or indices.dtype is not torch.int64:
            raise ValueError(
                "indices must be int64 of shape (u,) and rows of shape (u, i), got "
                f"{indices.dtype} of shape {tuple(indices.shape)} and rows of shape {tuple(rows.shape)}"
            )
        if len(indices) and not (0 <= indices.min() and indices.max() < n):
            raise ValueError(f"indices of {n} rows run from 0 to {n - 1}, got {indices.tolist()}")
        if len(indices.unique()) < len(indices):
            raise ValueError(
                f"indices must be distinct, got {indices.tolist()}; add up rows of the same index"
            )
        return cls.wrap((n, rows.shape[1]), rows.dtype, rows.device, Parts(indices, rows))

    @classmethod
    def wrap(
        cls, shape: Sequence[int], dtype: torch.dtype, device: torch.device, parts: Parts
    ) -> "RowSparseGradient":
        """Return a gradient of this shape and type that holds these parts, which a kernel may fill later."""
        self = Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=device)
        self._parts = parts
        return self

    def parts(self) -> tuple[Tensor, Tensor] | None:
        """Return indices (u) and rows (u, i), or None if an operation has made the gradient dense."""
        parts = self._parts
        return None if parts.rows is None or parts.indices is None else (parts.indices, parts.rows)

    def to_dense(self, dtype: torch.dtype | None = None, *, masked_grad: bool | None = None) -> Tensor:
        """Return the gradient as an ordinary tensor (n, i)."""
        return self._parts.form(self.shape).to(dtype or self.dtype)

    def accumulate(self, other: Tensor) -> None:
        """Add a gradient of the same shape in place."""
        mine, theirs = self.parts(), parts_of(other)
        if mine is None or theirs is None:
            add_to(self.to_dense(), other)
            return
        indices, at = torch.cat([mine[0], theirs[0]]).unique(return_inverse=True)
        if len(indices) > DENSE_FROM * len(self):
            add_to(self.to_dense(), other)
            return
        rows = mine[1].new_zeros(len(indices), self.shape[1])
        u = len(mine[0])
        rows.index_copy_(0, at[:u], mine[1]).index_add_(0, at[u:], theirs[1])
        self._parts.indices, self._parts.rows = indices, rows

    @classmethod
    @eager
    def __torch_dispatch__(
        cls, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: Named | None = None
    ) -> object:
        own = SPECIAL.get(func)
        if own is not None and not kwargs:
            return own(*args)
        in_place = func._schema.name.endswith("_") and args and isinstance(args[0], cls)
        if in_place and torch.Tag.inplace_view in func.tags:
            name = func._schema.name.removeprefix("aten::")
            raise RuntimeError(f"{name} cannot reshape a {cls.__name__} in place: call it on its to_dense()")
        dense = tree_map_only(cls, cls.to_dense, (args, kwargs or {}))
        out = func(*dense[0], **dense[1])
        return args[0] if in_place else out

    # torch assigns this without an operation, as when a module is cast
    @property
    def data(self) -> Tensor:
        """An alias without history; what is assigned replaces the gradient."""
        return detach(self)

    @data.setter
    def data(self, value: Tensor) -> None:
        Tensor.data.__set__(self, value)  # type: ignore[attr-defined]
        self._parts = value._parts if isinstance(value, RowSparseGradient) else Parts(dense=value)

    def __deepcopy__(self, memo: dict[int, object]) -> Tensor:
        memo[id(self)] = copy = clone(self)
        return copy

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]
        parts = self.parts()
        held = "dense" if parts is None else f"{len(parts[0])} rows"
        return f"RowSparseGradient(shape={tuple(self.shape)}, {held}, dtype={self.dtype})"


def through_dense(name: str) -> Callable[..., Any]:
    """Return the method of this name that runs that of the dense form, which is what it may change."""

    def method(self: RowSparseGradient, *args: Any, **kwargs: Any) -> Any:
        form = self.to_dense()
        out = getattr(form, name)(*map(dense, args), **kwargs)
        return self if out is form else out

    method.__name__ = name
    return method


# These reach for the memory without an operation that torch would dispatch.
for name in (
    "numpy", "tolist", "data_ptr", "const_data_ptr", "untyped_storage", "apply_", "map_", "map2_",
    "__array__", "__dlpack__", "__dlpack_device__", "__reduce_ex__",
):  # fmt: skip
    setattr(RowSparseGradient, name, through_dense(name))


def parts_of(gradient: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the indices and rows of a gradient that is held as such, else None."""
    return gradient.parts() if type(gradient) is RowSparseGradient else None


def values_of(gradient: Tensor) -> Tensor:
    """Return the tensor with all values of a gradient that may differ from zero: its rows, or itself."""
    parts = parts_of(gradient)
    if parts is not None:
        return parts[1]
    return dense(gradient)


def add_to(total: Tensor, gradient: Tensor) -> Tensor:
    """Add a gradient to an ordinary tensor of its shape and type in place; return that."""
    parts = parts_of(gradient)
    return total.add_(dense(gradient)) if parts is None else total.index_add_(0, *parts)


def detach(gradient: RowSparseGradient) -> Tensor:
    """Return an alias without history."""
    return RowSparseGradient.wrap(gradient.shape, gradient.dtype, gradient.device, gradient._parts)


def clone(gradient: RowSparseGradient) -> Tensor:
    """Return a copy, row-sparse if the gradient is."""
    parts = gradient.parts()
    if parts is None:
        return gradient.to_dense().clone()
    copies = Parts(parts[0].clone(), parts[1].clone())
    return RowSparseGradient.wrap(gradient.shape, gradient.dtype, gradient.device, copies)


def add(first: Tensor, second: Any) -> Tensor:
    """Return the sum of a row-sparse gradient and another one or a number, in either order."""
    if not isinstance(first, RowSparseGradient):
        first, second = second, first
    return add_(first.clone(), second) if alike(first, second) else torch.add(*map(dense, (first, second)))


def add_(first: Tensor, second: Any) -> Tensor:
    """Add a gradient or a number to another in place, one of them row-sparse; return the other."""
    if not alike(first, second):
        dense(first).add_(dense(second))
    elif isinstance(first, RowSparseGradient):
        first.accumulate(second)
    else:
        add_to(first, second)
    return first


def alike(first: Tensor, second: object) -> bool:
    """Return whether a gradient and another object are tensors of one shape and type."""
    if not isinstance(second, Tensor) or first.shape != second.shape:
        return False
    return first.dtype is second.dtype and first.device == second.device


def dense(value: Any) -> Any:
    """Return a row-sparse gradient as an ordinary tensor, anything else as it is."""
    return value.to_dense() if isinstance(value, RowSparseGradient) else value


SPECIAL: dict[OpOverload, Callable[..., Tensor]] = {
    aten.detach.default: detach,
    aten.detach_.default: lambda gradient: gradient,  # which has no history
    aten.clone.default: clone,
    aten.add.Tensor: add,
    aten.add_.Tensor: add_,
}
