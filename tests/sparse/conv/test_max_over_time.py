"""A convolution with its maximum over time: compared with loops, with plain torch, and with its own rules."""

import copy
import pickle
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from msbp.sparse import MaxOverTime, convert, fuse, memories
from msbp.sparse.buffers import plain_torch

from .sentence_batches import E, F, Naive, layer, sentences, upstream

SELECTIONS = ["per_example", "per_position", "pooled", "unified"]
each_selection = pytest.mark.parametrize("selection", SELECTIONS)
each_window = pytest.mark.parametrize("window", [1, 3, 5])
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
CLOSE = {torch.float32: {"rtol": 1e-4, "atol": 1e-5}, torch.float64: {"rtol": 1e-9, "atol": 1e-12}}


def only(conv: MaxOverTime) -> torch.nn.Module:
    """A model of this one layer."""
    model = torch.nn.ModuleDict({"conv": conv})
    model.msbp_hidden_layers = [["conv"]]  # type: ignore[assignment]
    return model


def sparse(
    k: int = 2, gamma: float = 0.0, window: int = 3, dtype=torch.float64, **choices: str
) -> MaxOverTime:
    conv = layer(window, dtype)
    convert(only(conv), r=k / F, gamma=gamma, **choices)
    return conv


def fused(window: int = 3, dtype=torch.float64) -> MaxOverTime:
    conv = layer(window, dtype)
    assert fuse(only(conv)) == ["conv"]
    return conv


def backward(conv: MaxOverTime, seed: int, B: int = 5) -> tuple[Tensor, dict[str, Tensor]]:
    """The output for a batch, and all gradients."""
    dtype = conv.weight.dtype
    x, index, offsets = sentences(seed, B, dtype=dtype)
    conv.zero_grad()
    z = conv(x.requires_grad_(), index, offsets)
    z.backward(upstream(seed, B, dtype))
    return z.detach(), {"weight": conv.weight.grad, "bias": conv.bias.grad, "x": x.grad}


def assert_alike(ours: dict[str, Tensor], theirs: dict[str, Tensor], dtype=torch.float64) -> None:
    assert ours.keys() == theirs.keys()
    for name in theirs:
        torch.testing.assert_close(ours[name].double(), theirs[name].double(), **CLOSE[dtype])


def memory(conv: MaxOverTime) -> Tensor:
    return memories(only(conv))["conv"].m


@each_window
@each_dtype
def test_the_baseline_computes_what_plain_torch_does(window, dtype):
    plain = layer(window, dtype)
    ours = copy.deepcopy(plain)
    fuse(only(ours))
    for seed in range(4):
        (z, gradients), (expected, exact) = backward(ours, seed), backward(plain, seed)
        torch.testing.assert_close(z, expected, **CLOSE[dtype])
        assert_alike(gradients, exact, dtype)


@each_selection
@pytest.mark.parametrize("gamma", [0.0, 0.8])
@each_dtype
def test_every_selection_follows_its_rule_over_batches_of_many_lengths(selection, gamma, dtype):
    for window in (1, 3):
        conv = sparse(2, gamma, window, dtype, selection=selection)
        naive = Naive(conv.weight.detach().double(), conv.bias.detach().double(), 2, gamma, selection)
        for seed in range(3):
            x, index, offsets = sentences(seed, longest=3 + 2 * seed)
            z, gradients = backward_on(conv, x, index, offsets, upstream(seed))
            torch.testing.assert_close(z.double(), naive.forward(x, index, offsets), **CLOSE[dtype])
            exact = dict(zip(("weight", "bias", "x"), naive.backward(upstream(seed)), strict=True))
            assert_alike(gradients, exact, dtype)
            if gamma:
                torch.testing.assert_close(memory(conv)[0].double(), naive.m, **CLOSE[dtype])


def backward_on(conv: MaxOverTime, x: Tensor, index: Tensor, offsets: Tensor, grad: Tensor):
    x = x.to(conv.weight.dtype).requires_grad_()
    conv.zero_grad()
    z = conv(x, index, offsets)
    z.backward(grad.to(z.dtype))
    return z.detach(), {"weight": conv.weight.grad, "bias": conv.bias.grad, "x": x.grad}


@each_selection
def test_full_ratio_is_the_baseline(selection):
    plain = fused()
    conv = sparse(F, 0.8, selection=selection)
    conv.load_state_dict(plain.state_dict())
    for seed in range(3):
        assert_alike(backward(conv, seed)[1], backward(plain, seed)[1])
    assert not memory(conv).any()


