"""SparseLSTM and FusedLSTM compared with torch's LSTM.

Letters: T time steps, B sequences, i input_size, H hidden_size, D directions.
"""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from msbp.sparse import memories
from msbp.sparse.kernels import lstm_forward as kernels
from msbp.sparse.lstm.lstm import FusedLSTM, SparseLSTM

from ..problems import assert_close, each_dtype, gradients
from .oracle import lstm

PROBLEMS = {
    "one direction": {},
    "both directions": {"bidirectional": True},
    "three layers": {"num_layers": 3},
    "both directions, two layers": {"bidirectional": True, "num_layers": 2},
    "no bias": {"bias": False, "bidirectional": True},
    "batch first": {"batch_first": True, "num_layers": 2},
    "one unit": {"hidden_size": 1},
    "wider than a vector register": {"hidden_size": 70, "bidirectional": True},
}


def results(
    module: nn.LSTM, inputs: Tensor, states: tuple[Tensor, Tensor] | None, lengths=None
) -> dict[str, Tensor]:
    """Output, last states and all gradients of a loss that depends on every one of them; inputs (B, T, i)."""
    module.zero_grad()
    leaves = [t.clone().requires_grad_() for t in (inputs, *(states or ()))]
    x, hx = leaves[0], tuple(leaves[1:]) or None
    if lengths is not None:
        x = pack_sequence([row[:n] for row, n in zip(x, lengths, strict=True)], enforce_sorted=False)
    elif not module.batch_first:
        x = x.transpose(0, 1)
    out, (h, c) = module(x, hx)
    out = out if isinstance(out, Tensor) else pad_packed_sequence(out)[0]
    sum((t * torch.arange(t.numel(), dtype=t.dtype).view_as(t).cos()).sum() for t in (out, h, c)).backward()
    named = {"out": out, "h": h, "c": c, **{f"leaf {i}": leaf.grad for i, leaf in enumerate(leaves)}}
    return {**{name: t.detach() for name, t in named.items()}, **gradients(module)}


@each_dtype
@pytest.mark.parametrize("choices", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("lengths", [None, [3, 6, 1, 4]], ids=["full", "packed"])
@pytest.mark.parametrize("given", [False, True], ids=["from zero", "from states"])
def test_an_lstm_that_is_dense_or_has_full_ratio_equals_torchs(dtype, choices, lengths, given):
    plain = lstm(dtype=dtype, **choices)
    D = plain.num_layers * (1 + plain.bidirectional)
    x = torch.randn(4, 6, 9, dtype=dtype)
    states = tuple(torch.randn(2, D, 4, plain.hidden_size, dtype=dtype)) if given else None
    expected = results(plain, x, states, lengths)
    fused, sparse = copy.deepcopy(plain), copy.deepcopy(plain)
    FusedLSTM.adopt(fused)
    SparseLSTM.adopt(sparse, "rnn", plain.hidden_size, 0.8)
    tolerance = 1e-12 if dtype is torch.float64 else 3e-5
    assert_close(results(fused, x, states, lengths), expected, tolerance)
    assert_close(results(sparse, x, states, lengths), expected, tolerance)
    assert all(not m.m.any() for m in memories(nn.ModuleList([sparse])).values())


@each_dtype
def test_the_expanded_gradient_of_a_sum_is_read_correctly(dtype):
    """It is one number, expanded with strides of zero."""
    plain, x = lstm(dtype=dtype, bidirectional=True), torch.randn(4, 3, 9, dtype=dtype)
    models = [
        plain,
        FusedLSTM.adopt(copy.deepcopy(plain)),
        SparseLSTM.adopt(copy.deepcopy(plain), "rnn", 11, 0.0),
    ]
    for model in models:
        model(x)[0].sum().backward()
    for model in models[1:]:
        assert_close(gradients(model), gradients(plain), 1e-12 if dtype is torch.float64 else 3e-5)


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_sequence_without_batch_is_a_batch_of_one(batch_first):
    plain = lstm(num_layers=2, bidirectional=True, batch_first=batch_first)
    x, states = torch.randn(5, 9).double(), tuple(torch.randn(2, 4, 11).double())
    expected, (h, c) = plain(x, states)
    out, (our_h, our_c) = FusedLSTM.adopt(plain)(x, states)
    assert_close({"out": out, "h": our_h, "c": our_c}, {"out": expected, "h": h, "c": c}, 1e-12)


def test_wrong_shapes_are_refused_as_by_torch():
    plain = lstm()
    ours = FusedLSTM.adopt(copy.deepcopy(plain))
    wrong = [
        (torch.randn(3, 2, 8).double(), None),
        (torch.randn(3, 2, 9), None),
        (torch.randn(0, 2, 9).double(), None),
    ]
    wrong.append((torch.randn(3, 2, 9).double(), tuple(torch.randn(2, 1, 3, 11).double())))
    for x, states in wrong:
        with pytest.raises((RuntimeError, ValueError)) as theirs:
            plain(x, states)
        with pytest.raises(type(theirs.value)):
            ours(x, states)


def test_the_kernels_tanh_is_as_exact_as_float32_allows():
    x = torch.linspace(-12, 12, 100_001)
    gates = torch.stack([x, x, x, x]).T.contiguous()
    h, c, out, *rest = (torch.zeros(len(x), 1) for _ in range(6))
    bias, steps = torch.zeros(4), torch.tensor([[0, len(x)]])
    given = [t.data_ptr() for t in (gates, bias, bias, h, c, out)]
    kernels.forward(*given, 4, *(t.data_ptr() for t in (*rest, steps)), 1, 1, True, 1)
    expected = x.double().sigmoid(), x.double().tanh()
    for column, exact in zip((0, 1, 2, 3), (expected[0], expected[0], expected[1], expected[0]), strict=True):
        assert (gates[:, column] - exact).abs().max() < 4e-7
