"""A schedule of the sparse backward pass by training step; a module a library has its trainer's callback."""

from contextlib import ExitStack
from dataclasses import dataclass, field

from torch import nn

from ..sparse import entries_kept
from ..sparse.status import Sparse
from ..sparse.unpropagated import unpropagated


@dataclass
class SparseSchedule:
    """A dense warm-up, a sparse ratio that changes, and a log of both.

    Attributes:
        dense_steps: number of first steps with a dense backward pass.
        r: sparse ratio at the end of the warm-up and after `r_steps` more, changed geometrically between
            them; None leaves every layer's k as `convert` set it.
        log_every: steps between two logs of k and of the unpropagated share of the gradient, 0 for none. A
            logged step runs in plain torch.
    """

    dense_steps: int = 0
    r: tuple[float, float] | None = None
    r_steps: int = 0
    log_every: int = 0
    _open: ExitStack = field(default_factory=ExitStack, init=False, repr=False, compare=False)
    _shares: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("dense_steps", "r_steps", "log_every"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        if self.r is not None and not all(0 < ratio <= 1 for ratio in self.r):
            raise ValueError(f"r must be two ratios in (0, 1], got {self.r}")

    def ratio(self, step: int) -> float | None:
        """Return the sparse ratio of a step, or None where the schedule does not set it."""
        if self.r is None:
            return None
        first, last = self.r
        done = min(1.0, max(0, step - self.dense_steps) / self.r_steps) if self.r_steps else 1.0
        return first * (last / first) ** done

    def before_step(self, model: nn.Module, step: int) -> None:
        """Set k and the mode of all sparse layers for a step, counted from 0."""
        self._open.close()
        layers, ratio = [m for m in model.modules() if isinstance(m, Sparse)], self.ratio(step)
        for layer in layers:
            layer.enabled = step >= self.dense_steps
            if ratio is not None:
                layer.k = entries_kept(ratio, layer.out_features)
        if self.log_every and step % self.log_every == 0:
            self._shares = self._open.enter_context(unpropagated(model))

    def after_step(self, model: nn.Module) -> dict[str, float]:
        """Return what a step logs: the sum of k, and the mean unpropagated share of the squared gradient."""
        self._open.close()
        shares, self._shares = self._shares, {}
        if not shares:
            return {}
        layers = [m for m in model.modules() if isinstance(m, Sparse)]
        k = sum(layer.k if layer.enabled else layer.out_features for layer in layers)
        return {"msbp/k": float(k), "msbp/unpropagated": sum(shares.values()) / len(shares)}
