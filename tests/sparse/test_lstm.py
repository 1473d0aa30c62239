"""The LSTM of our own against torch's and against the paper's algorithms.

Letters: T time steps, B sequences, i input_size, H hidden_size, k kept of a gate.
"""

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from msbp.sparse import convert, fuse, memories
from msbp.sparse.kernels import lstm as kernels
from msbp.sparse.lstm import FusedLSTM, SparseLSTM

from .lstm_oracle import LSTMOracle
from .problems import assert_close, gradients


class Tagger(nn.Module):
    """Somebody else's model."""

    def __init__(self, **choices):
        super().__init__()
        self.table = nn.Embedding(30, 9)
        self.rnn = nn.LSTM(9, 20, num_layers=2, bidirectional=True, **choices)
        self.out = nn.Linear(40, 5)

    def forward(self, words):
        return self.out(self.rnn(self.table(words))[0])


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
each_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
every_entry = {"r": 1.0, "gamma": 0.8}


def lstm(input_size=9, hidden_size=11, dtype=torch.float64, **choices) -> nn.LSTM:
    return nn.LSTM(input_size, hidden_size, dtype=dtype, **choices)


def results(
    module: nn.LSTM, inputs: Tensor, states: tuple[Tensor, Tensor] | None, lengths=None
) -> dict[str, Tensor]:
    """Output, last states and all gradients of a loss that looks at every one of them; inputs (B, T, i)."""
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
def test_dense_and_full_ratio_are_torchs_lstm(dtype, choices, lengths, given):
    plain = lstm(dtype=dtype, **choices)
    D = plain.num_layers * (1 + plain.bidirectional)
    x = torch.randn(4, 6, 9, dtype=dtype)
    states = tuple(torch.randn(2, D, 4, plain.hidden_size, dtype=dtype)) if given else None
    wanted = results(plain, x, states, lengths)
    fused, sparse = copy.deepcopy(plain), copy.deepcopy(plain)
    FusedLSTM.adopt(fused)
    SparseLSTM.adopt(sparse, "rnn", plain.hidden_size, 0.8)
    tolerance = 1e-12 if dtype is torch.float64 else 3e-5
    assert_close(results(fused, x, states, lengths), wanted, tolerance)
    assert_close(results(sparse, x, states, lengths), wanted, tolerance)
    assert all(not m.m.any() for m in memories(nn.ModuleList([sparse])).values())


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_sequence_without_batch_is_a_batch_of_one(batch_first):
    plain = lstm(num_layers=2, bidirectional=True, batch_first=batch_first)
    x, states = torch.randn(5, 9).double(), tuple(torch.randn(2, 4, 11).double())
    wanted, (h, c) = plain(x, states)
    out, (our_h, our_c) = FusedLSTM.adopt(plain)(x, states)
    assert_close({"out": out, "h": our_h, "c": our_c}, {"out": wanted, "h": h, "c": c}, 1e-12)


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


STEPS = {
    "shared": {},
    "a memory per slot": {"memory": "per_slot"},
    "a memory that passes on": {"memory": "sequential"},
    "no memory": {"gamma": 0.0},
    "all gates together": {"gates": "joint"},
    "waiting for the batch": {"carry": "batch"},
    "waiting for the batch, a memory per slot": {"carry": "batch", "memory": "per_slot"},
    "waiting for the batch, all gates together": {"carry": "batch", "gates": "joint"},
}


@each_dtype
@pytest.mark.parametrize("choices", STEPS.values(), ids=STEPS)
def test_three_batches_follow_the_algorithms_step_by_step(dtype, choices):
    """Several lengths, batches that shrink and grow. A batch in which float32 could not tell an entry that is
    kept from one that is not is left out, and the oracle takes over the memory: two right answers may differ
    there."""
    check_against_oracle(dtype, batches=[[5, 3, 3], [2], [4, 4, 1, 1]], H=23, choices=choices)


@pytest.mark.parametrize("choices", [STEPS["shared"], STEPS["a memory per slot"]], ids=["shared", "per slot"])
def test_the_papers_width_follows_the_algorithms(choices):
    check_against_oracle(torch.float32, batches=[[4, 3], [3, 1]], H=500, choices=choices, r=0.04)


