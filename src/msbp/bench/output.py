"""How much of the backward pass the dense output layer takes, which no method makes sparse."""

import time
from typing import Any

from torch import nn

from ..training.clock import PHASES
from .rows import Row

STEPS = 3


def output_share(row: Row) -> float | None:
    """The layer's part of some further steps' backward passes; None where it is not a layer of its own."""
    layer = getattr(row.run.model, "output", None)
    if type(layer) is not nn.Linear:
        return None
    watch = Watch()
    hooks = [
        layer.register_full_backward_pre_hook(watch.start),
        layer.register_full_backward_hook(watch.stop),
    ]
    try:
        steps = row.steps(STEPS)
    finally:
        for hook in hooks:
            hook.remove()
    return watch.seconds / float(steps[:, PHASES.index("backward")].sum())


class Watch:
    """Seconds between the arrival of a layer's gradient and the end of what it computes from that."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def start(self, *_: Any) -> None:
        self.seconds -= time.perf_counter()

    def stop(self, *_: Any) -> None:
        self.seconds += time.perf_counter()
