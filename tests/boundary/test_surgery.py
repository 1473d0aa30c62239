"""Parameters, optimizer state and memories that are replaced, resized, cast or moved between steps."""

import copy

import pytest
import torch
from torch import nn

from msbp import optim
from msbp.sparse import convert, cross_entropy, memories
from msbp.sparse.memory import SharedMemory

from .networks import (
    ENTRIES,
    KINDS,
    B,
    assert_close,
    batch,
    c,
    each_entry,
    each_kind,
    gradients,
    i,
    install,
    n,
    pair,
)

ADAMS = {"msbp": optim.Adam, "torch": torch.optim.Adam}
CHANGES = {
    "prune": lambda t: t[15:].clone(),
    "grow": lambda t: torch.cat([t, t.new_zeros(400, *t.shape[1:])]),
    "permute": lambda t: t.flip(0).clone(),
}


def table_and_optimizer(kind):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(60, 8), nn.Linear(8, 40), nn.ReLU(), nn.Linear(40, 3))
    convert(net, r=1.0, gamma=0.0)
    return net, ADAMS[kind](net.parameters(), lr=0.01)


def learn(net, optimizer, *ids):
    net(torch.tensor(ids)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def operate(net, optimizer, change, names):
    """Replace the table and the named state by the results of `change`."""
    old = net[0].weight
    state = optimizer.state.pop(old)
    new = nn.Parameter(change(old.detach()))
    for name in names:
        if name in state:
            state[name] = change(state[name])
    optimizer.state[new], optimizer.param_groups[0]["params"][0] = state, new
    net[0].weight, net[0].num_embeddings = new, len(new)


def trained(kind, change, names, settle):
    net, optimizer = table_and_optimizer(kind)
    for ids in ((1, 2, 3), (40, 41), (50, 51), (2, 3)):
        learn(net, optimizer, *ids)
    if settle and kind == "msbp":
        optimizer.settle()
    operate(net, optimizer, change, names)
    last = len(net[0].weight) - 1
    for ids in ((last, 10, 11), (last - 1, 1), (20, last)):
        learn(net, optimizer, *ids)
    return net[0].weight.detach()


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize(
    ("settle", "names"),
    [(True, ("exp_avg", "exp_avg_sq")), (False, ("exp_avg", "exp_avg_sq", "last_step"))],
    ids=["settled", "with its row ages"],
)
def test_adding_and_removing_rows_of_a_parameter_and_its_state_works_as_with_torch(change, settle, names):
    ours, theirs = (trained(kind, change, names, settle) for kind in ADAMS)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_moments_changed_without_the_ages_of_their_rows_are_refused_by_name(change):
    with pytest.raises(RuntimeError, match=r"state '(last_step|exp_avg)'.*optimizer\.settle\(\)"):
        trained("msbp", change, ("exp_avg", "exp_avg_sq"), settle=False)


def exchange(state, name):
    """Replace a tensor of the state by zeros at its address, as memory that was freed is used again."""
    storage = state.pop(name)
    state[name] = torch.as_strided(storage.detach(), storage.shape, storage.stride())
    storage.data.zero_()


WRITES = {
    "written in place": lambda state: state["exp_avg"].fill_(1.0),
    "replaced": lambda state: state.update(exp_avg_sq=torch.ones_like(state["exp_avg_sq"])),
    "left out": lambda state: state.pop("exp_avg"),
    "another at the same address": lambda state: exchange(state, "exp_avg_sq"),
    "the step set back": lambda state: state.update(step=0),
    "a step that jumps": lambda state: state.update(step=100),
    "a wrong shape": lambda state: state.update(exp_avg=torch.zeros(3, 8)),
    "ages of a wrong shape": lambda state: state.update(last_step=torch.zeros(3, dtype=torch.int32)),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_state_that_is_changed_while_rows_are_behind_is_refused(write):
    net, optimizer = table_and_optimizer("msbp")
    learn(net, optimizer, 1, 2, 3)
    learn(net, optimizer, 4, 5)
    write(optimizer.state[net[0].weight])
    with pytest.raises(RuntimeError, match=r"state '.*optimizer\.settle\(\)"):
        learn(net, optimizer, 1, 6)


@pytest.mark.parametrize("kind", ["exp_avg", "exp_avg_sq"])
@pytest.mark.parametrize("value", [0.0, 0.5])
def test_state_may_be_written_after_settle(kind, value):
    tables = []
    for name in ADAMS:
        net, optimizer = table_and_optimizer(name)
        for ids in ((1, 2, 3), (4, 5)):
            learn(net, optimizer, *ids)
        if name == "msbp":
            optimizer.settle()
        optimizer.state[net[0].weight][kind].fill_(value)
        for ids in ((1, 7), (8, 2), (3, 9)):
            learn(net, optimizer, *ids)
        tables.append(net[0].weight.detach())
    torch.testing.assert_close(*tables, rtol=1e-5, atol=1e-6)


CASTS = {
    "float": lambda t: t.float(),
    "double and back": lambda t: t.double().float(),
    "clones": lambda t: t.clone(),
}


@pytest.mark.parametrize("cast", CASTS.values(), ids=CASTS)
def test_state_that_is_cast_as_a_whole_goes_on(cast):
    tables = []
    for changes in (False, True):
        net, optimizer = table_and_optimizer("msbp")
        for step in range(6):
            learn(net, optimizer, step, step + 1)
            if changes and step == 2:
                for state in optimizer.state.values():
                    state.update({k: cast(t) for k, t in state.items() if torch.is_tensor(t)})
        tables.append(net[0].weight.detach())
    torch.testing.assert_close(*tables, rtol=0, atol=0)


def test_row_ages_survive_being_loaded_beside_low_precision_weights():
    net, optimizer = table_and_optimizer("msbp")
    learn(net, optimizer, 1, 2)
    optimizer.state[net[0].weight]["last_step"][5] = 1001
    saved = copy.deepcopy(optimizer.state_dict())
    other = copy.deepcopy(net).bfloat16()
    loaded = optim.Adam(other.parameters())
    loaded.load_state_dict(saved)
    assert loaded.state[other[0].weight]["last_step"][5] == 1001


MEMORIES = {
    "float64": lambda m: m.double(),
    "not contiguous": lambda m: m.repeat_interleave(2, 1)[:, ::2],
    "on meta": lambda m: m.to("meta"),
    "an odd offset": lambda m: torch.zeros(m.numel() + 1)[1:].view_as(m),
    "too wide": lambda m: torch.zeros(len(m), m.shape[1] + 1),
    "too narrow": lambda m: torch.zeros(len(m), m.shape[1] - 1),
    "a vector": lambda m: torch.zeros(m.shape[1]),
    "two rows": lambda m: torch.zeros(2, m.shape[1]),
    "empty": lambda m: torch.zeros(0, m.shape[1]),
}


@each_entry
@pytest.mark.parametrize("change", MEMORIES)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "MaxOverTime"])
def test_a_memory_that_was_replaced_works_or_is_refused_by_name(kind, change, entry):
    """Empty ones, so that the right gradients are those of the plain network."""
    model, plain = pair(kind)
    for layer in KINDS[kind][2]:
        module = model.get_submodule(layer)
        if kind == "LSTM":
            model, plain = pair(kind)
            install(model := copy.deepcopy(plain), kind, gamma=0.5)
        else:
            module.memory = SharedMemory(n, 0.5)
    for memory in memories(model).values():
        memory.m = MEMORIES[change](memory.m)
    x, y = batch(kind)
    try:
        ENTRIES[entry](model, x, y)
    except RuntimeError as error:
        assert ("emory" in str(error) and "shape" in str(error)) or "contiguous" in str(error)
        assert change not in ("float64", "on meta", "an odd offset")
        return
    assert change in ("float64", "on meta", "an odd offset", "not contiguous")
    ENTRIES[entry](plain, x, y)
    assert_close(gradients(model), gradients(plain))


