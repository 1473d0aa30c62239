"""State of the optimizer, resuming, closures and checks."""

import copy
import inspect
import io
from pathlib import Path

import pytest
import torch
from torch import nn

from msbp import optim
from msbp.sparse import cross_entropy, memories
from msbp.sparse.row_sparse import RowSparseGradient

from .twins import Twins, batch, each_optimizer, network, run


def train(model, optimizer, batches):
    for x, y in batches:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()


def through_a_file(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return torch.load(io.BytesIO(buffer.getvalue()))


@each_optimizer
@pytest.mark.parametrize("r", [1 / 64, 0.2, 1.0])
def test_a_run_resumes_bit_for_bit(ours, theirs, r):
    """Without interruption, interrupted, and with the state read half-way: equal weights."""
    start, batches = network(r), [batch() for _ in range(40)]
    whole, halves, resumed = (copy.deepcopy(start) for _ in range(3))
    train(whole, ours(whole.parameters()), batches)

    optimizer = ours(halves.parameters())
    train(halves, optimizer, batches[:20])
    weights, state = through_a_file((halves.state_dict(), optimizer.state_dict()))
    held = through_a_file({name: memory.m for name, memory in memories(halves).items()})
    train(halves, optimizer, batches[20:])

    resumed.load_state_dict(weights)
    for name, memory in memories(resumed).items():
        memory.load(held[name])
    optimizer = ours(resumed.parameters())
    optimizer.load_state_dict(state)
    train(resumed, optimizer, batches[20:])

    for p, q, s in zip(whole.parameters(), halves.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(p, q) and torch.equal(p, s)


@each_optimizer
def test_a_settled_state_dict_has_torchs_moments(ours, theirs):
    twins = Twins(network(), ours, theirs)
    run(twins, 30)
    twins.ours.settle()
    actual, expected = twins.ours.state_dict()["state"], twins.theirs.state_dict()["state"]
    for index, entries in expected.items():
        for name, value in entries.items():
            if torch.is_tensor(value) and value.dim():
                torch.testing.assert_close(actual[index][name], value, rtol=1e-4, atol=2e-7)


@each_optimizer
def test_torchs_optimizer_and_ours_go_on_with_each_others_state(ours, theirs):
    twins = Twins(network(), ours, theirs)
    for count in range(4):
        assert run(twins, 8) <= 5e-6
        if count % 2 == 0:
            twins.ours.settle()
        states = [through_a_file(optimizer.state_dict()) for optimizer in (twins.ours, twins.theirs)]
        kinds = (theirs, ours) if count % 2 == 0 else (ours, theirs)
        twins.ours, twins.theirs = kinds[0](twins.model.parameters()), kinds[1](twins.dense)
        for optimizer, state in zip((twins.ours, twins.theirs), states, strict=True):
            optimizer.load_state_dict(state)


@each_optimizer
def test_momentum_may_be_set_after_a_state_is_loaded(ours, theirs):
    model = network()
    train(model, theirs(model.parameters()), [batch()])
    source, optimizer = torch.optim.SGD(model.parameters(), 0.1), optim.SGD(model.parameters(), 0.1)
    train(model, source, [batch()])
    optimizer.load_state_dict(source.state_dict())
    optimizer.param_groups[0]["momentum"] = 0.9
    train(model, optimizer, [batch()])
    assert optimizer.state[model[0].weight]["momentum_buffer"].any()


@each_optimizer
@pytest.mark.parametrize("option", ["capturable", "differentiable"])
def test_an_option_of_torch_that_is_not_supported_is_refused(ours, theirs, option):
    model = network()
    optimizer = ours(model.parameters())
    before = optimizer.state_dict()
    foreign = copy.deepcopy(before)
    foreign["param_groups"][0][option] = True
    with pytest.raises(ValueError, match=f"has no {option}=True: use torch.optim"):
        optimizer.load_state_dict(foreign)
    assert optimizer.state_dict() == before
    with pytest.raises(ValueError, match=f"has no {option}=True"):
        optimizer.add_param_group({"params": network().parameters(), option: True})


FOREIGN = {
    "decay": lambda p: torch.optim.Adam(p, weight_decay=0.1),
    "decoupled decay": lambda p: torch.optim.AdamW(p, weight_decay=0.5),
    "amsgrad": lambda p: torch.optim.Adam(p, amsgrad=True),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_loading_a_state_of_torchs_optimizer_sets_its_options(what):
    """As torch's own Adam loads them; AdamW decouples the decay of any state."""
    source = network()
    train(source, theirs := FOREIGN[what](source.parameters()), [batch()])
    state, data = theirs.state_dict(), [batch() for _ in range(5)]
    for name in ("Adam", "AdamW"):
        models = network(r=1.0, gamma=0.0), network(r=1.0, gamma=0.0)
        for model, module in zip(models, (optim, torch.optim), strict=True):
            model.load_state_dict(source.state_dict())
            optimizer = getattr(module, name)(model.parameters())
            optimizer.load_state_dict(copy.deepcopy(state))
            train(model, optimizer, data)
        for p, q in zip(*(model.parameters() for model in models), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=5e-6)


@each_optimizer
def test_a_closure_is_called_with_gradients_on(ours, theirs):
    model = network()
    optimizer = ours(model.parameters())
    x, y = batch()

    def closure():
        assert torch.is_grad_enabled()
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        return loss

    first = optimizer.step(closure)
    for _ in range(20):
        last = optimizer.step(closure)
    assert last > first if optimizer.param_groups[0]["maximize"] else last < first


@each_optimizer
def test_after_zero_grad_a_step_changes_nothing(ours, theirs):
    for to_none in (True, False):
        model = network()
        optimizer = ours(model.parameters())
        cross_entropy(model(batch()[0]), batch()[1]).backward()
        optimizer.zero_grad(set_to_none=to_none)
        assert all(p.grad is None or not p.grad.any() for p in model.parameters())
        if to_none is False:
            optimizer.param_groups[0]["weight_decay"] = 0.0  # which acts on gradients of zero, too
        before = [p.detach().clone() for p in model.parameters()]
        optimizer.step()
        assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


@each_optimizer
def test_ours_is_an_instance_of_torchs_optimizer_with_the_same_signature(ours, theirs):
    mine, torchs = ours(network().parameters()), theirs(network().parameters())
    assert isinstance(mine, type(torchs))
    assert mine.defaults == torchs.defaults
    names = [list(inspect.signature(type(each)).parameters) for each in (mine, torchs)]
    assert [name for name in names[1] if name != "decoupled_weight_decay"] == names[0]


IMPLEMENTATIONS = [{"foreach": True}, {"foreach": False}, {"fused": True}, {"fused": False}]


@pytest.mark.parametrize("choice", IMPLEMENTATIONS, ids=str)
@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD"])
def test_options_that_choose_an_implementation_change_nothing(name, choice):
    model = network()
    twin, data = copy.deepcopy(model), [batch() for _ in range(3)]
    train(model, getattr(optim, name)(model.parameters(), **choice), data)
    train(twin, getattr(optim, name)(twin.parameters()), data)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(p, q)


def test_a_scaler_unscales_gradients_before_a_step_that_is_called_fused():
    model = network(r=1.0, gamma=0.0)
    twin = copy.deepcopy(model)
    optimizers = optim.AdamW(model.parameters(), fused=True), torch.optim.AdamW(twin.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    x, y = batch()
    for _ in range(3):
        for network_, optimizer in zip((model, twin), optimizers, strict=True):
            optimizer.zero_grad()
            loss = cross_entropy(network_(x), y)
            (scaler.scale(loss) if network_ is model else loss).backward()
        scaler.step(optimizers[0])
        scaler.update()
        optimizers[1].step()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_wrong_constants_are_refused():
    for wrong in ({"lr": -1.0}, {"betas": (1.0, 0.9)}, {"betas": (0.9, -0.1)}, {"eps": -1.0}):
        with pytest.raises(ValueError, match=r"-1|1\.0|-0\.1"):
            optim.Adam(network().parameters(), **wrong)
    with pytest.raises(ValueError, match=r"-1|-0\.5"):
        optim.SGD(network().parameters(), lr=-1.0)
    with pytest.raises(ValueError, match=r"-1|-0\.5"):
        optim.SGD(network().parameters(), lr=1.0, momentum=-0.5)


@each_optimizer
def test_autograd_detects_a_step_between_forward_and_backward_pass(ours, theirs):
    model = network()
    optimizer = ours(model.parameters())
    cross_entropy(model(batch()[0]), batch()[1]).backward()
    loss = cross_entropy(model(batch()[0]), batch()[1])
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward(retain_graph=True)


STATUS = Path("/proc/self/status")


def resident():
    """MiB of this process."""
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


@pytest.mark.skipif(not STATUS.exists(), reason="this system does not say how much memory a process has")
def test_moments_of_rows_that_never_had_a_gradient_take_no_memory():
    p, before = nn.Parameter(torch.zeros(4096, 4096)), None
    optimizer, rows = optim.Adam([p]), torch.arange(0, 4096, 512)
    for _ in range(3):
        p.grad = RowSparseGradient(rows, torch.ones(len(rows), 4096), len(p))
        before = before or resident()
        optimizer.step()
    state = optimizer.state[p]
    assert resident() - before < 16  # two moments are 128 MiB
    assert not state["exp_avg"][1].any() and state["exp_avg"][512].any()


def test_moments_on_pages_of_their_own_are_ordinary_tensors():
    p = nn.Parameter(torch.randn(1024, 512))
    optimizer = optim.Adam([p])
    for step in range(3):
        p.grad = RowSparseGradient(torch.tensor([step, 700]), torch.randn(2, 512), len(p))
        optimizer.step()
    kept = optimizer.state_dict()
    for other in (copy.deepcopy(kept), through_a_file(kept)):
        moments, copies = kept["state"][0], other["state"][0]
        assert all(torch.equal(moments[name], copies[name]) for name in ("exp_avg", "exp_avg_sq"))
        copies["exp_avg"].zero_()
        assert moments["exp_avg"][700].any()
