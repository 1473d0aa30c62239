"""Objects that nodes of the configuration describe; what they take is what their signatures say."""

import inspect
import re
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf

from .kinds import expect


def build(node: DictConfig, **arguments: Any) -> Any:
    """The object that a node of the configuration describes; ValueError says which node and why not."""
    check(node)
    try:
        return instantiate(node, _convert_="all", **arguments)
    except InstantiationException as error:
        key = re.search(r"full_key: (\S+)", str(error))
        place = f"{key[1]}: " if key else ""
        raise ValueError(f"{place}{error.__cause__ or error}") from error


def check(node: DictConfig) -> None:
    """ValueError for a value, here or in nodes below, that the target does not take or of another type."""
    takes = parameters(node.get("_target_"))
    for key in map(str, node):
        value = node[key]
        if OmegaConf.is_dict(value) and "_target_" in value:
            check(value)
        if not takes or key.startswith("_"):
            continue
        if key not in takes:
            raise ValueError(
                f"{node._get_full_key(key)} is not there to set: {node._target_} takes {', '.join(takes)}"
            )
        expect(node._get_full_key(key), value, takes[key])


def parameters(target: Any) -> dict[str, Any]:
    """The annotations of a callable by parameter; nothing if it takes any, or does not tell."""
    try:
        found = inspect.signature(get_object(target), eval_str=True).parameters
    except (
        Exception
    ):  # a name that is none is told by `instantiate`, a callable without signature is not judged
        return {}
    if any(one.kind is one.VAR_KEYWORD for one in found.values()):
        return {}
    return {name: one.annotation for name, one in found.items()}
