"""Changes of parameters and optimizer state between steps."""

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn

from msbp import optim
from msbp.sparse import RowSparseGradient, cross_entropy

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


def move(optimizer):
    """Move a parameter to a group with other betas."""
    group, other = optimizer.param_groups
    other["params"].append(group["params"].pop(0))


def replace_betas(optimizer):
    """Put a new group with other betas in place of the first."""
    optimizer.param_groups[0] = optimizer.param_groups[1] | {"params": optimizer.param_groups[0]["params"]}


@pytest.mark.parametrize("change", [move, replace_betas])
@pytest.mark.parametrize("settled", [True, False])
def test_a_parameter_moves_to_a_group_with_other_betas_once_all_rows_are_settled(change, settled):
    def train(kind):
        torch.manual_seed(1)
        a, b = nn.Parameter(torch.zeros(20, 8)), nn.Parameter(torch.zeros(20, 8))
        optimizer = kind([{"params": [a]}, {"params": [b], "betas": (0.5, 0.9)}], lr=0.01)
        for step in range(12):
            gradient = RowSparseGradient(torch.arange(3) + step, torch.randn(3, 8), 20)
            a.grad = gradient if kind is optim.Adam else gradient.to_dense()
            optimizer.step()
            if step == 5:
                if settled and kind is optim.Adam:
                    optimizer.settle()
                change(optimizer)
        return a.detach()

    if settled:
        torch.testing.assert_close(train(optim.Adam), train(torch.optim.Adam), rtol=0, atol=1e-6)
    else:
        with pytest.raises(RuntimeError, match=r"settle\(\) before you move a parameter"):
            train(optim.Adam)


TWO_THREADS = """
import threading, torch
from msbp.optim import Adam

for _ in range(40):
    parameters = [torch.nn.Parameter(torch.ones(200, 300)) for _ in range(2)]
    optimizer = Adam(parameters)
    for p in parameters:
        p.grad = torch.ones_like(p)
    threads = [threading.Thread(target=lambda: [optimizer.step() for _ in range(3)]) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
print("done")
"""


def test_threads_that_take_the_first_steps_of_one_optimizer_together_do_not_crash():
    done = subprocess.run([sys.executable, "-c", TWO_THREADS], capture_output=True, text=True, check=False)
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_step_count_does_not_depend_on_the_default_type(dtype):
    def train(kind):
        weight = nn.Parameter(torch.zeros(8, dtype=torch.float32))
        optimizer = kind([weight], lr=0.01, amsgrad=True)
        for step in range(300):
            weight.grad = torch.full((8,), 1.0 + step % 3, dtype=torch.float32)
            optimizer.step()
        return weight.detach()

    expected = train(torch.optim.Adam)
    torch.set_default_dtype(dtype)
    try:
        result = train(optim.Adam)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("size", [1e19, 1e20, 5e20, 1e-22])
def test_large_and_small_gradients_are_squared_as_torch_does(size, rows):
    def train(kind):
        weight = nn.Parameter(torch.zeros(6, 40))
        optimizer = kind([weight], lr=0.01)
        for _ in range(4):
            weight.grad = torch.full((6, 40), size)
            if rows and kind is optim.Adam:
                weight.grad = RowSparseGradient(torch.arange(6), weight.grad, 6)
            optimizer.step()
        return weight.detach()

    torch.testing.assert_close(train(optim.Adam), train(torch.optim.Adam), rtol=1e-5, atol=0)


def test_steps_in_inference_mode_are_torchs():
    def train(kind):
        torch.manual_seed(0)
        weight = nn.Parameter(torch.zeros(20, 8))
        optimizer = kind([weight], lr=0.01)
        for step in range(8):
            gradient = RowSparseGradient(torch.arange(3) + step, torch.randn(3, 8), 20)
            weight.grad = gradient if kind is optim.Adam else gradient.to_dense()
            with torch.inference_mode():
                optimizer.step()
        return weight.detach()

    torch.testing.assert_close(train(optim.Adam), train(torch.optim.Adam), rtol=0, atol=1e-6)


@each_optimizer
def test_a_parameter_twice_in_a_group_is_refused_and_leaves_the_optimizer_as_it_was(ours, theirs):
    model = network()
    optimizer = ours(model[2:].parameters())
    with pytest.warns(UserWarning, match="duplicate"), pytest.raises(ValueError, match="more than once"):
        optimizer.add_param_group({"params": [*model[0].parameters(), model[0].weight]})
    assert len(optimizer.param_groups) == 1
