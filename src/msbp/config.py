"""The configuration: composed from conf/, checked by the annotations of what it describes, and built."""

import inspect
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from pydoc import locate
from typing import Annotated, Any, Literal, Self, get_type_hints

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    model_validator,
    with_config,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from .files import Fields, file_name

ROOT = Path(__file__).resolve().parents[2]
CONF = str(ROOT / "conf")
STRICT = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True)
NODE = "a node with a _target_"
HYDRA_KEYS = {"_target_": str, "_partial_": bool, "_recursive_": bool, "_convert_": str, "_args_": list}
WORDS = {  # instead of pydantic's, by type of error
    "bool_type": "true or false", "int_type": "a whole number", "int_from_float": "a whole number",
    "float_type": "a number", "string_type": "text", "none_required": "null", "list_type": "a list",
    "tuple_type": "a list", "dict_type": NODE, "callable_type": NODE, "needs_python_object": NODE,
    "is_instance_of": NODE, "model_type": "a node",
}  # fmt: skip


def folder(key: str, value: object) -> Path:
    """Return the folder that a key names; ValueError unless it is text."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(
            f"{key} must be the name of a folder, got {value!r}; leave it out for the project's own"
        )
    return Path(value)


def _resolver(name: str, function: Callable[..., object], cached: bool = False) -> None:
    OmegaConf.register_new_resolver(name, function, use_cache=cached, replace=True)


_resolver("project", lambda name: str(ROOT / name))
_resolver("data_dir", lambda: os.environ.get("MSBP_DATA_DIR") or str(ROOT / "data"))
_resolver("folder", lambda key, value: str(folder(key, value)))
# a name of the user's is a part of a folder's name, never a way to another folder
_resolver("word", file_name)
# cached, so that all jobs of one sweep agree on its folder; two runs of the same second still differ
_resolver("unique", lambda: secrets.token_hex(3), cached=True)


def compose(overrides: Sequence[str] = (), config: str = "train", hydra: bool = False) -> DictConfig:
    """Return the configuration of `python -m src.CONFIG OVERRIDES`; also within a Hydra main.

    hydra: with Hydra's own part, which names the files chosen.
    """
    application, GlobalHydra.instance().hydra = GlobalHydra.instance().hydra, None
    try:
        with initialize_config_dir(CONF, version_base="1.3"):
            return hydra_compose(config, overrides=list(overrides), return_hydra_config=hydra)
    finally:
        GlobalHydra.instance().hydra = application


def _named(name: str) -> str:
    if not name.strip():
        raise PydanticCustomError("blank", "Input should be the name of a file or folder")
    return name


Name = Annotated[str, AfterValidator(_named)]


class Paths(BaseModel):
    """Folders of data and outputs, and whether all there is must be there already (conf/paths)."""

    model_config = STRICT

    data: Name
    outputs: Name
    published: Name
    ptb: Name
    nist: Name
    offline: bool


class Options(BaseModel):
    """Options of an entry point: its keys in conf/ with the type and range of each.

    The description of a field says what to do about a wrong value, and ends the error message.
    """

    model_config = STRICT

    @classmethod
    def of(cls, cfg: DictConfig) -> Self:
        """Return the options in a configuration; ValueError names the wrong keys."""
        try:
            return cls.model_validate(OmegaConf.to_container(cfg, resolve=True))
        except ValidationError as error:
            raise ValueError(_paragraph(error, cfg, get_type_hints(cls, include_extras=True))) from error


class ReportPaths(Paths):
    """The folders, and the file whose tables are rendered anew."""

    readme: Name


class TableOrFigure(BaseModel):
    """A file of conf/table or conf/figure."""

    name: Name


class ChoosingOptions(Options):
    """Options that choose a table, a figure, both or neither."""

    table: TableOrFigure | None = None
    figure: TableOrFigure | None = None

    @property
    def choice(self) -> str:
        """The words that choose a table and a figure; empty if there are none."""
        every = {"table": self.table, "figure": self.figure}
        return " ".join(f"{group}={chosen.name}" for group, chosen in every.items() if chosen)


class ReportOptions(ChoosingOptions):
    """Options of `python -m src.report`."""

    paths: ReportPaths
    records: Literal["own", "published"]
    readme: Literal["write", "check"] | None

    @model_validator(mode="after")
    def _has_no_idle_options(self) -> Self:
        """Return the options; ValueError where one has no effect beside another."""
        if self.readme and self.choice:
            raise ValueError(
                f"readme={self.readme} renders all that is published, not {self.choice} alone; leave it out"
            )
        return self


class PublishOptions(ReportOptions):
    """Options of scripts/publish.py."""

    bench: bool
    translations: bool
    allow_dirty: bool
    replace: bool

    @model_validator(mode="after")
    def _has_no_idle_options(self) -> Self:
        if self.readme or self.records != "own":
            word = f"readme={self.readme}" if self.readme else f"records={self.records}"
            raise ValueError(
                f"{word} is for python -m src.report; this publishes the user's own measurements and renders "
                "the READMEs in any case: leave it out"
            )
        if (self.translations or self.replace) and not self.choice:
            word = "translations" if self.translations else "replace"
            raise ValueError(f"{word}=true is about runs; choose them by table= or figure=, or leave it out")
        return self


def build(node: DictConfig, **arguments: object) -> Any:
    """Return the object that a node describes; ValueError names the wrong keys.

    arguments: what the node does not have, such as sizes of the data.
    """
    check(node)
    try:
        return instantiate(node, _convert_="all", **arguments)
    except InstantiationException as error:
        cause, key = error.__cause__ or error, re.search(r"full_key: (\S+)", str(error))
        if not key:
            raise ValueError(str(cause)) from error
        if isinstance(cause, ValidationError):
            if misfit := _misfit(cause, node):
                raise ValueError(misfit) from error
            at = OmegaConf.select(node._get_root(), key[1])
            raise ValueError(_paragraph(cause, at, parameters(at._target_) or {})) from error
        raise ValueError(f"{key[1]}: {cause}") from error


def _misfit(error: ValidationError, node: DictConfig) -> str:
    """Return the message that a node does not fit its caller's arguments; empty for other errors."""
    given = [str(one["loc"][-1]) for one in error.errors() if one["type"] == "unexpected_keyword_argument"]
    lacking = [str(one["loc"][-1]) for one in error.errors() if one["type"].startswith("missing")]
    words = [f"takes no {', '.join(given)}"] * bool(given) + [f"needs {', '.join(lacking)}"] * bool(lacking)
    key = node._get_full_key(None)
    if not words:
        return ""
    return (
        f"{key}={node.get('name', node.get('_target_'))} does not fit the task's data: it "
        f"{' and '.join(words)}; leave {key}= out for the task's own"
    )