def check_against_oracle(dtype, batches, H, choices, r=0.2):
    settings = {"gamma": 0.8, "memory": "shared", "carry": "time", "gates": "per_gate"} | choices
    model = nn.ModuleDict({"rnn": lstm(9, H, dtype)})
    k = convert(model, r, **settings, layers=["rnn"])["rnn"]
    rnn, decided = model["rnn"], 0
    bias = (rnn.bias_ih_l0 + rnn.bias_hh_l0).detach()
    oracle = LSTMOracle(rnn.weight_ih_l0.detach(), rnn.weight_hh_l0.detach(), bias, k, **settings)
    for lengths in batches:
        rows = [torch.randn(n, 9, dtype=dtype).requires_grad_() for n in lengths]
        grad = torch.randn(max(lengths), len(lengths), H, dtype=dtype)
        rnn.zero_grad()
        out, _ = rnn(pack_sequence(rows))
        (pad_packed_sequence(out)[0] * grad).sum().backward()
        x = nn.utils.rnn.pad_sequence(rows).detach()
        assert_close({"out": pad_packed_sequence(out)[0]}, {"out": oracle.forward(x, lengths)})
        wanted = oracle.backward(grad)
        if dtype is torch.float64 or oracle.margin > 3e-6:
            decided += 1
            found = {"ih": rnn.weight_ih_l0.grad, "hh": rnn.weight_hh_l0.grad, "bias": rnn.bias_ih_l0.grad}
            found["x"] = nn.utils.rnn.pad_sequence([row.grad for row in rows])
            assert_close(found, wanted, 1e-10 if dtype is torch.float64 else 1e-4)
            assert torch.equal(rnn.bias_ih_l0.grad, rnn.bias_hh_l0.grad)
            assert_close(memory(model), {"rnn.l0": stacked(oracle)} if oracle.gamma else {}, 1e-4)
        oracle.m = {i: row.double() for m in memory(model).values() for i, row in enumerate(m)}
    assert decided >= len(batches) - 1


def memory(model: nn.Module) -> dict[str, Tensor]:
    return {name: kept.m.clone() for name, kept in memories(model).items()}


def stacked(oracle: LSTMOracle) -> Tensor:
    return torch.stack([m for _, m in sorted(oracle.m.items())])


def test_a_slot_waits_until_its_sequence_begins_and_is_not_reset_when_it_ends():
    model = nn.ModuleDict({"rnn": lstm(9, 10)})
    convert(model, 0.1, 0.5, memory="per_slot", layers=["rnn"])
    nn.init.zeros_(model["rnn"].weight_hh_l0)
    memories(model)["rnn.l0"].load(torch.arange(1.0, 41.0).double().expand(3, 40))
    rows = [torch.randn(n, 9).double() for n in (3, 1)]
    (model["rnn"](pack_sequence(rows))[0].data * 0).sum().backward()
    m = memory(model)["rnn.l0"].view(3, 4, 10)
    gate = torch.arange(1.0, 41.0).double().view(4, 10)
    for slot, steps in enumerate((3, 1, 0)):  # the largest entry leaves at each step, the rest is halved
        assert torch.equal(m[slot, :, : 10 - steps], gate[:, : 10 - steps] * 0.5**steps)
        assert not m[slot, :, 10 - steps :].any()


@pytest.mark.parametrize("carry", ["time", "batch"])
@pytest.mark.parametrize("gates", ["per_gate", "joint"])
def test_nothing_is_lost(carry, gates):
    """Over a pass: the sums of g and of ∂ℓ/∂h differ by the memory's change, in float64."""
    model, gamma = nn.ModuleDict({"rnn": lstm(9, 10)}), 0.8
    convert(model, 0.2, gamma, carry=carry, gates=gates, layers=["rnn"])
    rnn, seen = model["rnn"], []
    estimate = rnn.estimate

    def watched(grad_gates, carry):
        before = grad_gates.clone()
        seen.append((before, estimate(grad_gates, carry)[0]))
        return seen[-1][1], None

    rnn.estimate = watched
    for _ in range(2):
        m, seen[:] = memory(model)["rnn.l0"][0], []
        rnn(torch.randn(5, 3, 9).double())[0].square().sum().backward()
        if carry == "batch":
            came, went = sum(grad.sum(0) for grad, _ in seen) + 15 * m, sum(g.sum(0) for _, g in seen)
            assert torch.allclose(went + 15 * memory(model)["rnn.l0"][0] / gamma, came)
        else:
            for grad, g in seen:
                came, m = grad.sum(0) + 3 * m, gamma * (grad + m - g).mean(0)
                assert torch.allclose(g.sum(0) + 3 * m / gamma, came)
            assert torch.allclose(m, memory(model)["rnn.l0"][0])


