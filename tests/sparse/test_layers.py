"""The layers that convert chooses: by pattern, by the model's declaration, or as the hidden ones."""

import re

import pytest
import torch
from torch import nn

from msbp.sparse import SparseLinear, convert, layers, revert

from .networks import Branches, Declared
from .problems import mlp


class Body(nn.Module):
    """Two blocks and an output layer of any name, defined first or last."""

    def __init__(self, output="out", first=False, width=8):
        super().__init__()
        if first:
            setattr(self, output, nn.Linear(width, 3))
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"query": nn.Linear(width, width), "fc": nn.Linear(width, width)}) for _ in range(2)
        )
        if not first:
            setattr(self, output, nn.Linear(width, 3))
        self.output = output

    def forward(self, x):
        for block in self.blocks:
            x = x + block["fc"](block["query"](x).relu())
        return getattr(self, self.output)(x)


BLOCKS = ["blocks.0.query", "blocks.0.fc", "blocks.1.query", "blocks.1.fc"]
CHOICES = {
    "names": (["blocks.0.fc", "blocks.1.query"], ["blocks.0.fc", "blocks.1.query"]),
    "one name": ("blocks.0.fc", ["blocks.0.fc"]),
    "a glob": ("blocks.*.fc", ["blocks.0.fc", "blocks.1.fc"]),
    "globs and names": (["*.query", "out"], ["out", "blocks.0.query", "blocks.1.query"]),
    "a regular expression": (re.compile(r"\.1\."), ["blocks.1.query", "blocks.1.fc"]),
    "a predicate": (lambda name, layer: layer.out_features == 3, ["out"]),
}


@pytest.mark.parametrize(("chosen", "expected"), CHOICES.values(), ids=CHOICES)
def test_layers_are_chosen_by_name_glob_expression_or_predicate(chosen, expected):
    assert sorted(convert(Body(), 0.5, layers=chosen)) == sorted(expected)


@pytest.mark.parametrize(("chosen", "expected"), CHOICES.values(), ids=CHOICES)
def test_excluded_layers_are_given_as_chosen_ones_are(chosen, expected):
    kept = convert(Body(), 0.5, exclude=chosen)
    assert list(kept) == [name for name in BLOCKS if name not in expected]
    assert all(kept.skipped[name] == "excluded" for name in expected if name != "out")


@pytest.mark.parametrize("argument", ["layers", "exclude"])
@pytest.mark.parametrize("wrong", [["nowhere"], "*.nowhere", [re.compile("nowhere")], 3, [3]], ids=str)
def test_a_pattern_that_fits_nothing_is_refused_by_argument(argument, wrong):
    model = Body()
    with pytest.raises(ValueError, match=f"(nowhere.*)?{argument}"):
        convert(model, **{argument: wrong})
    assert not any(isinstance(module, SparseLinear) for module in model.modules())


def test_a_ratio_for_each_pattern_selects_the_layers_that_it_fits():
    kept = convert(Body(), {"blocks.0.fc": 1.0, "*.fc": 0.5, re.compile("1.query"): 0.25})
    assert kept == {"blocks.0.fc": 8, "blocks.1.query": 2, "blocks.1.fc": 4}
    assert kept.skipped["blocks.0.query"] == "no pattern of r fits"


def test_a_ratio_for_an_exact_name_wins_over_patterns_before_it_and_takes_output_layers():
    assert convert(Body(), {"*.fc": 0.5, "blocks.0.fc": 1.0, "out": 1.0}) == {
        "out": 3, "blocks.0.fc": 8, "blocks.1.fc": 4,
    }  # fmt: skip


def test_wrong_ratios_are_refused_by_pattern():
    for r, message in (
        ({"*.fc": 2.0}, "r of '\\*.fc' must be a number"),
        ({}, "selects no layer"),
        ({"nowhere": 0.5}, "'nowhere' \\(r\\)"),
    ):
        with pytest.raises(ValueError, match=message):
            convert(Body(), r)
    with pytest.raises(ValueError, match=r"no ratio for layer 'blocks.0.query'"):
        convert(Body(), {"*.fc": 0.5}, layers="blocks.0.*")


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("name", ["head", "lm_head", "classifier", "fc", "decoder"])
def test_an_output_layer_is_known_by_its_name_wherever_it_is_defined(name, first):
    kept = convert(Body(name, first))
    assert list(kept) == BLOCKS and kept.skipped == {name: "output layer"}


def test_the_last_layer_of_a_head_is_the_output_layer():
    model = nn.ModuleDict({"classifier": mlp(6, 8, 3), "body": mlp(6, 8, 8)})
    assert convert(model) == {"classifier.0": 1, "body.0": 1, "body.2": 1}


def test_an_output_layer_that_shares_its_weight_with_an_embedding_is_known():
    model = nn.ModuleDict({"table": nn.Embedding(9, 8), "out": nn.Linear(8, 9), "body": nn.Linear(8, 8)})
    model["out"].weight = model["table"].weight
    assert list(convert(model)) == ["body"]


def test_the_output_layer_is_the_one_that_get_output_embeddings_returns():
    model = Body("project", first=True)
    model.get_output_embeddings = lambda: model.project
    assert list(convert(model)) == BLOCKS


