"""JSON and CSV: how results are written, and how what may be damaged or foreign is read."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from .kinds import fits


def json_text(value: Any, indent: int | None = None) -> str:
    """The value in JSON with a line feed at its end; ValueError for what is no number there, as nan."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent) + "\n"


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """One row a line under the first one's keys; empty where there is no value, or no row."""
    if not rows:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


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


def at(tree: Any, key: str) -> list[Any]:
    """The values of a tree at a dotted key; Ellipsis stands for what is not there."""
    name, _, rest = key.partition(".")
    here = tree if isinstance(tree, dict) else {}
    below = list(here.values()) if name == "*" else [here.get(name, ...)]
    return [value for one in below for value in at(one, rest)] if rest else below


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")
