"""What the models refuse of their settings; ValueError names the key as the command line has it."""

from collections.abc import Collection


def check_counts(**counts: object) -> None:
    """Each is a whole number of at least 1."""
    for key, value in counts.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"model.{key} must be a whole number of at least 1, got {value!r}")


def check_choice(key: str, got: str, known: Collection[str]) -> None:
    """The value of a key is a known one."""
    if got not in known:
        raise ValueError(f"model.{key} must be one of {', '.join(known)}, got {got!r}")


def check_shares(**shares: float) -> None:
    """Each is a share below 1, such as dropout's."""
    for key, value in shares.items():
        if not 0 <= value < 1:
            raise ValueError(f"model.{key} must be in [0, 1), got {value}; 0 leaves it out")
