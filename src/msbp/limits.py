"""What is refused of settings; ValueError names the key as on the command line, such as task.batch_size."""

import math
from collections.abc import Collection

MOST = 2**31 - 1  # so that products of two fit what torch counts with


def check_counts(group: str, least: int = 1, **counts: object) -> None:
    """Each is a whole number, of at least that and at most MOST."""
    for key, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{group}.{key} must be a whole number of at least {least}, got {value!r}")
        if value > MOST:
            raise ValueError(f"{group}.{key} must be a whole number of at most {MOST}, got {value}")


def check_choice(key: str, got: object, known: Collection[str]) -> None:
    """The value of a key is a known one."""
    if got not in known:
        raise ValueError(f"{key} must be one of {', '.join(known)}, got {got!r}")


def check_shares(group: str, **shares: float) -> None:
    """Each is a share below 1, such as dropout's."""
    for key, value in shares.items():
        if not 0 <= value < 1:
            raise ValueError(f"{group}.{key} must be in [0, 1), got {value}; 0 leaves it out")


def check_scales(group: str, **scales: float) -> None:
    """Each is finite and at least 0."""
    for key, value in scales.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{group}.{key} must be finite and at least 0, got {value}")
