"""Configurations: composed, checked by annotations, and built."""

import math
import re
import sys
from types import ModuleType
from typing import Annotated, Literal

import pytest
import torch
from omegaconf import OmegaConf
from pydantic import Field

from msbp.cli import explain
from msbp.config import Options, PublishOptions, ReportOptions, build, compose
from src.theory import TheoryOptions
from src.train import Request, TrainOptions

OPTIONS = {"train": TrainOptions, "report": ReportOptions, "publish": PublishOptions, "theory": TheoryOptions}


@pytest.mark.parametrize(
    ("config", "words", "sentence"),
    [
        ("train", ["+gamma=0.2"], r"there is no key gamma; was .*method\.gamma meant\?"),
        ("train", ["++epochs=3"], r"there is no key epochs; was trainer\.epochs meant\?"),
        ("train", ["+foo=1"], r"there is no key foo; there are force, .*, trainer"),
        ("report", ["+claim=overhead"], "there is no key claim; there are figure, .*paths, "),
    ],
)
def test_a_key_that_nothing_reads_is_refused(config, words, sentence):
    options = OPTIONS[config]
    options.of(compose(config=config))
    with pytest.raises(ValueError, match=sentence):
        options.of(compose(words, config))


@pytest.mark.parametrize(
    ("config", "word", "sentence"),
    [
        ("report", "records=all", "records must be 'own' or 'published', got 'all'"),
        ("report", "readme=yes", "readme must be 'write' or 'check'"),
        ("report", "paths.readme=null", "paths.readme must be text, got None"),
        ("report", "+paths.anything=1", "there is no key paths.anything"),
        ("report", "+table={name:3}", "table.name must be text"),
        ("publish", "bench=maybe", "bench must be true or false, got 'maybe'"),
        ("publish", "replace=1", "replace must be true or false, got 1"),
        ("theory", "seed=-1", "seed must be greater than or equal to 0, got -1"),
        ("theory", "seed=abc", "seed must be a whole number, got 'abc'"),
        ("theory", "+tasks=3", "there is no key tasks"),
    ],
)
def test_options_of_an_entry_point_are_refused_by_their_key(config, word, sentence):
    with pytest.raises(ValueError) as refusal:
        OPTIONS[config].of(compose([word], config))
    assert str(refusal.value).startswith(sentence)


def test_data_come_from_the_environment_unless_it_is_empty(monkeypatch):
    monkeypatch.delenv("MSBP_DATA_DIR", raising=False)
    own = compose().paths.data
    monkeypatch.setenv("MSBP_DATA_DIR", "/corpora")
    assert compose().paths.data == "/corpora" and compose().paths.ptb == "/corpora/ptb"
    assert compose(["paths.data=here"]).paths.data == "here"
    monkeypatch.setenv("MSBP_DATA_DIR", "")
    assert compose().paths.data == own


@pytest.mark.parametrize("method", ["sbp", "msbp", "weight_feedback", "peer/masked"])
def test_an_argument_that_a_constructor_refuses_is_named_by_its_key(method):
    with pytest.raises(
        ValueError, match=r"^method\.r must be less than or equal to 1, got 2; for full"
    ) as refusal:
        build(compose([f"method={method}", "method.r=2"]).method)
    assert explain(refusal.value) == str(refusal.value)


WRONG = [
    ("model.dropout=abc", "model.dropout must be a number, got 'abc'"),
    ("model.hidden=[1]", "model.hidden must be a whole number, got [1]"),
    ("model.hidden=1.5", "model.hidden must be a whole number, got 1.5"),
    ("model.name=null", "model.name must be text, got None"),
    (
        "+model.depth=3",
        "there is no key model.depth; there are dropout, hidden, inputs, layers, name, outputs",
    ),
    ("+model.lr=3", "there is no key model.lr; was optimizer.lr meant?"),
]


