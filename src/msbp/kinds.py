"""Whether plain values, of a configuration or of JSON, are of the kinds that annotations name."""

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

WORDS: dict[Any, str] = {
    bool: "true or false", int: "a whole number below 2**63", float: "a number", str: "text",
    NoneType: "null", Path: "text", Sequence: "a list", list: "a list", tuple: "a list",
    dict: "a node", Mapping: "a node", Callable: "a node with a _target_",
}  # fmt: skip
PLAIN = (bool, int, float, str, NoneType)
SEQUENCES = (list, tuple, Sequence)
LARGEST = 2**63 - 1  # of torch's and numpy's whole numbers


def expect(key: str, value: Any, kind: Any) -> None:
    """ValueError unless the value of a key is of the annotated kind."""
    if not fits(value, kind):
        kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
        outer = [get_origin(one) or one for one in kinds]
        wanted = " or ".join(dict.fromkeys(WORDS.get(one) or f"a node for {one.__name__}" for one in outer))
        raise ValueError(f"{key} must be {wanted}, got {value!r}")


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of an annotated kind; of those that hold others the outermost counts."""
    outer = get_origin(kind) or kind
    if outer in (Union, UnionType):
        return any(fits(value, one) for one in get_args(kind))
    if outer in (int, float) and isinstance(value, int | float):
        whole = isinstance(value, int) and abs(value) <= LARGEST
        return not isinstance(value, bool) and (whole or outer is float)
    if outer in SEQUENCES:
        return isinstance(value, Sequence) and not isinstance(value, str)
    if outer in (dict, Mapping):
        return isinstance(value, Mapping)
    if outer in PLAIN:
        return isinstance(value, outer)
    told = isinstance(outer, type) and outer not in (Any, Parameter.empty)  # of a class, by a node alone
    return not (told and isinstance(value, PLAIN))
