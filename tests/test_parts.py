import pytest

from msbp.launch import compose, explain
from msbp.parts import build


def test_what_a_constructor_refuses_is_said_with_its_place():
    with pytest.raises(ValueError, match=r"^method: sparse ratio r must be in \(0, 1\], got 2") as refusal:
        build(compose(["method.r=2"]).method)
    assert explain(refusal.value) == str(refusal.value)


WRONG = [
    ("model.dropout=abc", "model.dropout must be a number, got 'abc'"),
    ("model.hidden=[1]", "model.hidden must be a whole number"),
    ("model.name=null", "model.name must be text, got None"),
    ("+model.depth=3", "model.depth is not there to set: msbp.models.mlp.MLP takes inputs, outputs, hidden"),
]


@pytest.mark.parametrize(("override", "said"), WRONG, ids=[override for override, _ in WRONG])
def test_a_value_of_another_type_than_the_signatures_is_refused_by_its_key(override, said):
    with pytest.raises(ValueError) as refusal:
        build(compose([override]).model, inputs=4, outputs=2)
    assert said in str(refusal.value)
