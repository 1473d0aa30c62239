"""SparseConv1D: transformers' Conv1D, a linear layer with a transposed weight, with a sparse backward pass.

Letters: i inputs, n outputs.
"""

import importlib
import sys
from functools import cache
from typing import Any

from torch import nn

from .autograd import Parameters, StageRun
from .linear import SparseLayer

MODULE = "transformers.pytorch_utils"


class TransposedRun(StageRun):
    """A stage whose weight (i, n) is transposed in each forward pass, at little cost beside its product."""

    def parameters(self) -> Parameters:
        weight, bias = super().parameters()
        assert weight is not None
        return [weight.t().contiguous(), bias]


class TransposedLayer(SparseLayer):
    """A SparseLinear whose weight is (i, n); its gradient is dense."""

    run_class = TransposedRun
    nf: int

    @property
    def out_features(self) -> int:  # type: ignore[override]
        """Return the number of outputs."""
        return self.nf


def conv1d() -> type[nn.Module] | None:
    """Return transformers' Conv1D, or None where nothing has imported it."""
    return getattr(sys.modules.get(MODULE), "Conv1D", None)


@cache
def sparse_conv1d(plain: Any) -> Any:
    """Return SparseConv1D, which derives from transformers' class."""
    return type("SparseConv1D", (TransposedLayer, plain), {"plain": plain, "__module__": __name__})


def __getattr__(name: str) -> Any:
    """Return SparseConv1D, for pickle."""
    if name == "SparseConv1D":
        return sparse_conv1d(importlib.import_module(MODULE).Conv1D)
    raise AttributeError(f"module {__name__} has no attribute {name}")
