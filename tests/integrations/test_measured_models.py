"""Each measured model is measured on its task, and a measurement that was interrupted goes on."""

import json
from concurrent.futures import Future
from dataclasses import replace

import pytest

pytest.importorskip("transformers")

from msbp.sparse import layers
from msbp.training import machine
from scripts.measure_models import measure as script
from scripts.measure_models.models import MODELS
from scripts.measure_models.table import rendered

pytestmark = pytest.mark.filterwarnings("ignore")
PLAN = script.Plan(rounds=1, steps=1, seeds=(0,))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_measured_on_its_task(name, monkeypatch):
    monkeypatch.setattr(layers, "MIN_WIDTH", 128)  # convert's own, which other tests lower
    model = replace(MODELS[name], width=min(128, MODELS[name].width))
    found = script.speed(model, (2, 9), rounds=1)
    if model.width < 128:
        assert not found and not script.layers(model)["converted"]
    else:
        assert script.layers(model)["converted"] >= 1
        assert min(*found["bp_ms"], *found["total_ms"]) > 0


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
    trainings = sum(model.learns for model in MODELS.values()) * (1 + len(script.RATIOS))

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
    found = json.loads(out.read_text())
    assert len([*first, *measured]) == times + trainings + 1  # what was under way is measured again
    assert [row["name"] for row in found["models"]] == [model.name for model in MODELS.values()]
    assert not out.with_suffix(".parts").exists() and rendered(found)
