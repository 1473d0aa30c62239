"""Controls of the gradient memory: what is added to ∂ℓ/∂h instead, to learn what the memory does.

Letters: B batch, n width, R rows of the memory (1, or one an example). Each keeps something of m and destroys
the rest: `permuted` its norm and histogram, not which unit an entry belongs to; `noise` its norm alone;
`masked` all of it, but adds it only where a unit has a gradient of its own.
"""

from abc import ABC

import torch
from torch import Tensor, nn

from .running import Draws


class MemoryControl(nn.Module, ABC):
    """Replaces the memory m (R, n) where it is stored, or where it is added to ∂ℓ/∂h (B, n)."""

    changes_sum = False  # whether ∂ℓ/∂h + m is not what the kernels form

    def stored(self, m: Tensor) -> Tensor:
        """Return what is stored in place of m, and added by the next backward pass."""
        return m

    def added(self, m: Tensor, grad_h: Tensor) -> Tensor:
        """Return what is added to ∂ℓ/∂h in place of m, (R, n) or (B, n); the rest of m stays stored."""
        return m


class Permuted(MemoryControl):
    """m under a fresh random permutation of the units: its norm and histogram without its direction."""

    def __init__(self, name: str = ""):
        super().__init__()
        self.draws = Draws(f"{name} memory")

    def stored(self, m: Tensor) -> Tensor:
        return m[:, torch.randperm(m.shape[1], generator=self.draws()).to(m.device)]


class Noise(MemoryControl):
    """Gaussian noise of the norm of each row of m."""

    def __init__(self, name: str = ""):
        super().__init__()
        self.draws = Draws(f"{name} memory")

    def stored(self, m: Tensor) -> Tensor:
        noise = torch.randn(m.shape, generator=self.draws(), dtype=torch.float32).to(m)
        return noise * (m.norm(dim=1, keepdim=True) / noise.norm(dim=1, keepdim=True))


class Masked(MemoryControl):
    """m where the unit's own ∂ℓ/∂h is not zero; the rest of m waits in the memory.

    The paper adds m everywhere, also to units behind a ReLU that is off, whose weights then move although the
    loss of the example does not depend on them.
    """

    changes_sum = True

    def __init__(self, name: str = ""):
        super().__init__()

    def added(self, m: Tensor, grad_h: Tensor) -> Tensor:
        return torch.where(grad_h != 0, m, 0)


MEMORY_CONTROLS = {"permuted": Permuted, "noise": Noise, "masked": Masked}
