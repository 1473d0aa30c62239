"""Each measured model is measured on its task, and a measurement that was interrupted goes on."""

import copy
import json
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace

import pytest
import torch

pytest.importorskip("transformers")

from msbp.sparse import layers
from msbp.training import machine
from scripts.measure_models import measure as script
from scripts.measure_models.models import MODELS
from scripts.measure_models.table import rendered
from scripts.measure_models.trainings import TRAININGS

pytestmark = pytest.mark.filterwarnings("ignore")
PLAN = script.Plan(rounds=1, steps=1, seeds=(0,))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_measured_on_its_task(name, monkeypatch):
    monkeypatch.setattr(layers, "MIN_WIDTH", 128)  # convert's own, which other tests lower
    model = replace(MODELS[name], width=min(128, MODELS[name].width))
    outcome = script.speed(model, (2, 9), rounds=1)
    if model.width < 128:
        assert not outcome and not script.layers(model)["converted"]
    else:
        assert script.layers(model)["converted"] >= 1
        assert min(*outcome["bp_ms"], *filter(None, outcome["total_ms"])) > 0
        alone = script.GENTLE.name in script.applicable(model)
        assert (outcome["total_ms"][-1] is not None) == alone


@pytest.fixture
def measured(monkeypatch):
    """Return the names of what is measured, in place of measuring."""
    names = []
    monkeypatch.setattr(script, "speed", lambda model, *_: names.append(model.key) or {})
    monkeypatch.setattr(script, "layers", lambda model: {"converted": 1, "linear": 2, "parameters": 3})
    monkeypatch.setattr(script, "final_loss", lambda *_: names.append("loss") or 0.5)
    monkeypatch.setattr(script, "ProcessPoolExecutor", Inline)
    return names


class Inline:
    """An executor that runs each call at once."""

    def __init__(self, *_):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, function, *arguments):
        future: Future = Future()
        future.set_result(function(*arguments))
        return future


def test_an_interrupted_measurement_goes_on_where_it_stopped(measured, tmp_path, monkeypatch):
    out = tmp_path / "models.json"
    complete, stop = script.Parts.add, len(MODELS)
    times = len(MODELS) * len({1, machine.cores()})
    trainings = sum(len(script.trainings_of(model)) for model in MODELS.values())

    def add(self, name, value):
        if len(self.found) == stop:
            raise KeyboardInterrupt
        complete(self, name, value)

    monkeypatch.setattr(script.Parts, "add", add)
    with pytest.raises(KeyboardInterrupt):
        script.measure(PLAN, out, allow_dirty=True)
    first = list(measured)
    measured.clear()
    monkeypatch.setattr(script.Parts, "add", complete)
    script.measure(PLAN, out, allow_dirty=True)
    outcome = json.loads(out.read_text())
    assert len([*first, *measured]) == times + trainings + 1  # what was under way is measured again
    assert [row["name"] for row in outcome["models"]] == [model.name for model in MODELS.values()]
    assert not out.with_suffix(".parts").exists() and rendered(outcome)


def test_results_that_a_file_has_are_kept_with_their_commits(measured, tmp_path, monkeypatch):
    out = tmp_path / "models.json"
    commit = iter("abc")
    describe = machine.describe
    monkeypatch.setattr(machine, "describe", lambda device: describe(device) | {"commit": next(commit)})
    monkeypatch.setattr(script, "TRAININGS", {name: TRAININGS[name] for name in ("dense", "0.04")})
    script.measure(PLAN, out, allow_dirty=True)
    first = json.loads(out.read_text())
    measured.clear()
    monkeypatch.setattr(script, "TRAININGS", {name: TRAININGS[name] for name in ("dense", "0.04", "0.1")})
    script.measure(PLAN, out, allow_dirty=True, keep=[out])
    second = json.loads(out.read_text())
    assert measured == ["loss"] * sum(model.learns for model in MODELS.values())
    assert second["commits"] == {"speed": ["a"], "dense": ["a"], "0.04": ["a"], "0.1": ["b"]}
    for old, new in zip(first["models"], second["models"], strict=True):
        assert old["losses"].items() <= new["losses"].items() and old["speed"] == new["speed"]
    measured.clear()
    script.measure(PLAN, out, allow_dirty=True, keep=[out], again=["speed", "0.04"], columns=["speed"])
    third = json.loads(out.read_text())
    assert third["commits"] == second["commits"] | {"speed": ["c"], "0.04": []}
    assert third["trainings"] == ["dense", "0.1"]
    assert set(measured) == set(MODELS)


