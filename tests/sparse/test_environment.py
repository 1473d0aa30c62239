"""The core in its environments: one thread or two, forked and pooled workers, threads of one process."""

import copy
import multiprocessing
import types
from concurrent.futures import ThreadPoolExecutor

import joblib
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from msbp import optim
from msbp.sparse import convert, cross_entropy

from .problems import mlp

METHODS = [{}, {"memory": "per_slot"}, {"gamma": 0.0}]


def train(choices, seed=0, loader=None):
    """The losses of a few steps. Everything comes from generators of its own, for threads share torch's."""
    source = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(12, 70), nn.ReLU(), nn.Linear(70, 70), nn.ReLU(), nn.Linear(70, 4))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=source) * 0.2)
    convert(model, r=0.1, min_width=1, **choices)
    optimizer, losses = optim.Adam(model.parameters(), 1e-2), []
    batches = ((torch.randn(16, 12, generator=source), torch.arange(16) % 4) for _ in range(10))
    for x, y in loader or batches:
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def by_value(function):
    """A function that is pickled whole, for workers that cannot import the tests."""
    whole = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__
    )
    whole.__module__ = "__main__"
    return whole


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("choices", METHODS, ids=str)
def test_one_thread_and_two_give_the_same_run(choices, threads):
    threads(1)
    expected = train(choices)
    threads(2)
    assert train(choices) == pytest.approx(expected, rel=1e-5)
    assert train(choices) == train(choices)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_workers_train_as_their_parent_does():
    expected = [train(choices) for choices in METHODS]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(train, METHODS) == expected
    assert [train(choices) for choices in METHODS] == expected


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_loader_with_forked_workers_feeds_a_run():
    data = TensorDataset(torch.randn(64, 12), torch.arange(64) % 4)
    losses = [train({}, loader=DataLoader(data, 16, num_workers=workers)) for workers in (0, 2, 2)]
    assert len(losses[0]) == 4 and losses[0] == losses[1] == losses[2]


def test_joblib_workers_train_as_their_parent_does():
    runs = [joblib.delayed(by_value(train))(choices, seed) for choices in METHODS for seed in (0, 1)]
    expected = [train(choices, seed) for choices in METHODS for seed in (0, 1)]
    assert joblib.Parallel(n_jobs=2)(runs) == expected
    assert joblib.Parallel(n_jobs=2, prefer="threads")(runs) == expected


def test_several_threads_may_evaluate_one_network():
    model = mlp(12, 70, 70, 4)
    convert(model)
    model.eval()
    inputs = [torch.randn(16 + size, 12) for size in range(40)]

    def answer(x):
        with torch.no_grad():
            return model(x)

    expected = [answer(x) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(a, b) for a, b in zip(pool.map(answer, inputs), expected, strict=True))


def test_a_backward_pass_may_run_in_another_thread():
    model, twin = mlp(12, 70, 70, 4), mlp(12, 70, 70, 4)
    twin.load_state_dict(model.state_dict())
    for network in (model, twin):
        convert(network)
    losses = [cross_entropy(network(torch.ones(16, 12)), torch.arange(16) % 4) for network in (model, twin)]
    losses[0].backward()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(losses[1].backward).result()
    assert all(
        torch.equal(p.grad, q.grad) for p, q in zip(model.parameters(), twin.parameters(), strict=True)
    )


def test_copies_trained_in_turns_do_not_affect_each_other():
    """Whatever a chain keeps between steps, its copy has its own."""
    model = mlp(12, 70, 70, 4)
    convert(model)
    twins = [copy.deepcopy(model), copy.deepcopy(model)]
    batches = [(torch.randn(rows, 12), torch.arange(rows) % 4) for rows in (16, 5, 16, 16)]
    for x, y in batches:
        cross_entropy(model(x), y).backward()
    held = [[cross_entropy(twin(x), y) for twin in twins] for x, y in batches]
    for losses in held:
        for loss in losses:
            loss.backward()
    for twin in twins:
        assert all(
            torch.equal(p.grad, q.grad) for p, q in zip(model.parameters(), twin.parameters(), strict=True)
        )
