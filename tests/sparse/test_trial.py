"""convert(sample=): layers that are not faster on a batch stay as they are, and the model is not changed."""

import copy

import pytest
import torch
from torch import nn

from msbp.sparse import SparseLinear, convert, status, trial


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fast, self.slow, self.unused = nn.Linear(8, 16), nn.Linear(16, 12), nn.Linear(16, 16)
        self.norm, self.drop, self.out = nn.BatchNorm1d(12), nn.Dropout(0.5), nn.Linear(12, 3)

    def forward(self, x, scale=1.0):
        return self.out(self.drop(self.norm(self.slow(self.fast(x).relu())))) * scale


@pytest.fixture
def gains(monkeypatch):
    monkeypatch.setattr(trial, "gain", lambda layer, call, adopt: 1.5 if layer.out_features == 16 else 0.9)


SAMPLES = {
    "a tensor": torch.ones(4, 8),
    "arguments": (torch.ones(4, 8), 2.0),
    "named arguments": {"x": torch.ones(4, 8), "scale": 2.0},
    "a function": lambda model: model(torch.ones(4, 8)),
}


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_only_layers_that_get_faster_are_converted_and_the_others_are_reported(gains, sample):
    model = Model()
    kept = convert(model, 0.25, sample=sample)
    assert kept == {"fast": 4}
    assert kept.skipped == {
        "slow": "not faster: 0.90× on the sample",
        "unused": "not run by the sample",
        "out": "output layer",
    }
    table = {row.name: row.remark for row in status(model)}
    assert table["fast"] == "1.50× on the sample" and table["slow"].startswith("not faster")


@pytest.mark.parametrize(
    "sample",
    [3, "batch", torch.ones(4, 9), {"y": torch.ones(4, 8)}, iter([torch.ones(4, 8)])],
    ids=["number", "text", "other width", "other name", "iterator"],
)
def test_a_sample_that_the_model_does_not_take_is_refused_and_the_model_is_unchanged(sample):
    model = Model()
    with pytest.raises(ValueError, match=r"Model fails on the sample .*sample= takes the arguments"):
        convert(model, 0.25, sample=sample)
    assert type(model.fast) is nn.Linear
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_sample_leaves_model_and_generator_as_they_were(gains):
    model = Model()
    model.drop.eval()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    convert(model, sample=torch.randn(4, 8))
    state_of_model = model.state_dict()
    assert all(torch.equal(state_of_model[name], value) for name, value in before.items())
    assert model.training and not model.drop.training and all(p.grad is None for p in model.parameters())
    assert not any(module._forward_pre_hooks for module in model.modules())
    torch.set_rng_state(state)


def test_a_sample_without_a_faster_layer_is_an_error_that_lists_the_gains(monkeypatch):
    monkeypatch.setattr(trial, "gain", lambda *_: 0.5)
    model = Model()
    with pytest.raises(ValueError, match=r"(?s)no hidden layer.*fast: not faster: 0.50× on the sample"):
        convert(model, sample=torch.ones(4, 8))
    assert not any(isinstance(module, SparseLinear) for module in model.modules())


@pytest.mark.parametrize("layer", [nn.Linear(8, 16), nn.LSTM(8, 16, batch_first=True)], ids=repr)
def test_a_gain_is_the_ratio_of_two_times_and_leaves_the_layer_as_it_was(layer):
    model = nn.ModuleDict({"layer": layer})
    seen = trial.calls(model, lambda m: m["layer"](torch.ones(2, 3, 8)), dict(model.items()))
    ratio = trial.gain(layer, seen["layer"], lambda twin: convert(nn.ModuleDict({"l": twin}), layers=["l"]))
    assert 0 < ratio < float("inf")
    assert type(layer) in (nn.Linear, nn.LSTM) and all(p.grad is None for p in layer.parameters())


def test_the_largest_call_of_a_layer_counts_in_the_order_of_the_last_ones():
    model = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})

    def sample(model):
        for rows in (2, 5, 3):
            model["b"](model["a"](torch.ones(rows, 4)))
        model["a"](torch.ones(1, 4))

    seen = trial.calls(model, sample, dict(model.items()))
    assert list(seen) == ["b", "a"]
    assert seen["a"].arguments[0].shape == (5, 4) and not seen["a"].arguments[0].requires_grad
    assert seen["b"].arguments[0].requires_grad


class Tagger(nn.Module):
    """An LSTM on packed sequences of embeddings."""

    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.out = nn.Embedding(9, 8), nn.LSTM(8, 6), nn.Linear(6, 3)

    def forward(self, words, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.table(words), lengths, enforce_sorted=False)
        return self.out(self.rnn(packed)[0].data)


GAIN = trial.gain


def test_layers_may_take_packed_sequences(monkeypatch):
    model, sample = Tagger(), (torch.randint(9, (5, 3)), torch.tensor([2, 5, 4]))
    monkeypatch.setattr(trial, "gain", lambda *given: GAIN(*given) and 1.5)
    kept = convert(model, 0.5, sample=sample)
    assert list(kept) == ["rnn"]
    assert {row.name for row in status(model, sample) if row.measured} == {"rnn", "out"}
    assert all(p.grad is None for p in model.parameters())