@pytest.fixture
def valued(measured, tmp_path, monkeypatch):
    """Return a function that measures two models at a commit, whose number all values are.

    It returns the results; interrupted, it stops after the first measurement.
    """
    at, out, complete, describe = [0], tmp_path / "models.json", script.Parts.add, machine.describe
    monkeypatch.setattr(machine, "describe", lambda device: describe(device) | {"commit": str(at[0])})
    monkeypatch.setattr(script, "TRAININGS", {name: TRAININGS[name] for name in ("dense", "0.1")})
    monkeypatch.setattr(script, "MODELS", {name: MODELS[name] for name in list(MODELS)[:2]})
    monkeypatch.setattr(script, "trainings_of", lambda model: ["dense", "0.1"])
    monkeypatch.setattr(script, "speed", lambda *_: {"total_ms": at[0]})
    monkeypatch.setattr(script, "final_loss", lambda *_: at[0])

    def valued(commit, *, interrupted=False, out=out, **options):
        at[0] = commit

        def add(self, name, value):
            complete(self, name, value)
            if interrupted:
                raise KeyboardInterrupt

        monkeypatch.setattr(script.Parts, "add", add)
        with suppress(KeyboardInterrupt):
            script.measure(PLAN, out, allow_dirty=True, **options)
        return json.loads(out.read_text())

    valued.out = out
    return valued


def sources(outcome):
    """The commits that the values of each column are from."""
    speeds = {str(each["total_ms"]) for row in outcome["models"] for each in row["speed"].values()}
    losses = {
        name: {f"{loss:g}" for row in outcome["models"] for loss in row["losses"].get(name, [])}
        for name in ("dense", "0.1")
    }
    return {"speed": speeds, **losses}


ASKED = [{}, {"again": ["speed"]}, {"again": ["0.1"]}, {"columns": ["speed"]}, {"columns": ["0.1"]}]


@pytest.mark.parametrize("first", [["speed"], ["0.1"], ["speed", "dense", "0.1"]], ids="_".join)
@pytest.mark.parametrize("interrupted", ASKED, ids=str)
@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_values_are_of_the_commits_of_their_column_whatever_was_interrupted(
    valued, first, interrupted, asked
):
    keep = [valued.out]
    before = valued(1, columns=first)
    valued(2, interrupted=True, keep=keep, **interrupted)
    outcome = valued(2, keep=keep, **asked)
    assert {column: set(commits) for column, commits in outcome["commits"].items()} == sources(outcome)
    for column, commits in sources(outcome).items():
        kept = sources(before)[column] if column not in asked.get("again", []) else set()
        assert commits == (kept or ({"2"} if column in asked.get("columns", [column]) else set()))


def test_a_file_without_speeds_leaves_those_of_another_as_they_are(valued, tmp_path):
    other = tmp_path / "other.json"
    valued(1)
    valued(2, out=other, columns=["0.1"])
    outcome = valued(3, keep=[valued.out, other])
    assert sources(outcome) == {"speed": {"1"}, "dense": {"1"}, "0.1": {"2"}}
    assert outcome["commits"] == {"speed": ["1"], "dense": ["1"], "0.1": ["2"]}


def test_results_from_other_conditions_are_not_kept(measured, tmp_path):
    out = tmp_path / "models.json"
    script.measure(PLAN, out, allow_dirty=True)
    with pytest.raises(ValueError, match="steps = 1, not 2: measure all again"):
        script.measure(replace(PLAN, steps=2), out, allow_dirty=True, keep=[out])


@pytest.mark.parametrize("kind", ["BERT 256", "word LM (LSTM) 256"])
def test_the_limit_is_of_a_model_whose_converted_layers_have_a_free_backward_pass(kind, monkeypatch):
    monkeypatch.setattr(layers, "MIN_WIDTH", 128)
    model = MODELS[kind]
    plain = model.kind(128, 9).eval()
    free = script.free(copy.deepcopy(plain))
    batch = model.batches(2, 9)
    loss = free(**batch)["loss"]
    assert torch.equal(loss, plain(**batch)["loss"])
    loss.backward()
    taken = set(script.converted(plain, TRAININGS["0.04"]))
    for name, parameter in free.named_parameters():
        used = name.rpartition(".")[0] not in taken
        assert (parameter.grad is not None) == used, name


def test_feed_forward_layers_are_trained_alone_where_there_are_others():
    outcome = {name: script.trainings_of(model)[-1] for name, model in MODELS.items() if model.learns}
    alone = {name for name, last in outcome.items() if "feed-forward" in last}
    assert {"BERT 256", "T5 256"} <= alone
    assert not alone & {"word LM (LSTM) 256", "tabular MLP 512", "MLP-Mixer 256"}
