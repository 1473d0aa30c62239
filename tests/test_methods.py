"""Methods: what they install, their choices, and layers that take turns."""

import copy

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from msbp.config import build
from msbp.methods import FullBackprop, SparseBackprop
from msbp.models.mlp import MLP
from msbp.models.seq2seq import Seq2Seq
from msbp.models.textcnn import TextCNN
from msbp.sparse import memories

METHODS = [FullBackprop(), SparseBackprop(0.1, 0.0, name="sbp"), SparseBackprop(0.1, 0.8)]


def installed(method, **sizes):
    torch.manual_seed(0)
    model = MLP(**{"inputs": 20, "outputs": 5, "hidden": 30, "dropout": 0.2} | sizes)
    return model, method.install(model)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_install_returns_k_of_each_hidden_layer_without_the_output_layer(method):
    _, done = installed(method)
    assert done == dict.fromkeys(["net.0", "net.3"], 30 if method.name == "baseline" else 3)


def test_dropout_outside_of_chains_stays_torchs():
    for method in (FullBackprop(), SparseBackprop(0.1, 0.8, selection="per_position")):
        model = TextCNN(20, 2, None, embedding="random")
        method.install(model)
        assert type(model.dropout) is nn.Dropout


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_parameters_stay_the_same_objects_and_keys(method):
    model = MLP(20, 5, hidden=30)
    before = dict(model.named_parameters())
    method.install(model)
    after = dict(model.named_parameters())
    assert before.keys() == after.keys() and all(before[name] is after[name] for name in before)


def test_same_seed_same_weights_masks_and_outputs_for_all_methods():
    outputs = []
    for method in METHODS:
        model, _ = installed(method)
        torch.manual_seed(1)
        outputs.append(torch.stack([model(torch.ones(4, 20)) for _ in range(3)]))
    assert not torch.equal(outputs[0][0], outputs[0][1]), "dropout is on"
    assert all(torch.equal(output, outputs[0]) for output in outputs)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_model_with_nothing_to_replace_is_an_error(method):
    model = nn.Sequential(nn.ReLU())
    model.msbp_hidden_layers = []
    with pytest.raises(ValueError):
        method.install(model)


def test_layers_can_be_chosen():
    _, done = installed(SparseBackprop(0.1, 0.8, layers=["net.3"]))
    assert done == {"net.3": 3}
    with pytest.raises(ValueError, match=r"net\.7"):
        installed(SparseBackprop(0.1, 0.8, layers=["net.7"]))


@pytest.fixture(params=["constructor", "configuration"])
def method(request):
    """Build a method with these arguments, called or configured."""

    def build_method(**arguments):
        arguments = {"r": 0.1, "gamma": 0.8} | arguments
        if request.param == "constructor":
            return SparseBackprop(**arguments)
        target = {"_target_": "msbp.methods.SparseBackprop"}
        return build(OmegaConf.create({"method": target | arguments}).method)

    build_method.configured = request.param == "configuration"
    return build_method


@pytest.mark.parametrize("value", [0, -1, 1.01, float("nan"), "abc", True, None])
def test_a_ratio_outside_0_1_is_refused_with_the_remedy(method, value):
    with pytest.raises(
        ValueError, match=r"method\.r must be .*method=baseline" if method.configured else "r"
    ):
        method(r=value)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), "x", True])
def test_a_memory_ratio_outside_0_1_is_refused(method, value):
    with pytest.raises(ValueError, match=r"method\.gamma must be .*SBP" if method.configured else "gamma"):
        method(gamma=value)


@pytest.mark.parametrize("choice", ["memory", "selection", "bias", "gates", "carry", "schedule"])
def test_an_unknown_choice_is_refused_with_the_choices(method, choice):
    with pytest.raises(
        ValueError, match=rf"(?s){choice}.*('shared'|'unified'|'full'|'joint'|'batch'|'every')"
    ):
        method(**{choice: "none"})


SENTENCES = (
    torch.tensor([[5, 4, 3]]),
    torch.tensor([3]),
    torch.tensor([[2, 5, 6]]),
    torch.tensor([[5, 6, 3]]),
)


def translator():
    torch.manual_seed(0)
    return Seq2Seq(7, 8, embedding=5, hidden=8, layers=1, dropout=0.0).double()


def alternating(**choices):
    method, model = SparseBackprop(0.25, 0.8, schedule="alternate", **choices), translator()
    return method, model, method.install(model)


def learn(method, model, step):
    """Gradients of a step, and which groups' memories have moved in it."""
    before = {name: memory.m.clone() for name, memory in memories(model).items()}
    method.before_step(step)
    model.zero_grad()
    model.loss(*SENTENCES).backward()
    moved = {name.split(".")[0] for name, m in memories(model).items() if not torch.equal(m.m, before[name])}
    return {name: p.grad.clone() for name, p in model.named_parameters()}, moved


@pytest.mark.parametrize(("period", "turns"), [(1, "edede"), (2, "eedde"), (3, "eeedd")])
def test_encoder_and_decoder_are_sparse_in_turn_with_the_other_memory_unchanged(period, turns):
    method, model, done = alternating(period=period)
    assert done == {"encoder": 2, "decoder": 2}
    for step, turn in enumerate(turns):
        assert learn(method, model, step)[1] == {{"e": "encoder", "d": "decoder"}[turn]}


def test_the_group_that_is_not_in_turn_propagates_everything():
    method, model, _ = alternating()
    plain, _ = learn(FullBackprop(), translator(), 0)
    ours, _ = learn(method, model, 0)
    for name, grad in plain.items():
        if name.startswith("encoder.weight"):
            assert (ours[name] != 0).sum() < (grad != 0).sum()
        elif not name.startswith(("encoder", "source")):
            torch.testing.assert_close(ours[name], grad)


def test_the_turn_depends_on_the_number_of_the_step_alone():
    (one, model, _), (other, resumed, _) = alternating(period=3), alternating(period=3)
    for step in range(5):
        one.before_step(step)
    other.before_step(4)
    assert [m.enabled for m in (model.encoder, model.decoder)] == [False, True]
    assert [m.enabled for m in (resumed.encoder, resumed.decoder)] == [False, True]


def test_a_copy_of_model_and_method_is_independent():
    method, model, _ = alternating()
    method.before_step(0)
    twin, its_method = copy.deepcopy((model, method))
    its_method.before_step(1)
    assert model.encoder.enabled and not twin.encoder.enabled and twin.decoder.enabled


@pytest.mark.parametrize("layers", [None, ["encoder"]])
def test_turns_need_two_groups(layers):
    method = SparseBackprop(0.1, 0.8, schedule="alternate", layers=layers)
    model = MLP(20, 5, hidden=30) if layers is None else translator()
    with pytest.raises(ValueError, match=r"two groups.*(net\.0|encoder).*use method\.schedule=every"):
        method.install(model)
    assert not memories(model)


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        ({"period": 0}, "period"),
        ({"period": 1.5}, "period"),
        ({"layers": "net.3"}, "layers"),
        ({"period": 3, "schedule": "every"}, "method.period=3 is for method.schedule=alternate"),
    ],
)
def test_a_schedule_that_does_not_exist_is_refused(method, choice, says):
    with pytest.raises(ValueError, match=says):
        method(**choice)


def test_sbp_with_a_memory_is_refused():
    with pytest.raises(ValueError, match="method=sbp has no memory, so method.gamma must be 0, got 0.5"):
        SparseBackprop(0.1, 0.5, name="sbp")