@pytest.mark.parametrize(("override", "message"), WRONG, ids=[override for override, _ in WRONG])
def test_a_value_of_another_type_than_the_signatures_is_refused_by_its_key(override, message):
    with pytest.raises(ValueError) as refusal:
        build(compose([override]).model, inputs=4, outputs=2)
    assert message == str(refusal.value)


def target(
    text: str, number: float | torch.Tensor, pair: tuple[float, float] = (0, 0), name: str | None = ""
):
    if name == "bad":
        raise LookupError("no such name")
    return text, number, pair, name


@pytest.fixture
def node(monkeypatch):
    """A node `top` for a target that takes text, a number, a pair and a name, with these arguments."""
    module = ModuleType("targets")
    module.target = target
    monkeypatch.setitem(sys.modules, "targets", module)

    def described(**arguments):
        whole = {"_target_": "targets.target", "text": "a", "number": 1} | arguments
        return OmegaConf.create({"top": whole}).top

    return described


REFUSED = [
    ({"pair": [0.9]}, "top.pair[1] is missing"),
    ({"pair": [0.9, "x"]}, "top.pair[1] must be a number, got 'x'"),
    ({"number": True}, "top.number must be a number or a node with a _target_, got True"),
    ({"text": 3, "number": "x"}, "top.text must be text, got 3\ntop.number must be a number or a node"),
    ({"name": {"_target_": "nowhere.at_all"}}, "top.name: Error loading 'nowhere.at_all'"),
    ({"name": "bad"}, "top: no such name"),
    ({"_partial_": []}, "top._partial_ must be true or false, got []"),
    ({"_nope_": 1}, "there is no key top._nope_; there are name, number, pair, text"),
    ({"name": {"_target_": "targets.target", "text": 1}}, "top.name.text must be text, got 1"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_each_wrong_argument_is_named_in_a_line_wherever_it_is_nested(node, arguments, message):
    with pytest.raises(ValueError) as refusal:
        build(node(**arguments))
    assert str(refusal.value).startswith(message)


def test_lists_are_accepted_for_tuples_and_integers_for_floats(node):
    assert build(node(pair=[1, 0.5])) == ("a", 1, [1, 0.5], "")
    assert math.isinf(build(node(number=float("inf")))[1])


class Small(Options):
    format: Literal["table", "json"]
    seconds: Annotated[float, Field(gt=0, description="a minute is enough")]
    only: str | list[str] | None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"format": "x"}, "format must be 'table' or 'json', got 'x'"),
        ({"seconds": 0}, "seconds must be greater than 0, got 0; a minute is enough"),
        ({"only": 3}, "only must be text or a list, got 3"),
        ({"only": ["a", 3]}, "only[1] must be text, got 3"),
        ({"x": 1}, "there is no key x; there are format, only, seconds"),
    ],
)
def test_options_of_an_entry_point_are_checked_by_their_fields(wrong, message):
    right = {"format": "json", "seconds": 1, "only": None}
    assert Small.of(OmegaConf.create(right)).model_dump() == right
    with pytest.raises(ValueError) as refusal:
        Small.of(OmegaConf.create(right | wrong))
    assert message in str(refusal.value)


@pytest.mark.parametrize("task", ["mnist", "pos_ewt", "subjectivity", "multi30k"])
def test_a_model_that_does_not_fit_the_task_is_refused_in_one_line(task):
    words = ["experiment=smoke", f"task={task}", "paths.offline=true"]
    sizes = Request.of(compose(words)).task.splits(0).sizes
    refused = 0
    for model in ("mlp", "parser", "bilstm", "textcnn", "seq2seq", "transformer"):
        try:
            Request.of(compose([*words, f"model={model}", "model.hidden=48"])).model(sizes)
        except ValueError as error:
            reason = "(takes no|needs) .*; leave model= out"
            pattern = rf"^model={model} does not fit the task's data: it {reason}"
            assert re.search(pattern, str(error)) and "\n" not in str(error)
            refused += 1
    assert refused in (4, 5)
