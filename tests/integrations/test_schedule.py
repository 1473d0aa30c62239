"""The schedule of sparse layers by step, and the share of the gradient that is not propagated."""

import sys
import types

import pytest
import torch
from torch import nn

from msbp.integrations import SparseSchedule
from msbp.sparse import convert, entries_kept, memories
from msbp.sparse.unpropagated import unpropagated


def network(r=0.25):
    model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 12), nn.ReLU(), nn.Linear(12, 3))
    convert(model, r)
    return model


def step(model):
    nn.functional.cross_entropy(model(torch.randn(5, 6)), torch.arange(5) % 3).backward()


def test_a_warm_up_is_dense_and_r_goes_from_one_value_to_another():
    schedule, model, seen = SparseSchedule(dense_steps=2, r=(1.0, 0.25), r_steps=4), network(), []
    for number in range(9):
        schedule.before_step(model, number)
        seen.append((model[0].enabled, model[0].k, model[2].k))
        step(model)
        assert schedule.after_step(model) == {}
    assert [enabled for enabled, _, _ in seen] == [False] * 2 + [True] * 7
    ratios = [1.0, 1.0, 1.0, 0.25**0.25, 0.5, 0.25**0.75, 0.25, 0.25, 0.25]
    assert [(a, b) for _, a, b in seen] == [(entries_kept(r, 20), entries_kept(r, 12)) for r in ratios]


def test_without_r_the_layers_keep_their_k():
    schedule, model = SparseSchedule(dense_steps=1), network()
    model[0].k = 7
    schedule.before_step(model, 3)
    assert (model[0].k, model[2].k, model[0].enabled) == (7, 3, True)


def test_k_and_the_unpropagated_share_are_logged():
    schedule, model, logged = SparseSchedule(dense_steps=2, log_every=2), network(), []
    for number in range(5):
        schedule.before_step(model, number)
        step(model)
        logged.append(schedule.after_step(model))
    assert logged[0] == {"msbp/k": 32.0, "msbp/unpropagated": 0.0}
    assert logged[1] == logged[3] == {}
    assert logged[2]["msbp/k"] == 8.0 and 0 < logged[2]["msbp/unpropagated"] < 1


WRONG = [{"dense_steps": -1}, {"r": (0.0, 1.0)}, {"r": (0.1, 2.0)}, {"log_every": -2}]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_wrong_schedules_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SparseSchedule(**wrong)


def test_measuring_the_share_changes_no_result():
    model = network()
    twin = network()
    twin.load_state_dict(model.state_dict())
    for number in range(3):
        torch.manual_seed(number)
        with unpropagated(model) as shares:
            step(model)
        torch.manual_seed(number)
        step(twin)
        assert set(shares) == {"0", "2"} and all(0 < share < 1 for share in shares.values())
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p.grad.to_dense(), q.grad.to_dense())
    for name, memory in memories(model).items():
        torch.testing.assert_close(memory.m, memories(twin)[name].m)
    assert all("estimate" not in module.__dict__ for module in model.modules())


def test_composers_callback_follows_the_schedule(monkeypatch):
    """With stand-ins for its classes where Composer is not installed."""
    if "composer" not in sys.modules:
        stub = types.ModuleType("composer")
        stub.Callback, stub.Logger, stub.State = object, object, object
        monkeypatch.setitem(sys.modules, "composer", stub)
    from msbp.integrations.composer import SparseCallback

    model, logged = network(), []
    callback = SparseCallback(SparseSchedule(dense_steps=1, log_every=1))
    logger = types.SimpleNamespace(log_metrics=logged.append)
    for number in range(2):
        batch = types.SimpleNamespace(value=number)
        state = types.SimpleNamespace(model=model, timestamp=types.SimpleNamespace(batch=batch))
        callback.batch_start(state, logger)
        assert model[0].enabled is bool(number)
        step(model)
        callback.batch_end(state, logger)
    assert [metrics["msbp/k"] for metrics in logged] == [32.0, 8.0]
