"""Trainings whose losses are compared: settings of convert, by the name of their column."""

import re
from dataclasses import dataclass
from typing import Any

FEED_FORWARD = re.compile(r"(?<!attention\.)\b(intermediate|output)\.dense|\b(ffn|mlp|DenseReluDense)\.")


@dataclass(frozen=True)
class Setting:
    """Arguments of convert; r = None leaves the model plain. feed_forward: other layers stay dense."""

    r: float | None = None
    memory: str = "shared"
    feed_forward: bool = False

    @property
    def name(self) -> str:
        """Return the name of its losses."""
        if self.r is None:
            return "dense"
        words = [str(self.r)]
        if self.memory != "shared":
            words.append(self.memory.replace("_", " "))
        if self.feed_forward:
            words.append("feed-forward")
        return ", ".join(words)

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the arguments of convert."""
        layers = {"layers": FEED_FORWARD} if self.feed_forward else {}
        return {"r": self.r, "memory": self.memory, **layers}


TIMES = "speed"  # the column of all models' times, beside those of trainings
PLAIN = Setting()
FUSED = Setting(1.0)  # by `fuse` in place of convert
GENTLE = Setting(0.1, "per_slot", feed_forward=True)  # what costs transformers the least learning
SPEED_SETTING = Setting(0.04)
TRAININGS = {
    setting.name: setting
    for setting in (
        PLAIN,
        SPEED_SETTING,
        Setting(0.1),
        Setting(0.1, "per_slot"),
        GENTLE,
    )
}