@each_entry
@pytest.mark.parametrize("r", [0.25, 1.0])
def test_inputs_pruned_and_outputs_widened_in_mid_training(r, entry):
    """A layer whose width changes keeps no memory of another width: that is one error."""
    for gamma in (0.0, 0.8):
        plain = nn.Sequential(nn.Linear(i, n), nn.ReLU(), nn.Linear(n, n), nn.ReLU(), nn.Linear(n, c))
        model = copy.deepcopy(plain)
        convert(model, r=r, gamma=gamma)
        x, y = torch.randn(B, i), torch.randint(c, (B,))
        for network in (model, plain):
            ENTRIES[entry](network, x, y)
            network.zero_grad()
            first = network[0]
            first.weight, first.in_features = nn.Parameter(first.weight[:, :4].detach().clone()), 4
            ENTRIES[entry](network, x[:, :4], y)
            assert all(p.grad.shape == p.shape for p in network.parameters())
        if r == 1:
            assert_close(gradients(model), gradients(plain))
        for network in (model, plain):
            network.zero_grad()
            first, second = network[0], network[2]
            for name in ("weight", "bias"):
                setattr(
                    first,
                    name,
                    nn.Parameter(getattr(first, name).detach().repeat(3, 1).view(3 * n, -1).squeeze()),
                )
            second.weight = nn.Parameter(second.weight.detach().repeat(1, 3) / 3)
            first.out_features = second.in_features = 3 * n
            first.k = len(first.weight)  # of a plain layer nobody reads it
            if network is model and gamma:
                with pytest.raises(RuntimeError, match="SharedMemory of a layer with 36 outputs.*anew"):
                    ENTRIES[entry](network, x[:, :4], y)
            else:
                ENTRIES[entry](network, x[:, :4], y)
        if r == 1 and not gamma:
            assert_close(gradients(model), gradients(plain))


