"""Stage: a linear layer with the activation and dropout behind it, the unit of the paper's section 4.2."""

from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from ..memory import GradientMemory
from .activations import IDENTITY, Activation


class Sparse(Protocol):
    """What a stage asks of a SparseLinear."""

    k: int
    enabled: bool
    unified: bool
    dense_bias: bool
    memory: GradientMemory | None

    def estimate(self, grad_h: Tensor) -> tuple[Tensor, Tensor | None]: ...
    def finish(self, m: Tensor | None) -> None: ...
    def refuse(self) -> Any: ...


class Stage(NamedTuple):
    """`sparse` is the linear layer again if its backward pass is sparse, else None."""

    linear: nn.Linear
    sparse: Sparse | None = None
    activation: Activation = IDENTITY
    dropout: nn.Dropout | None = None

    @property
    def p(self) -> float:
        """The share that dropout drops at present."""
        return self.dropout.p if self.dropout is not None and self.dropout.training else 0.0

    @property
    def k(self) -> int:
        """Entries kept at present; 0 where the backward pass is plain."""
        return self.sparse.k if self.sparse is not None and self.sparse.enabled else 0

    @property
    def settings(self) -> tuple[int, Any, float]:
        """What a workspace is laid out for: k, the memory and its gamma at present."""
        memory = self.linear._modules.get("memory")  # nn.Module's own way to it takes a microsecond
        return self.k, memory, 0.0 if memory is None else memory.__dict__["gamma"]
