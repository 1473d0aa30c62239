"""The table that an optimizer's kernel reads: a record for each parameter of a group, in order."""

from typing import Any

import numpy as np
from torch import Tensor

from ..factored import Factors
from ..kernels.update import UPDATE
from ..suited import suits


class Table:
    """A record without gradient is skipped. Addresses of parameters and moments are written when they
    have changed.

    moments: names of the optimizer's state tensors that the kernel calls first and second.
    """

    def __init__(self, parameters: list[Tensor], moments: tuple[str, ...]):
        self.parameters, self.moments = parameters, moments
        self.placed: list[list[Any]] = [[] for _ in parameters]
        self.kept: list[list[Tensor]] = [[] for _ in parameters]
        self.records = np.zeros(len(parameters), UPDATE)
        self.address = self.records.ctypes.data
        self.column = {name: self.records[name] for name in UPDATE.names or ()}
        self.entered: list[Tensor] = []
        self.alive: list[Tensor | Factors] = []

    def fits(self, parameters: list[Tensor], moments: tuple[str, ...]) -> bool:
        """Whether the table is one of these."""
        same = self.parameters is parameters and len(self.placed) == len(parameters)
        return same and self.moments == moments

    def clear(self) -> None:
        """Begin a step: no record has a gradient."""
        self.column["grad"][:] = self.column["B"][:] = 0
        self.entered, self.alive = [], []

    def enter(self, at: int, gradient: Tensor | Factors, state: dict[str, Any]) -> bool:
        """Enter a parameter's gradient; False if a kernel cannot take it, RuntimeError if it does not fit."""
        p, column = self.parameters[at], self.column
        moments, shape = [state[moment] for moment in self.moments], p.shape
        if gradient.shape != shape:
            raise mismatch("gradient", gradient.shape, shape)
        if [p.data_ptr(), shape, *map(id, moments)] != self.placed[at] and not self._place(at, p, moments):
            return False
        if isinstance(gradient, Factors):
            values, columns = gradient.values, gradient.columns
            column["values"][at], column["columns"][at] = values.data_ptr(), columns.data_ptr()
            column["x"][at], column["limit"][at] = gradient.x.data_ptr(), gradient.limit
            column["B"][at], column["k"][at] = values.shape
            if "last_step" in state:
                column["last_step"][at] = state["last_step"].data_ptr()
        elif suits(gradient):
            column["grad"][at] = gradient.data_ptr()
        else:
            return False
        column["step"][at] = state["step"]
        self.entered.append(p)
        self.alive.append(gradient)  # until the kernel has run
        return True

    def _place(self, at: int, p: Tensor, moments: list[Tensor]) -> bool:
        for name, moment in zip(self.moments, moments, strict=True):
            if moment.shape != p.shape:
                raise mismatch(f"state {name!r}", moment.shape, p.shape)
        if not all(suits(tensor) for tensor in (p, *moments)):
            return False
        record, n = self.records[at], p.shape[0] if p.dim() > 1 else 1
        record["n"], record["i"], record["weight"] = n, p.numel() // max(1, n), p.data_ptr()
        for name, moment in zip(("first", "second"), moments, strict=False):
            record[name] = moment.data_ptr()
        self.kept[at] = moments  # so that no other tensor can take over their identity
        self.placed[at] = [p.data_ptr(), p.shape, *map(id, moments)]
        return True


def mismatch(what: str, got: tuple[int, ...], wanted: tuple[int, ...]) -> RuntimeError:
    """The error for a tensor of a shape that is not the parameter's."""
    return RuntimeError(
        f"a parameter of shape {tuple(wanted)} has a {what} of shape {tuple(got)}, as if its data had been "
        "replaced: zero the gradients after that, and give it a new optimizer"
    )
