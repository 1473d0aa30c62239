"""The table that an optimizer's kernel reads: a record for each parameter of a group, in order."""

from typing import Any

import numpy as np
from torch import Tensor

from .factored import Factors
from .kernels.update import UPDATE
from .node import suits


class Table:
    """A record without gradient is skipped. Addresses of parameters are written when one has moved.

    moments: names of the optimizer's state tensors that the kernel calls first and second.
    """

    def __init__(self, parameters: list[Tensor], moments: tuple[str, ...]):
        self.parameters, self.moments = parameters, moments
        self.addresses: list[list[int]] = [[] for _ in parameters]
        self.records = np.zeros(len(parameters), UPDATE)
        self.address = self.records.ctypes.data
        self.column = {name: self.records[name] for name in UPDATE.names or ()}
        self.entered: list[tuple[Tensor, Tensor | Factors]] = []

    def clear(self) -> None:
        """Begin a step: no record has a gradient."""
        self.column["grad"][:] = self.column["B"][:] = 0
        self.entered = []

    def enter(self, at: int, gradient: Tensor | Factors, state: dict[str, Any]) -> bool:
        """Enter a parameter's gradient; False if a kernel cannot take it."""
        p, column = self.parameters[at], self.column
        tensors = [p, *[state[moment] for moment in self.moments]]
        addresses = [tensor.data_ptr() for tensor in tensors]
        if addresses != self.addresses[at]:
            if not all(suits(tensor) for tensor in tensors):
                return False
            self._place(at, p, addresses)
        if isinstance(gradient, Factors):
            for name in ("values", "columns", "x"):
                column[name][at] = getattr(gradient, name).data_ptr()
            column["limit"][at], (column["B"][at], column["k"][at]) = gradient.limit, gradient.values.shape
            if "last_step" in state:
                column["last_step"][at] = state["last_step"].data_ptr()
        elif suits(gradient):
            column["grad"][at] = gradient.data_ptr()
        else:
            return False
        column["step"][at] = state["step"]
        self.entered.append((p, gradient))  # alive until the kernel has run
        return True

    def _place(self, at: int, p: Tensor, addresses: list[int]) -> None:
        record = self.records[at]
        record["n"], record["i"] = (p.shape[0], p.numel() // max(1, p.shape[0])) if p.dim() > 1 else (1, p.numel())
        for name, address in zip(("weight", "first", "second"), addresses, strict=False):
            record[name] = address
        self.addresses[at] = addresses