@each_selection
def test_kept_part_and_memory_sum_to_the_gradient(selection, monkeypatch):
    """Σ g + R m / γ = Σ (∂ℓ/∂h + m before), over the R rows that take part."""
    conv = sparse(1, 0.8, selection=selection)
    seen = []
    estimate = conv.estimate

    def watched(grad_h: Tensor, *positions):
        before = conv.memory.m.clone()
        g, m = estimate(grad_h, *positions)
        seen.append((grad_h, before, g, m))
        return g, m

    monkeypatch.setattr(conv, "estimate", watched)
    for seed in range(4):
        backward(conv, seed)
    for grad_h, before, g, m in seen:
        torch.testing.assert_close(g.sum(0) + len(g) * m[0] / 0.8, (grad_h + before).sum(0))
    assert len(seen) > 1 and all(m.any() for *_, m in seen)


def test_flat_selection_keeps_everything_if_k_times_positions_covers_the_channels():
    """The maximum leaves an example one entry a channel, so SBP and MSBP are the baseline, bit for bit."""
    plain, window = fused(1, torch.float32), 1
    for gamma in (0.0, 0.8):
        conv = sparse(2, gamma, window, torch.float32, selection="per_example")
        conv.load_state_dict(plain.state_dict())
        x, index, offsets = sentences(0, longest=F // 2)
        offsets = torch.tensor([0, F // 2, len(index)]) if len(index) > F // 2 else offsets
        assert int(offsets.diff().max()) * conv.k >= F
        grad = torch.randn(len(offsets) - 1, F)
        ours, theirs = (backward_on(c, x, index, offsets, grad)[1] for c in (conv, plain))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
        assert gamma == 0 or not memory(conv).any()


def test_padding_is_never_the_argmax_and_changes_nothing():
    """A feature does not depend on longer sentences in the batch."""
    for conv in (layer(), fused(), sparse()):
        with torch.no_grad():
            conv.bias.fill_(0.5)
        x, index, offsets = sentences(2)
        x = -x.abs() * conv.weight.sign()[0, 0, 0]  # windows of real words stay below one of padding
        together = conv(x, index, offsets)
        for b in range(len(offsets) - 1):
            words = index[offsets[b] : offsets[b + 1]]
            alone = conv(x, words, torch.tensor([0, len(words)]))
            torch.testing.assert_close(together[b : b + 1], alone)


def test_ties_go_to_the_first_window_on_every_path():
    for dtype in (torch.float32, torch.float64):
        for conv in (layer(2, dtype), fused(2, dtype)):
            with torch.no_grad():
                conv.weight.fill_(1.0)
            x = torch.eye(3, E, dtype=dtype)
            index, offsets = torch.tensor([0, 1, 0, 1, 2]), torch.tensor([0, 5])
            _, gradients = backward_on(conv, x, index, offsets, torch.ones(1, F))
            assert torch.equal(gradients["x"].sum(1) > 0, torch.tensor([True, True, False]))


@each_dtype
def test_a_nan_reaches_the_output(dtype):
    for conv in (layer(3, dtype), fused(3, dtype)):
        x, index, offsets = sentences(1, dtype=dtype)
        x[index[2]] = torch.nan
        spoilt = [x[words].isnan().any() for words in index.tensor_split(offsets[1:-1])]
        hit = torch.stack(spoilt)
        assert torch.equal(conv(x, index, offsets).isnan().all(1), hit)


@each_selection
def test_a_gradient_that_is_not_finite_is_propagated_whole_and_leaves_the_memory_unchanged(selection):
    conv = sparse(2, 0.8, selection=selection)
    backward(conv, 0)
    before = memory(conv).clone()
    x, index, offsets = sentences(1)
    grad = upstream(1)
    grad[1, int((conv(x, index, offsets)[1] > 0).nonzero()[0])] = torch.inf
    _, gradients = backward_on(conv, x, index, offsets, grad)
    assert not all(g.isfinite().all() for g in gradients.values())
    assert torch.equal(memory(conv), before)


@each_selection
def test_a_zero_gradient_leaves_a_zero_memory(selection):
    conv = sparse(2, 0.8, selection=selection)
    x, index, offsets = sentences(0)
    _, gradients = backward_on(conv, x, index, offsets, torch.zeros(5, F))
    assert not memory(conv).any()
    assert not any(g.any() for g in gradients.values())


def test_the_memory_has_one_shape_for_all_lengths():
    conv = sparse(1, 0.8)
    for longest in (4, 9, 2):
        x, index, offsets = sentences(longest, longest=longest)
        backward_on(conv, x, index, offsets, upstream(0))
        assert memory(conv).shape == (1, F)


@pytest.mark.parametrize("kind", ["per_slot", "sequential"])
@pytest.mark.parametrize("selection", ["per_example", "per_position", "pooled"])
def test_every_kind_of_memory_works_with_every_selection(kind, selection):
    conv = sparse(1, 0.8, memory=kind, selection=selection)
    first = backward(conv, 0)[1]["weight"].clone()
    again = backward(conv, 0)[1]["weight"]
    assert memory(conv).any() and not torch.equal(first, again)


def test_a_full_bias_gradient_sums_all_entries():
    grads = {}
    for bias in ("sparse", "full"):
        torch.manual_seed(0)
        conv = sparse(1, bias=bias, selection="pooled")
        grads[bias] = backward(conv, 0)[1]["bias"]
    dense = fused()
    dense.load_state_dict(conv.state_dict())
    torch.testing.assert_close(grads["full"], backward(dense, 0)[1]["bias"])
    assert not torch.allclose(grads["full"], grads["sparse"])


def test_a_disabled_layer_equals_the_baseline():
    conv, plain = sparse(1, 0.8, selection="pooled"), fused()
    plain.load_state_dict(conv.state_dict())
    conv.enabled = False
    assert_alike(backward(conv, 0)[1], backward(plain, 0)[1])
    assert not memory(conv).any()


def test_only_entries_of_words_in_training_get_a_gradient():
    """With fixed embeddings no gradient of x is formed."""
    conv = fused()
    x, index, offsets = sentences(0)
    conv(x, index, offsets).sum().backward()
    assert x.grad is None and conv.weight.grad.any()


def test_conversion_keeps_state_dict_keys_and_parameters():
    plain = layer()
    parameters, keys = list(plain.parameters()), list(plain.state_dict())
    conv = copy.copy(plain)
    convert(only(conv), r=0.1, gamma=0.8)
    assert all(a is b for a, b in zip(conv.parameters(), parameters, strict=True))
    assert list(conv.state_dict()) == keys == ["weight", "bias"]
    fused().load_state_dict(conv.state_dict())


def test_copies_do_not_share_a_memory():
    conv = sparse(1, 0.8, selection="pooled")
    backward(conv, 0)
    for twin in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        before = memory(conv).clone()
        assert torch.equal(memory(twin), before)
        backward(twin, 1)
        assert torch.equal(memory(conv), before) and not torch.equal(memory(twin), before)


def test_under_autocast_gradients_and_memory_keep_their_precision():
    conv = sparse(1, 0.8, dtype=torch.float32, selection="pooled")
    x, index, offsets = sentences(0, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        conv(x.requires_grad_(), index, offsets).sum().backward()
    assert {conv.weight.grad.dtype, x.grad.dtype, memory(conv).dtype} == {torch.float32}


@each_selection
def test_plain_torch_and_the_kernels_agree(selection):
    runs = []
    for way in (nullcontext, plain_torch):
        torch.manual_seed(0)
        conv = sparse(2, 0.8, dtype=torch.float32, selection=selection)
        with way():
            runs.append([backward(conv, seed)[1]["weight"].clone() for seed in range(5)])
    for ours, theirs in zip(*runs, strict=True):
        torch.testing.assert_close(ours, theirs, **CLOSE[torch.float32])


@each_dtype
@pytest.mark.parametrize("offsets", [[0, 2, 2, 4], [0, 3], [1, 4], [0], [0, 5, 4]])
def test_offsets_that_do_not_fit_are_refused(offsets, dtype):
    with pytest.raises(ValueError, match="offsets must rise from 0 to the 4 words"):
        fused(dtype=dtype)(
            torch.randn(3, E, dtype=dtype), torch.zeros(4, dtype=torch.long), torch.tensor(offsets)
        )


@pytest.mark.parametrize("bad", [3, -4])
def test_an_index_beyond_the_rows_is_refused(bad):
    for dtype in (torch.float32, torch.float64):
        with pytest.raises(IndexError):
            fused(dtype=dtype)(torch.randn(3, E, dtype=dtype), torch.tensor([0, bad]), torch.tensor([0, 2]))
