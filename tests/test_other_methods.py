"""The methods that are not in the paper: adaptive k and gamma, and error feedback on weights."""

import copy

import pytest
import torch
from torch import nn

from msbp.methods import AdaptiveBackprop, SparseBackprop, WeightFeedback
from msbp.models.mlp import MLP
from msbp.models.textcnn import TextCNN
from msbp.sparse import backward, memories
from msbp.sparse.memory import AdaptiveMemory
from msbp.training.checkpoint import capture, restore

B, n = 8, 30


def network(method, **options):
    torch.manual_seed(0)
    model = MLP(20, 5, hidden=n, dropout=0.0, **options).double()
    if method is not None:
        method.install(model)
    return model


def batches(steps):
    torch.manual_seed(1)
    return [(torch.randn(B, 20, dtype=torch.float64), torch.randint(5, (B,))) for _ in range(steps)]


def sums_of_gradients(model, steps=6):
    """Sums over the steps, at fixed weights."""
    total = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for x, y in batches(steps):
        model.zero_grad()
        backward(model.loss(x, y))
        for name, p in model.named_parameters():
            total[name] += p.grad.to_dense()
    return total


def test_propagated_and_remembered_parts_sum_to_the_gradient():
    """Error feedback's identity, of the sums over all steps, for every hidden weight."""
    true, model = sums_of_gradients(network(None)), network(WeightFeedback(0.1))
    sent, remembered = sums_of_gradients(model), memories(model)
    for name in ("net.0", "net.2"):
        m = remembered[f"{name}.feedback.weight"].m
        assert m.any() and not torch.allclose(sent[f"{name}.weight"], true[f"{name}.weight"])
        torch.testing.assert_close(sent[f"{name}.weight"] + m, true[f"{name}.weight"])
        torch.testing.assert_close(sent[f"{name}.bias"], true[f"{name}.bias"])


def test_with_memory_of_activations_the_parts_sum_to_the_gradient_for_the_bias_alone():
    """In the last hidden layer, whose ∂ℓ/∂h is the true one."""
    true, model = sums_of_gradients(network(None)), network(SparseBackprop(0.1, 1.0))
    sent, m = sums_of_gradients(model), memories(model)["net.2"].m[0]
    torch.testing.assert_close(sent["net.2.bias"] + B * m, true["net.2.bias"])
    x = torch.cat([x for x, _ in batches(6)])
    z = nn.functional.relu(model.net[0](x)).detach()  # whatever input the remembered part would meet
    difference = true["net.2.weight"] - sent["net.2.weight"]
    best = B * torch.outer(m, z.mean(0))
    assert (difference - best).norm() > 0.1 * difference.norm()


def test_a_step_propagates_k_rows_of_a_weight():
    model = network(WeightFeedback(0.1))
    for x, y in batches(3):
        model.zero_grad()
        backward(model.loss(x, y))
        for name in ("net.0", "net.2"):
            assert model.get_submodule(name).weight.grad.any(1).sum() == 3


def test_a_gradient_that_is_not_finite_is_propagated_and_leaves_the_memory_unchanged():
    model = network(WeightFeedback(0.1))
    (x, y), (other, _) = batches(2)
    backward(model.loss(x, y))
    before = {name: memory.m.clone() for name, memory in memories(model).items()}
    model.zero_grad()
    other[0, 0] = torch.inf
    backward(model.loss(other, y))
    assert not model.get_submodule("net.0").weight.grad.isfinite().all()
    assert all(torch.equal(memory.m, before[name]) for name, memory in memories(model).items())


@pytest.mark.parametrize("method", [WeightFeedback(0.1), AdaptiveBackprop(0.05, 0.3, 0.8, 1.0)])
def test_a_checkpoint_holds_the_memories(method):
    model = network(method)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        backward(model.loss(x, y))
        optimizer.step()

    first, second, third = batches(3)
    step(*first)
    kept = copy.deepcopy(capture(model, optimizer))
    step(*second), step(*third)
    after = [p.clone() for p in model.parameters()]
    restore(kept, model, optimizer)
    step(*second), step(*third)
    assert all(torch.equal(p, other) for p, other in zip(model.parameters(), after, strict=True))


def test_adaptive_keeps_between_its_bounds_and_the_share_of_energy_where_they_allow_it():
    model = network(AdaptiveBackprop(0.1, 0.5, 0.7, 1.0))
    seen = []
    layer = model.get_submodule("net.2")
    estimate = layer.estimate

    def watched(grad_h, k):
        carried = grad_h + layer.memory.m
        result = estimate(grad_h, k)
        seen.append((carried, result[0]))
        return result

    layer.estimate = watched
    sums_of_gradients(model)
    for carried, g in seen:
        counts = g.count_nonzero(1)
        assert counts.min() >= 3 and counts.max() <= 15
        share = g.square().sum(1) / carried.square().sum(1)
        assert ((share >= 0.7) | (counts == 15)).all()
        torch.testing.assert_close(g[g != 0], carried[g != 0])
    assert len({int(c) for _, g in seen for c in g.count_nonzero(1)}) > 1, "k varies"


def test_gamma_follows_the_agreement_of_memory_and_fresh_gradient():
    memory = AdaptiveMemory(4, 0.8).double()
    fresh = torch.tensor([[1.0, 0, 0, 0], [3, 0, 0, 0]], dtype=torch.float64)

    def gamma_with(m):
        memory.load(torch.tensor([m], dtype=torch.float64))
        g, after = memory.estimate(fresh, torch.zeros_like)
        carried = (fresh + torch.tensor(m, dtype=torch.float64)).mean(0, keepdim=True)
        assert not g.any()
        return float((after / carried)[carried != 0][0])

    assert gamma_with([5, 0, 0, 0]) == pytest.approx(0.8)
    assert gamma_with([0, 5, 0, 0]) == pytest.approx(0.4)
    assert gamma_with([-5, 0, 0, 0]) == pytest.approx(0.0)
    assert gamma_with([0, 0, 0, 0]) == pytest.approx(0.8), "nothing to disagree with"


def test_lstms_and_convolutions_take_both_methods():
    cnn = TextCNN(9, 2, None, hidden=6, windows=(2,), width=5, embedding="random")
    lstm = nn.Sequential(nn.LSTM(5, 6))
    lstm.msbp_hidden_layers = [["0"]]
    words, offsets, labels = torch.randint(1, 9, (10,)), torch.tensor([0, 4, 10]), torch.tensor([0, 1])
    losses = {
        cnn: lambda model: model.loss(words, offsets, labels),
        lstm: lambda model: model(torch.ones(3, 2, 5))[0].square().sum(),
    }
    for plain, loss in losses.items():
        for method in (WeightFeedback(0.2), AdaptiveBackprop(0.2, 0.5, 0.7, 1.0)):
            model = copy.deepcopy(plain)
            method.install(model)
            for _ in range(2):
                loss(model).backward()
            assert memories(model) and all(memory.m.any() for memory in memories(model).values())


def test_a_lower_bound_above_the_upper_one_is_refused():
    with pytest.raises(ValueError, match=r"method\.r_min=0\.5 must be at most method\.r_max=0\.1"):
        AdaptiveBackprop(0.5, 0.1, 0.8, 1.0)