def check(node: DictConfig) -> None:
    """Raise ValueError unless targets take the arguments that this node and those below have for them.

    Missing arguments are no error.
    """
    plain = OmegaConf.to_container(node, resolve=True)
    assert isinstance(plain, dict)
    below = [str(key) for key, value in plain.items() if isinstance(value, dict) and "_target_" in value]
    for key in below:
        check(node[key])
    takes = parameters(str(plain.get("_target_")))
    if takes is None:
        return
    text = json.dumps(plain, ensure_ascii=False)  # in JSON a list may stand for a tuple
    hints = takes | HYDRA_KEYS | dict.fromkeys({*below} & {*takes}, Any)
    arguments: Any = TypedDict("arguments", hints, total=False)  # type: ignore[misc]  # keys of a signature
    try:
        TypeAdapter(with_config(STRICT)(arguments)).validate_json(text.encode("utf-8", "replace"))
    except PydanticUserError:
        return  # an annotation in a library that pydantic cannot read
    except ValidationError as error:
        raise ValueError(_paragraph(error, node, takes)) from error


def parameters(name: str) -> Fields | None:
    """Return a callable's annotations by parameter; None if it takes any, or cannot be imported."""
    try:
        target = locate(name)
        assert callable(target)
        every = inspect.signature(target, eval_str=True).parameters
    except Exception:  # `instantiate` says what is wrong with the name
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in every.values()):
        return None
    empty = inspect.Parameter.empty
    return {key: Any if each.annotation is empty else each.annotation for key, each in every.items()}


def _paragraph(error: ValidationError, node: DictConfig, takes: Fields) -> str:
    """Return what came, what is valid and what to do, in a line for each wrong key below a node.

    takes: annotations by key; the description of one says what to do.
    """
    at, plain = node._get_full_key(None), OmegaConf.to_container(node, resolve=True)
    valid: dict[str, list[str]] = {}
    lines: dict[str, str] = {}
    for one in error.errors():
        steps, value = _inside(plain, one["loc"])
        key = _dotted(at, steps)
        if one["type"] == "value_error":
            lines[key] = str(one["ctx"]["error"])  # a sentence of our own, which names its key
        elif one["type"] == "missing":
            key = _dotted(at, one["loc"])
            lines[key] = f"{key} is missing"
        elif one["type"] == "extra_forbidden":
            lines[key] = unknown_key(node, key, takes)
        else:
            word = WORDS.get(one["type"])
            phrase = f"be {word}" if word else one["msg"].partition(" should ")[2]
            phrases = valid.setdefault(key, [])
            phrases += [phrase] * (phrase not in phrases)
            hint = _description(takes.get(str(one["loc"][0])))
            must = " or ".join(phrases).replace(" or be ", " or ")
            lines[key] = f"{key} must {must}, got {value!r}{hint and '; '}{hint}"
    return "\n".join(lines.values())


def _inside(value: Any, loc: Sequence[int | str]) -> tuple[list[int | str], Any]:
    """Return the steps of a location that lead into a value, without names of alternatives, and their end."""
    steps: list[int | str] = []
    for step in loc:
        keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        if step in keys:
            value = value[step]
            steps.append(step)
    return steps, value


def _dotted(at: str, steps: Sequence[int | str]) -> str:
    below = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return f"{at}{below}".removeprefix(".")


def _description(annotation: object) -> str:
    """Return the description of an annotation's Field, which says what to do about a wrong value."""
    fields = [field for field in getattr(annotation, "__metadata__", ()) if isinstance(field, FieldInfo)]
    return next((field.description for field in fields if field.description), "")


def unknown_key(node: DictConfig, key: str, known: Iterable[str]) -> str:
    """Return the message that there is no such key, with those that end in the same name, else all."""
    same = _ending(node._get_root(), key.rpartition(".")[2])
    meant = " or ".join(name for name in same if name != key)
    instead = f"was {meant} meant?" if meant else f"there are {', '.join(sorted(known)) or 'none'}"
    return f"there is no key {key}; {instead}"


def _ending(node: Any, name: str, above: str = "") -> Iterator[str]:
    """Yield the dotted keys below a node that end in name."""
    for key in map(str, node) if OmegaConf.is_dict(node) else ():
        if above and key == name:
            yield above + key
        if not OmegaConf.is_missing(node, key) and not OmegaConf.is_interpolation(node, key):
            yield from _ending(node[key], name, f"{above}{key}.")
