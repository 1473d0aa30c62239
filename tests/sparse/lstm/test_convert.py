"""Conversion of nn.LSTM within a user's model."""

import copy
import pickle

import pytest
import torch
from torch import nn

from msbp.sparse import convert, fuse, memories
from msbp.sparse.dropout import dropout
from msbp.sparse.lstm.lstm import SparseLSTM

from ..problems import assert_close, gradients, memory_of


class Tagger(nn.Module):
    """A model that was written without msbp."""

    def __init__(self, **choices):
        super().__init__()
        self.table = nn.Embedding(30, 9)
        self.rnn = nn.LSTM(9, 20, num_layers=2, bidirectional=True, **choices)
        self.out = nn.Linear(40, 5)

    def forward(self, words):
        return self.out(self.rnn(self.table(words))[0])


def test_convert_makes_the_lstm_of_a_users_model_sparse():
    model = Tagger(dropout=0.5)
    parameters, keys = list(model.parameters()), list(model.state_dict())
    assert convert(model, r=0.1) == {"rnn": 2}
    assert type(model.rnn) is SparseLSTM
    assert type(model.out) is nn.Linear
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert list(model.state_dict()) == keys
    assert list(memories(model)) == ["rnn.l0", "rnn.l0_reverse", "rnn.l1", "rnn.l1_reverse"]
    plain = Tagger()
    plain.load_state_dict(model.state_dict())
    model.load_state_dict(plain.state_dict())
    words = torch.randint(30, (6, 4))
    assert torch.allclose(model.eval()(words), plain(words), atol=1e-6)


def test_baseline_and_methods_share_the_forward_pass_and_its_dropout():
    outputs, words = [], torch.randint(30, (6, 4))
    plain = Tagger(dropout=0.5)
    for install in (fuse, convert, lambda model: convert(model, gamma=0.0, gates="joint")):
        model = copy.deepcopy(plain)
        install(model)
        torch.manual_seed(1)
        outputs.append(model(words))
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])
    assert not torch.allclose(outputs[0], model.eval()(words), atol=1e-3)
    assert torch.allclose(model(words), plain.eval()(words), atol=1e-6)
    assert fuse(plain) == ["rnn"]


def test_dropout_between_layers_is_the_same_by_kernel_and_in_torch_and_drops_its_gradient_too():
    x, drops = torch.randn(50, 40), []
    for dtype in (torch.float32, torch.float64):
        leaf = x.to(dtype, copy=True).requires_grad_()
        torch.manual_seed(2)
        out = dropout(leaf, 0.3)
        out.sum().backward()
        assert torch.equal(leaf.grad * leaf, out) and abs((out == 0).double().mean() - 0.3) < 0.05
        drops.append(out.detach().double())
    torch.testing.assert_close(*drops, rtol=1e-6, atol=1e-7)


def test_copies_and_pickles_continue_as_the_original():
    model, words = Tagger(), torch.randint(30, (6, 4))
    convert(model, memory="per_slot")
    model(words).square().sum().backward()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(other.rnn) is SparseLSTM
        assert_close(memory_of(other), memory_of(model), 0)
        for twin in (model, other):
            twin.zero_grad()
        state = memory_of(model)
        model(words).square().sum().backward()
        other(words).square().sum().backward()
        assert_close(gradients(other), gradients(model), 0)
        for name, kept in memories(model).items():
            kept.load(state[name])


def test_a_second_derivative_is_refused_and_a_second_pass_is_not():
    model = Tagger()
    convert(model, gamma=0.0)
    loss = model(torch.randint(30, (6, 4))).square().sum()
    with pytest.raises(RuntimeError, match="no second derivative"):
        loss.backward(create_graph=True)
    model.zero_grad()
    loss.backward(retain_graph=True)
    once = gradients(model)
    loss.backward()
    assert_close(gradients(model), {name: 2 * grad for name, grad in once.items()}, 1e-6)


def test_autocast_leaves_the_lstm_in_its_own_precision():
    model, words = Tagger(), torch.randint(30, (6, 4))
    convert(model)
    with torch.autocast("cpu", torch.bfloat16):
        states = torch.zeros(2, 4, 4, model.rnn.hidden_size, dtype=torch.bfloat16)
        out, _ = model.rnn(model.table(words).bfloat16(), tuple(states))
    assert out.dtype is torch.float32
    out.square().sum().backward()
    assert model.rnn.weight_hh_l0.grad.dtype is torch.float32


def test_a_disabled_lstm_backpropagates_everything():
    plain, words = Tagger(), torch.randint(30, (6, 4))
    model = copy.deepcopy(plain)
    convert(model)
    model.rnn.enabled = False
    for twin in (plain, model):
        twin(words).square().sum().backward()
    assert_close(gradients(model), gradients(plain))
    assert not any(m.any() for m in memory_of(model).values())


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        ({"gates": "each"}, "unknown gates 'each': choose from per_gate, joint"),
        ({"carry": "never"}, "unknown carry 'never': choose from time, batch"),
        ({"memory": "sequential", "carry": "batch"}, "use carry=time"),
        ({"memory": "mine"}, "unknown memory"),
    ],
)
def test_unknown_and_contradictory_choices_are_refused(choices, says):
    model = Tagger()
    with pytest.raises(ValueError, match=says):
        convert(model, **choices)
    assert type(model.rnn) is nn.LSTM


def test_an_lstm_with_a_projection_is_refused_and_left_to_torch_by_the_baseline():
    model = Tagger(proj_size=3)
    with pytest.raises(ValueError, match="'rnn' has a projection"):
        convert(model)
    assert "rnn" not in fuse(model)
    assert type(model.rnn) is nn.LSTM
