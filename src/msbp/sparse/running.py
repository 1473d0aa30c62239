"""State of a layer that moves on in training beside the gradient memory: random draws and running levels.

It is a buffer that is not in the state_dict, as the memory is; `state` and `load` are for checkpoints.
"""

import zlib
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from .kernels.simd import KEY_STEP

WORD = 0xFFFFFFFF


class RunningState(nn.Module):
    """A module whose buffer `state` is all that its next call depends on."""

    state: Tensor

    def __init__(self, state: Tensor):
        super().__init__()
        self.register_buffer("state", state, persistent=False)

    def load(self, state: Tensor) -> None:
        """Load a saved state; ValueError if it is of another kind."""
        if state.shape != self.state.shape or state.dtype != self.state.dtype:
            raise ValueError(
                f"{type(self).__name__} got a state of shape {tuple(state.shape)} and type {state.dtype}; "
                "load it into the model and method that it came from"
            )
        self.state = state.to(self.state.device, copy=True)


class Draws(RunningState):
    """Random generators of a layer's own, a fresh one at each call: torch's own generator is not used.

    The state is a key, which depends on torch's seed and the name alone, and the number of calls.
    """

    def __init__(self, name: str):
        key = zlib.crc32(f"{torch.initial_seed()} {name}".encode())
        super().__init__(torch.tensor([key, 0], dtype=torch.int64, device="cpu"))

    def forward(self) -> torch.Generator:
        """Return the next generator, on the CPU."""
        key, count = self.state.tolist()
        self.state[1] += 1
        return torch.Generator().manual_seed((key + KEY_STEP * count) & WORD)


class Level(RunningState):
    """A number that a controller moves, so that on average as many entries are kept as requested.

    Not a number until `begin` sets it. Float64, whatever the type of the model.
    """

    rate = 0.1  # by how much a step moves it that keeps twice as many as requested, or none

    def __init__(self) -> None:
        super().__init__(torch.tensor([float("nan")], dtype=torch.float64, device="cpu"))

    @property
    def begun(self) -> bool:
        return not bool(self.state.isnan())

    def begin(self, value: float) -> None:
        self.state.fill_(value)

    def move(self, kept: float, requested: float) -> None:
        """Raise the level where more entries were kept than requested, and lower it where fewer were."""
        self.state += self.rate * max(-1.0, min(1.0, kept / requested - 1))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        return self  # casts and moves of the model leave a single number of the CPU alone


def running_states(model: nn.Module) -> dict[str, RunningState]:
    """Return the running states of a model by dotted name, to save and load them in checkpoints."""
    return {name: module for name, module in model.named_modules() if isinstance(module, RunningState)}
