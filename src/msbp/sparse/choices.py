"""Choices that sparse layers of all kinds have, and what they may be."""

from numbers import Real
from typing import Any

from .memory import MEMORIES
from .sparsifiers import SPARSIFIERS

BIAS_GRADIENTS = {"sparse": False, "full": True}


def check_choices(gamma: float, memory: str, selection: str, bias_gradient: str) -> None:
    """ValueError unless the choices exist and go together."""
    if not (is_number(gamma) and 0 <= gamma <= 1):
        raise ValueError(
            f"memory ratio gamma must be a number in [0, 1], got {gamma!r}; 0 is SBP, without memory"
        )
    known: list[tuple[str, str, dict[str, Any]]] = [
        ("memory", memory, MEMORIES),
        ("selection", selection, SPARSIFIERS),
        ("bias", bias_gradient, BIAS_GRADIENTS),
    ]
    for what, got, choices in known:
        if got not in choices:
            raise ValueError(f"unknown {what} {got!r}: choose from {', '.join(choices)}")
    if memory == "sequential" and selection == "unified":
        raise ValueError(
            "memory=sequential passes from example to example, but selection=unified needs the whole "
            "batch at once; choose another memory, or selection=per_example"
        )


def is_number(value: object) -> bool:
    """Whether it is a real number, and no bool."""
    return isinstance(value, Real) and not isinstance(value, bool)
