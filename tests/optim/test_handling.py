"""Changes of parameters and optimizer state between steps."""

import copy

import pytest
import torch

from msbp import optim
from msbp.sparse import cross_entropy

from .twins import Twins, batch, each_optimizer, network, run


def step(model, optimizer, data):
    optimizer.zero_grad()
    cross_entropy(model(data[0]), data[1]).backward()
    optimizer.step()


def equal(model, other):
    return all(torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters(), strict=True))


def swap_data(model, optimizer):
    for p in model.parameters():
        p.data = p.data.clone()


def swap_state(model, optimizer):
    for state in optimizer.state.values():
        for name, value in state.items():
            if torch.is_tensor(value):
                state[name] = value.clone()


def load_weights(model, optimizer):
    model.load_state_dict(copy.deepcopy(model.state_dict()))


def load_state(model, optimizer):
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def replace_groups(model, optimizer):
    optimizer.param_groups[0] = dict(optimizer.param_groups[0])


NOTHING_CHANGES = [swap_data, swap_state, load_weights, load_state, replace_groups]


@each_optimizer
@pytest.mark.parametrize("meddle", NOTHING_CHANGES, ids=lambda f: f.__name__)
def test_replacing_tensors_by_equal_ones_does_not_change_training(ours, theirs, meddle):
    model = network(r=1 / 64)
    twin = copy.deepcopy(model)
    optimizers = ours(model.parameters()), ours(twin.parameters())
    for count in range(12):
        data = batch()
        if count % 3 == 2:
            meddle(model, optimizers[0])
        step(model, optimizers[0], data)
        step(twin, optimizers[1], data)
        assert equal(model, twin)


@each_optimizer
def test_a_network_copied_with_its_optimizer_trains_equally_and_independently(ours, theirs):
    model = network(r=1 / 64)
    optimizer = ours(model.parameters())
    for _ in range(3):
        step(model, optimizer, batch())
    twin, other = copy.deepcopy((model, optimizer))
    before, data = copy.deepcopy(model), [batch() for _ in range(4)]
    for each in data:
        step(twin, other, each)
    assert equal(model, before)
    for each in data:
        step(model, optimizer, each)
    assert equal(model, twin)


@each_optimizer
def test_an_optimizer_whose_state_is_cleared_starts_anew(ours, theirs):
    twins = Twins(network(r=1 / 64), ours, theirs)

    def forget(twins, count):
        if count == 8:
            twins.ours.state.clear()
            twins.theirs.state.clear()

    assert run(twins, 30, between=forget) <= 5e-6


@each_optimizer
def test_weights_assigned_by_the_user_are_updated_in_place(ours, theirs):
    twins = Twins(network(r=1 / 64), ours, theirs)

    def average(twins, count):
        with torch.no_grad():
            if count % 5 == 4:
                for p, q, s in zip(
                    twins.model.parameters(), twins.dense, twins.shadow.parameters(), strict=True
                ):
                    for each in (p, q, s):
                        each.mul_(0.5)

    def between(twins, count):
        average(twins, count)

    assert run(twins, 30, between=between) <= 5e-6


CONSTANTS = {
    "slow momentum, fast variance": {"betas": (0.99, 0.9)},
    "none of either": {"betas": (0.0, 0.0)},
    "long variance": {"betas": (0.9, 0.9999)},
    "both long": {"betas": (0.999, 0.9999)},
    "large eps": {"eps": 0.1},
    "large steps": {"lr": 0.05},
}


@pytest.mark.parametrize("constants", CONSTANTS.values(), ids=CONSTANTS)
def test_adam_with_extreme_constants_equals_torchs(constants):
    twins = Twins(
        network(r=1 / 64), lambda p: optim.Adam(p, **constants), lambda p: torch.optim.Adam(p, **constants)
    )
    assert run(twins, 150) <= 2e-5 * max(1.0, constants.get("lr", 0) / 1e-3)  # float32 has less to go on


@each_optimizer
def test_constants_may_change_between_steps(ours, theirs):
    def change(twins, count):
        for optimizer in (twins.ours, twins.theirs):
            group = optimizer.param_groups[0]
            group["lr"] *= 0.97
            if "betas" in group and count % 10 == 9:
                group["betas"] = (0.85, 0.995) if count % 20 == 9 else (0.9, 0.999)
            if group.get("momentum"):
                group["momentum"] = 0.8 if count % 20 > 9 else 0.9

    assert run(Twins(network(), ours, theirs), 40, between=change) <= 5e-6


@each_optimizer
def test_a_schedule_may_cycle_the_momentum(ours, theirs):
    twins = Twins(network(r=1 / 64), ours, theirs)
    momentum = twins.theirs.defaults.get("momentum") != 0  # plain SGD has none to cycle
    cycles = [
        torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=60, cycle_momentum=momentum)
        for optimizer in (twins.ours, twins.theirs)
    ]

    def advance(twins, count):
        if count:
            for cycle in cycles:
                cycle.step()

    assert run(twins, 50, between=advance) <= 5e-6


def test_rows_without_gradient_follow_changing_betas():
    model = network(r=1 / 64)
    optimizer = optim.AdamW(model.parameters())
    group, behind = optimizer.param_groups[0], []
    for beta in (0.9, 0.9, 0.89, 0.88, 0.88):
        group["betas"] = (beta, 0.999)
        x, y = batch()
        cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        behind.append(any("last_step" in state for state in optimizer.state.values()))
    assert behind == [True, True, False, False, True]