def test_the_linear_layer_that_runs_last_in_a_sample_is_the_output_layer():
    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.out, self.first, self.second = nn.Linear(256, 3), nn.Linear(256, 256), nn.Linear(256, 256)

        def forward(self, x):
            return self.out(self.second(self.first(x)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("msbp.sparse.trial.gain", lambda *_: 2.0)
        kept = convert(Backwards(), sample=torch.randn(4, 256))
    assert list(kept) == ["first", "second"]


def test_low_rank_adapters_stay_dense():
    model = nn.ModuleDict({
        "proj": nn.ModuleDict({
            "base": nn.Linear(8, 8), "lora_A": nn.ModuleDict({"default": nn.Linear(8, 8)}),
            "lora_B": nn.ModuleDict({"default": nn.Linear(8, 8)}), "adapter": nn.Linear(8, 8),
        }),
        "out": nn.Linear(8, 3),
    })  # fmt: skip
    kept = convert(model)
    assert list(kept) == ["proj.base"]
    assert kept.skipped["proj.lora_A.default"] == "adapter of low rank"


def test_narrow_layers_stay_dense_unless_they_are_named():
    def build():
        return nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 16), nn.Linear(16, 32), nn.Linear(32, 32),
                             nn.Linear(32, 3))  # fmt: skip

    kept = convert(build(), min_width=32)
    assert list(kept) == ["3"] and kept.skipped["1"] == "narrower than min_width=32"
    assert list(convert(build(), min_width=32, layers=["1"])) == ["1"]
    assert list(convert(build(), {"[12]": 0.5}, min_width=32)) == ["1", "2"]
    with pytest.raises(ValueError, match="has no hidden layer.*(?s:.*)3: narrower than min_width=64"):
        convert(build(), min_width=64)
    declared = Declared()
    assert list(convert(declared, min_width=64)) == ["encoder", "decoder"]


def test_the_default_of_min_width_leaves_narrow_models_alone(monkeypatch):
    monkeypatch.setattr(layers, "MIN_WIDTH", 128)
    with pytest.raises(ValueError, match="narrower than min_width=128"):
        convert(mlp(127, 127, 3))
    assert list(convert(mlp(128, 128, 128, 3))) == ["0", "2"]


def test_a_second_conversion_takes_other_layers():
    model = Branches()
    assert convert(model, 0.5, layers=["first"]) == {"first": 10}
    assert convert(model, 0.25) == {"middle.0.0": 3, "more.0": 3, "more.1": 3}
    assert model.first.k == 10
    with pytest.raises(ValueError, match=r"(?s)converted already.*revert"):
        convert(model)
    with pytest.raises(ValueError, match=r"'first' is a SparseLinear already.*revert"):
        convert(model, layers=["first"])
    assert sorted(revert(model)) == ["first", "middle.0", "middle.0.0", "middle.1", "more.0", "more.1"]
    assert len(convert(model)) == 4


def test_layers_within_a_chain_may_be_converted_one_after_another():
    model, x = mlp(6, 8, 8, 3), torch.randn(4, 6)
    convert(model, 1.0, 0.0, layers="0")
    model(x).sum().backward()
    expected = model[2].weight.grad.clone()
    convert(model, 1.0, 0.0, layers="2")
    model.zero_grad()
    model(x).sum().backward()
    torch.testing.assert_close(model[2].weight.grad.to_dense(), expected)


def test_a_foreign_attribute_named_hidden_layers_does_not_matter():
    model = Body()
    model.hidden_layers = 2
    assert list(convert(model)) == BLOCKS


def stack():
    return nn.Sequential(
        *[layer for _ in range(3) for layer in (nn.Linear(9, 9), nn.ReLU())], nn.Linear(9, 2)
    )


@pytest.mark.parametrize("argument", ["layers", "exclude"])
def test_an_iterator_of_patterns_is_read_as_a_list(argument):
    given, listed = (convert(stack(), 0.5, **{argument: names}) for names in (iter(["0", "2"]), ["0", "2"]))
    assert given == listed and ("0" in given) == (argument == "layers")


def test_a_layer_with_several_names_is_converted_once_under_the_first():
    def build(groups=None):
        model = nn.Module()
        model.a = model.b = nn.Linear(9, 9)
        model.inner = nn.Sequential(model.a, nn.Linear(9, 9), nn.Linear(9, 2))
        if groups:
            model.msbp_hidden_layers = groups
        return model

    for names in ("b", ["b"], ["b", "a"], ["a", "inner.0"]):
        assert convert(build(), 0.5, layers=names) == {"a": 4}
        assert list(convert(build(), 0.5, exclude=names)) == ["inner.1"]
    assert convert(build(), {"b": 1.0}) == {"a": 9}
    assert list(convert(build([["a"], ["b"], ["inner.1", "inner.0"]]))) == ["a", "inner.1"]


def test_layers_that_cannot_be_sparse_are_named_with_the_reason():
    model = nn.ModuleDict({
        "attention": nn.MultiheadAttention(16, 2), "gru": nn.GRU(16, 16), "first": nn.Linear(16, 16),
        "norm": nn.utils.parametrizations.weight_norm(nn.Linear(16, 16)), "out": nn.Linear(16, 4),
    })  # fmt: skip
    kept = convert(model, 0.25, min_width=16)
    assert list(kept) == ["first"]
    assert "NonDynamicallyQuantizableLinear: of linear" in kept.skipped["attention.out_proj"]
    assert "GRU: of recurrent" in kept.skipped["gru"] and "parametrized" in kept.skipped["norm"]
    again = convert(model, 0.25, layers="out")
    assert list(again) == ["out"]
    with pytest.raises(ValueError, match="GRU: of recurrent layers, only nn.LSTM itself"):
        convert(nn.Sequential(nn.GRU(16, 16)))
