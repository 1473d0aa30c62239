import pytest
import torch
from torch import nn

from msbp.methods import FullBackprop, SparseBackprop
from msbp.models.mlp import MLP

METHODS = [FullBackprop(), SparseBackprop(0.1, 0.0, name="sbp"), SparseBackprop(0.1, 0.8)]


def installed(method, **sizes):
    torch.manual_seed(0)
    model = MLP(**{"inputs": 20, "outputs": 5, "hidden": 30, "dropout": 0.2} | sizes)
    return model, method.install(model)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_installing_counts_k_for_each_hidden_layer_and_never_the_output(method):
    _, done = installed(method)
    assert done.k_per_layer == dict.fromkeys(["net.0", "net.3"], 30 if method.name == "baseline" else 3)


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
    model.hidden_layers = []
    with pytest.raises(ValueError):
        method.install(model)


def test_layers_can_be_chosen():
    _, done = installed(SparseBackprop(0.1, 0.8, layers=["net.3"]))
    assert done.k_per_layer == {"net.3": 3}
    with pytest.raises(ValueError, match=r"net\.7"):
        installed(SparseBackprop(0.1, 0.8, layers=["net.7"]))


@pytest.mark.parametrize("r", [0, -1, 1.01, float("nan"), "abc", True, None])
def test_a_ratio_outside_0_1_is_refused_with_the_way_out(r):
    with pytest.raises(ValueError, match=r"r must be in \(0, 1\].*method=baseline"):
        SparseBackprop(r, 0.8)


@pytest.mark.parametrize("gamma", [-0.1, 1.1, float("nan"), "x", True])
def test_a_memory_ratio_outside_0_1_is_refused(gamma):
    with pytest.raises(ValueError, match=r"gamma must be"):
        SparseBackprop(0.1, gamma)


@pytest.mark.parametrize("choice", ["memory", "selection", "bias"])
def test_an_unknown_choice_is_refused_with_the_choices(choice):
    with pytest.raises(ValueError, match=f"{choice}.*(shared|unified|full)"):
        SparseBackprop(0.1, 0.8, **{choice: "none"})
