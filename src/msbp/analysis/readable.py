"""JSON that may be damaged or foreign: what its readers count on, or a sentence about what is wrong."""

import json
from collections.abc import Mapping
from typing import Any

from ..kinds import fits
from ..record import at


def parsed(text: bytes | str) -> Any:
    """The value; ValueError unless the text is whole JSON, whose numbers are numbers."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not whole JSON ({error})") from error


def check(tree: Any, kinds: Mapping[str, Any], name: str) -> None:
    """ValueError unless it is a node whose values at these dotted keys, * for any, are of these kinds."""
    if not isinstance(tree, dict):
        raise ValueError(f"not a {name} but a {type(tree).__name__}")
    wrong = [key for key, kind in kinds.items() if not all(fits(value, kind) for value in at(tree, key))]
    if wrong:
        raise ValueError(f"missing or of the wrong type in a {name}: {', '.join(wrong)}")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")
