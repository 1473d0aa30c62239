"""Conversion: replaced layers, unchanged parameters, and refusals."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from msbp.sparse import SparseLinear, convert, fuse, memories, reference
from msbp.sparse.buffers import plain_torch

from .networks import Branches, Declared, Shared, each_model
from .problems import assert_close, each_dtype, gradients, mlp, state

B = 5


@each_model
def test_hidden_layers_are_replaced_and_the_output_layer_is_not(build, replaced, width):
    model = build()
    assert convert(model, r=0.25) == replaced
    assert memories(model).keys() == replaced.keys()
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    assert set(replaced) < set(linear)
    assert type(model.get_submodule(linear[-1])) is nn.Linear


@each_model
@pytest.mark.parametrize("install", [convert, fuse])
def test_parameters_stay_the_same_objects(build, replaced, width, install):
    model = build()
    before, keys = dict(model.named_parameters()), list(model.state_dict())
    install(model)
    after = dict(model.named_parameters())
    assert list(before) == list(after) and all(before[name] is after[name] for name in before)
    assert list(model.state_dict()) == keys
    assert all(isinstance(p, nn.Parameter) and p.is_leaf and p.requires_grad for p in after.values())


@each_model
def test_weights_load_into_converted_and_plain_models(build, replaced, width):
    plain, model = build(), build()
    convert(model, r=0.25)
    x = torch.randn(B, width)
    model(x).sum().backward()
    for source, goal in ((plain, model), (model, plain)):
        with torch.no_grad():
            for p in source.parameters():
                p += 0.1
        assert not any(goal.load_state_dict(copy.deepcopy(source.state_dict())))
        torch.testing.assert_close(goal.eval()(x), source.eval()(x))


@each_model
@pytest.mark.parametrize("install", [lambda model: convert(model, r=1.0), fuse], ids=["convert r=1", "fuse"])
@each_dtype
def test_a_full_ratio_leaves_forward_and_gradients_as_they_were(build, replaced, width, install, dtype):
    plain = build().to(dtype)
    for module in plain.modules():  # masks are another matter: see test_fairness
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    model = copy.deepcopy(plain)
    install(model)
    x = torch.randn(B, width, dtype=dtype)
    inputs = [x.clone().requires_grad_(), x.clone().requires_grad_()]
    results = [network(given) for network, given in zip((plain, model), inputs, strict=True)]
    torch.testing.assert_close(results[1], results[0])
    for result in results:
        nn.functional.cross_entropy(result, torch.arange(B) % 3).backward()
    torch.testing.assert_close(inputs[1].grad, inputs[0].grad, rtol=1e-5, atol=1e-7)
    expected, actual = gradients(plain), gradients(model)
    assert expected.keys() == actual.keys()
    for name in expected:
        torch.testing.assert_close(actual[name], expected[name], rtol=1e-5, atol=1e-7)


@each_model
def test_every_converted_model_learns(build, replaced, width):
    model = build()
    convert(model, r=0.25, gamma=0.8)
    optimizer = torch.optim.Adam(model.parameters(), 0.03)
    x, target, losses = torch.randn(12, width), torch.arange(12) % 3, []
    for _ in range(40):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


def test_a_layer_used_twice_updates_its_one_memory_twice():
    model = Shared().double()
    convert(model, r=0.25, gamma=0.8)
    weight, bias, m = model.step.weight.detach(), model.step.bias.detach(), {}
    units = [reference.Unit(weight, bias, 2, 0.8, relu=True) for _ in range(2)]
    units[0].m = units[1].m = m
    for _ in range(3):
        x = torch.randn(B, 8, dtype=torch.float64)
        model.zero_grad()
        logits = model(x)
        logits.square().sum().backward()
        units[1].forward(units[0].forward(x))
        second, _, grad = units[1].backward(2 * logits.detach() @ model.out.weight.detach())
        first, _, _ = units[0].backward(grad)
        torch.testing.assert_close(model.step.weight.grad, first + second)
        torch.testing.assert_close(memories(model)["step"].m.flatten(), m[0])


@each_dtype
def test_a_sparse_layer_built_directly_equals_a_converted_one(dtype):
    converted = mlp(6, 20, 3, dtype=dtype)
    convert(converted, r=0.25, gamma=0.5, memory="per_slot", bias="full")
    layer = SparseLinear(6, 20, k=5, gamma=0.5, memory="per_slot", bias_gradient="full").to(dtype)
    built = nn.Sequential(layer, nn.ReLU(), nn.Linear(20, 3, dtype=dtype))
    built.load_state_dict(converted.state_dict())
    for _ in range(3):
        x = torch.randn(B, 6, dtype=dtype)
        for model in (built, converted):
            model(x).square().sum().backward()
    assert_close(state(built), state(converted), 1e-6)


def test_named_layers_alone_are_replaced():
    model = Branches()
    assert convert(model, r=0.5, layers=["middle.0.0", "last"]) == {"middle.0.0": 6, "last": 2}
    assert type(model.first) is nn.Linear


def test_k_is_rounded_and_never_below_one():
    for width, r, k in [
        (500, 0.04, 20),
        (5000, 0.001, 5),
        (100, 0.05, 5),
        (10, 0.04, 1),
        (100, 0.29, 29),
        (7, 1.0, 7),
        (25, 0.02, 1),
        (2, 0.9, 2),
    ]:
        assert convert(mlp(3, width, 2), r=r) == {"0": k}


def test_a_model_without_hidden_layers_is_refused():
    for model in (
        nn.Sequential(nn.Linear(4, 3)),
        nn.Sequential(nn.ReLU()),
        nn.Sequential(nn.Conv1d(1, 2, 3)),
    ):
        with pytest.raises(ValueError, match="Sequential"):
            convert(model)


def test_the_refusal_of_a_model_names_the_layers_that_can_be_converted():
    with pytest.raises(ValueError, match=r"no hidden layer .*; to convert some, pass layers=\['1'\]"):
        convert(nn.Sequential(nn.GRU(3, 3), nn.Linear(3, 2)))
    with pytest.raises(ValueError, match="it has nothing of Linear, LSTM, Conv1d, Conv2d"):
        convert(nn.GRU(3, 3))
    with pytest.raises(ValueError, match=r"Linear is a single layer.* pass layers=\[''\]"):
        convert(nn.Linear(200, 200))
    assert convert(nn.Linear(200, 200), r=0.1, layers=[""]) == {"": 20}


def test_layers_that_do_not_exist_or_are_not_linear_are_refused_by_name():
    with pytest.raises(ValueError, match="nowhere"):
        convert(mlp(4, 5, 3), layers=["nowhere"])
    with pytest.raises(ValueError, match="'1'"):
        convert(mlp(4, 5, 3), layers=["1"])
    model = Declared()
    model.msbp_hidden_layers = [["encoder", "gone"]]
    with pytest.raises(ValueError, match="gone"):
        convert(model)


@pytest.mark.parametrize(
    "wrong",
    [
        {"r": 0.0},
        {"r": -0.1},
        {"r": 1.5},
        {"r": float("nan")},
        {"gamma": -0.1},
        {"gamma": 1.5},
        {"gamma": float("nan")},
        {"r": "a"},
        {"r": None},
        {"gamma": "a"},
        {"gamma": None},
        {"memory": "none"},
        {"selection": "batch"},
        {"bias": "dense"},
        {"memory": "sequential", "selection": "unified"},
        {"r": True},
        {"gamma": True},
        {"gates": "joint"},  # no LSTM
        {"carry": "batch"},
        {"selection": "per_position"},  # no convolution
        {"selection": "pooled"},
        {"min_width": -1},
        {"min_width": 1.5},
        {"min_width": True},
        {"min_width": "wide"},
        {"skip_zero_rows": 1},
        {"skip_zero_rows": None},
        {"save_memory": "yes"},
    ],
    ids=str,
)
def test_wrong_choices_are_refused_before_anything_is_changed(wrong):
    model = mlp(4, 5, 3)
    with pytest.raises(ValueError) as error:
        convert(model, **wrong)
    assert all(str(value) in str(error.value) for value in wrong.values())
    assert type(model) is nn.Sequential and type(model[0]) is nn.Linear


CONVERTED = {
    "linear": lambda: (mlp(4, 8, 3), "0", {}),
    "convolution": lambda: (nn.ModuleDict({"0": nn.Conv2d(2, 8, 3)}), "0", {"layers": "0"}),
    "LSTM": lambda: (nn.ModuleDict({"0": nn.LSTM(4, 8)}), "0.l0", {"min_width": 0}),
}


@pytest.mark.parametrize("build", CONVERTED.values(), ids=CONVERTED)
@pytest.mark.parametrize("k", [0, -1, 9, 2.0, "2", None, True, float("nan")], ids=repr)
def test_a_k_that_a_layer_does_not_have_is_refused_when_it_is_set(build, k):
    model, _, options = build()
    convert(model, 0.5, **options)
    with pytest.raises(ValueError, match=rf"layer 0 cannot keep k = {k!r} of its 8 outputs.*1 to 8"):
        model[0 if isinstance(model, nn.Sequential) else "0"].k = k
    assert model.get_submodule("0").k == 4
    model.get_submodule("0").k = 8
    assert model.get_submodule("0").k == 8


@pytest.mark.parametrize("build", CONVERTED.values(), ids=CONVERTED)
@pytest.mark.parametrize("gamma", [-0.1, 1.1, float("nan"), float("inf"), "1", None, True], ids=repr)
def test_a_gamma_out_of_range_is_refused_when_it_is_set(build, gamma):
    model, memory, options = build()
    convert(model, 0.5, 0.5, **options)
    with pytest.raises(ValueError, match=r"gamma must be a number in \[0, 1\]"):
        memories(model)[memory].gamma = gamma
    assert memories(model)[memory].gamma == 0.5


def test_the_gamma_that_is_set_is_the_one_of_an_lstm_by_kernel_and_in_torch():
    actual = []
    for context in (nullcontext, plain_torch):
        torch.manual_seed(0)
        model = nn.ModuleDict({"rnn": nn.LSTM(4, 8)})
        convert(model, 0.25, 0.5, min_width=0)
        memories(model)["rnn.l0"].gamma = 0.0
        with context():
            model["rnn"](torch.randn(3, 2, 4))[0].sum().backward()
        actual.append(memories(model)["rnn.l0"].m)
    assert not actual[0].any() and not actual[1].any()


@pytest.mark.parametrize("second", [convert, fuse])
@pytest.mark.parametrize("first", [convert, fuse])
def test_converting_a_model_again_is_refused(first, second):
    model = mlp(4, 20, 3)
    first(model)
    with pytest.raises(ValueError, match="already"):
        second(model)