@each_dtype
def test_padding_takes_no_part(dtype):
    model = nn.ModuleDict({"rnn": lstm(9, 16, dtype, bidirectional=True)})
    convert(model, 0.1, 0.0, layers=["rnn"])
    rows = [torch.randn(n, 9, dtype=dtype) for n in (2, 5, 1)]
    for row in rows:
        model["rnn"](row.unsqueeze(1))[0].square().sum().backward()
    alone = gradients(model)
    model.zero_grad()
    model["rnn"](pack_sequence(rows, enforce_sorted=False))[0].data.square().sum().backward()
    assert_close(gradients(model), alone, 1e-12 if dtype is torch.float64 else 1e-5)


@each_dtype
def test_a_full_bias_gradient_sees_every_entry(dtype):
    """On the last time step alone, as what comes before it depends on what was kept."""
    x, found = torch.randn(1, 3, 9, dtype=dtype), {}
    plain = lstm(9, 16, dtype)
    for bias in ("sparse", "full"):
        model = nn.ModuleDict({"rnn": copy.deepcopy(plain)})
        convert(model, 0.1, bias=bias, layers=["rnn"])
        model["rnn"](x)[0].square().sum().backward()
        found[bias] = model["rnn"].bias_ih_l0.grad
    plain(x)[0].square().sum().backward()
    assert_close({"b": found["full"]}, {"b": plain.bias_ih_l0.grad})
    assert int((found["sparse"] != 0).sum()) < int((found["full"] != 0).sum())


def test_unified_selection_keeps_the_same_columns_for_a_time_step():
    model = nn.ModuleDict({"rnn": lstm(9, 16, torch.float32)})
    convert(model, 0.1, selection="unified", layers=["rnn"])
    rnn, seen = model["rnn"], []
    sparsify = rnn.sparsify
    rnn.sparsify = lambda carried: seen.append(sparsify(carried)) or seen[-1]
    rnn(torch.randn(4, 3, 9))[0].square().sum().backward()
    assert all(int((g != 0).any(0).sum()) <= 4 * rnn.k for g in seen)
    assert len(seen) == 4


def test_convert_makes_the_lstm_of_anybodys_model_sparse():
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
    torch.manual_seed(1)
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])
    assert torch.allclose(outputs[0], plain(words), atol=1e-6)
    assert fuse(plain) == ["rnn"]


def test_copies_and_pickles_go_on_as_the_original():
    model, words = Tagger(), torch.randint(30, (6, 4))
    convert(model, memory="per_slot")
    model(words).square().sum().backward()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(other.rnn) is SparseLSTM
        assert_close(memory(other), memory(model), 0)
        for twin in (model, other):
            twin.zero_grad()
        state = memory(model)
        model(words).square().sum().backward()
        other(words).square().sum().backward()
        assert_close(gradients(other), gradients(model), 0)
        for name, kept in memories(model).items():
            kept.load(state[name])


@each_dtype
def test_a_bad_number_is_an_error_that_names_the_layer_and_leaves_the_memory(dtype):
    model = nn.ModuleDict({"rnn": lstm(9, 16, dtype, bidirectional=True)})
    convert(model, layers=["rnn"])
    x = torch.randn(4, 3, 9, dtype=dtype)
    model["rnn"](x)[0].square().sum().backward()
    before, grad = memory(model), torch.zeros(4, 3, 32, dtype=dtype)
    grad[2, 1, 20] = float("nan")
    with pytest.raises(FloatingPointError, match="layer rnn is NaN or infinite"):
        model["rnn"](x)[0].backward(grad)
    assert_close(memory(model), before, 0)


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
        out, _ = model.rnn(model.table(words).bfloat16())
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
    assert not any(m.any() for m in memory(model).values())


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        ({"gates": "each"}, "unknown gates 'each': choose from per_gate, joint"),
        ({"carry": "never"}, "unknown carry 'never': choose from time, batch"),
        ({"memory": "sequential", "carry": "batch"}, "use carry=time"),
        ({"memory": "mine"}, "unknown memory"),
    ],
)
def test_choices_that_do_not_exist_or_go_together_are_refused(choices, says):
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


def test_the_kernels_tanh_is_as_exact_as_float32_allows():
    x = torch.linspace(-12, 12, 100_001)
    gates = torch.stack([x, x, x, x]).T.contiguous()
    h, c, *rest = (torch.zeros(len(x), 1) for _ in range(5))
    bias = torch.zeros(4)
    tensors = (h, c, bias, gates, *rest)
    kernels.advance(*(t.data_ptr() for t in tensors), len(x), 1)
    wanted = x.double().sigmoid(), x.double().tanh()
    for column, exact in zip((0, 1, 2, 3), (wanted[0], wanted[0], wanted[1], wanted[0]), strict=True):
        assert (gates[:, column] - exact).abs().max() < 4e-7