@pytest.mark.parametrize("kind", ["Conv1d", "Conv2d", "MaxOverTime", "LSTM"])
@pytest.mark.parametrize("how", ["k is wider", "memory is wider"])
def test_outputs_of_other_layers_pruned_in_mid_training(kind, how):
    model, plain = pair(kind)
    if how == "memory is wider":
        install(model := copy.deepcopy(plain), kind, gamma=0.5)
    half = n // 2
    for network in (model, plain):
        hidden = network.hidden
        if kind == "LSTM":
            for name, p in list(hidden.named_parameters()):
                rows = p.detach().unflatten(0, (4, n))[:, :half].flatten(0, 1)
                columns = {"weight_hh": half, "weight_ih": i if "_l0" in name else 2 * half}
                width = columns.get(name[:9])
                setattr(hidden, name, nn.Parameter((rows if width is None else rows[:, :width]).clone()))
            hidden.hidden_size = half
            network.out.weight = nn.Parameter(network.out.weight[:, : 2 * half].detach().clone())
        else:
            for name in ("weight", "bias"):
                setattr(hidden, name, nn.Parameter(getattr(hidden, name)[:half].detach().clone()))
            hidden.out_channels = half
            network.out.weight = nn.Parameter(network.out.weight[:, :half].detach().clone())
    x, y = batch(kind)
    if how == "memory is wider":
        with pytest.raises(RuntimeError, match="emory of a layer with .* outputs has shape"):
            cross_entropy(model(x), y).backward()
        return
    for network in (model, plain):
        cross_entropy(network(x), y).backward()
    assert_close(gradients(model), gradients(plain))


WRONG = {
    "LSTM": [("weight_ih_l0", (4 * n - 1, i)), ("weight_hh_l0", (4 * n - 1, n)), ("bias_ih_l0", (n,)),
             ("bias_hh_l1_reverse", (4 * n + 1,)), ("weight_hh_l1", (4 * n, n + 1))],
    "Conv1d": [("weight", (n, i + 1, 3)), ("bias", (n - 1,)), ("weight", (n, i * 3))],
    "Conv2d": [("weight", (n, 1, 3, 3)), ("bias", (n + 5,))],
    "MaxOverTime": [("weight", (n, 1, 3, i)), ("bias", (n - 1,)), ("bias", (1,))],
    "linear": [("weight", (n, i + 1)), ("bias", (n - 1,)), ("weight", (n - 1, i)), ("weight", (i,))],
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_weights_that_do_not_fit_together_are_one_error(kind):
    for how in ("convert", "fuse"):
        for name, shape in WRONG[kind]:
            model, _ = pair(kind, how)
            setattr(model.hidden, name, nn.Parameter(torch.zeros(shape)))
            x, y = batch(kind)
            with pytest.raises((RuntimeError, ValueError)):
                cross_entropy(model(x), y).backward()


@each_kind
def test_a_weight_of_another_type_is_one_error(kind):
    for how in ("convert", "fuse"):
        model, _ = pair(kind, how)
        hidden = KINDS[kind][2][0]
        for name, p in model.get_submodule(hidden).named_parameters():
            network, data = copy.deepcopy(model), p.data
            setattr(network.get_submodule(hidden), name, nn.Parameter(data.double()))
            x, y = batch(kind)
            with pytest.raises((RuntimeError, ValueError)):
                cross_entropy(network(x), y).backward()


@each_kind
def test_an_input_replaced_between_the_passes_is_detected_or_has_no_effect(kind):
    model, plain = pair(kind)
    x, y = batch(kind)
    losses = [nn.functional.cross_entropy(network(x), y) for network in (model, plain)]
    x.data = x.data.clone()
    losses[1].backward()
    try:
        losses[0].backward()
    except RuntimeError as error:
        assert "modified" in str(error)
    else:
        assert_close(gradients(model), gradients(plain))


OPTIONS = {"max_norm": 0.5, "scale_grad_by_freq": True}


@pytest.mark.parametrize("option", OPTIONS)
def test_an_embedding_follows_an_option_that_is_set_after_the_conversion(option):
    model, plain = pair("Embedding")
    for network in (model, plain):
        setattr(network.table, option, OPTIONS[option])
    x, y = batch("Embedding")
    for network in (model, plain):
        cross_entropy(network(x), y).backward()
    assert_close(gradients(model), gradients(plain))
    torch.testing.assert_close(model.table.weight, plain.table.weight)


@pytest.mark.parametrize(("kind", "size"), [("Conv1d", (2,)), ("Conv2d", (3, 2)), ("Conv2d", (1, 3))])
def test_a_convolutions_window_has_the_size_of_its_current_weight(kind, size):
    model, plain = pair(kind)
    weight = torch.randn(n, model.hidden.in_channels, *size)
    for network in (model, plain):
        network.hidden.weight = nn.Parameter(weight.clone())
    x, y = batch(kind)
    for network in (model, plain):
        cross_entropy(network(x), y).backward()
    assert_close(gradients(model), gradients(plain))
