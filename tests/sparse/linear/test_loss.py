"""The loss whose backward pass is fused with that of a chain: the gradients are those of autograd.

Letters: B batch, i in_features, n out_features, c classes. Dropout is off or seeded, memories are on.
"""

import copy

import pytest
import torch
from torch import nn

from msbp.sparse import backward as sparse_backward
from msbp.sparse import convert, cross_entropy, fuse

from ..problems import assert_close, each_dtype, mlp, state

B, i, n, c = 6, 10, 16, 3
INSTALL = {"sparse": convert, "sparse, no memory": lambda model: convert(model, gamma=0.0), "fused": fuse}
each_install = pytest.mark.parametrize("install", INSTALL.values(), ids=INSTALL)


def pair(install, dtype=torch.float32, build=lambda: mlp(i, n, n, c, p=0.3)):
    """Two equal networks."""
    model = build().to(dtype)
    install(model)
    return model, copy.deepcopy(model)


def through(model, criterion, act, dtype=torch.float32, rows=B):
    """Return the gradients that `act` leaves in a network, given the loss of a seeded batch."""
    torch.manual_seed(1)
    x, y = torch.randn(rows, i, dtype=dtype), torch.randint(c, (rows,))
    loss = criterion(model(x), y)
    act(loss, model)
    return {**state(model), "loss": loss.detach()}


USES = {
    "direct backward": lambda loss, model: sparse_backward(loss),
    "backward": lambda loss, model: loss.backward(),
    "kept graph": lambda loss, model: loss.backward(retain_graph=True),
    "kept graph, twice": lambda loss, model: (loss.backward(retain_graph=True), loss.backward()),
    "weighted": lambda loss, model: loss.backward(gradient=torch.full_like(loss, 2.5)),
    "weighted by position": lambda loss, model: loss.backward(torch.full_like(loss, -1.0)),
    "scaled": lambda loss, model: (3 * loss).backward(),
    "with a penalty": lambda loss, model: (
        loss + sum(p.square().sum() for p in model.parameters())
    ).backward(),
    "for some parameters": lambda loss, model: loss.backward(inputs=[model[0].weight, model[-1].bias]),
    "torch.autograd.backward": lambda loss, model: torch.autograd.backward(loss),
    "half of it, then the rest": lambda loss, model: (
        (loss / 2).backward(retain_graph=True),
        (loss / 2).backward(),
    ),
    "looked at first": lambda loss, model: (
        loss.item(),
        loss.detach(),
        f"{loss:.3f}",
        loss.backward(),
    ),
    "squared": lambda loss, model: loss.square().backward(),
    "summed": lambda loss, model: torch.stack([loss, loss]).sum().backward(),
}


@each_install
@each_dtype
@pytest.mark.parametrize("use", USES)
def test_every_use_of_the_loss_gives_the_gradients_of_autograd(use, dtype, install):
    model, twin = pair(install, dtype)
    for _ in range(2):
        ours = through(model, cross_entropy, USES[use], dtype)
        theirs = through(twin, nn.functional.cross_entropy, USES[use], dtype)
        assert_close(ours, theirs, 1e-5 if dtype == torch.float32 else 1e-12)


@each_install
def test_gradients_by_autograd_grad_are_torchs(install):
    model, twin = pair(install)

    def ask(loss, model):
        gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        results.append({str(at): grad for at, grad in enumerate(gradients)})

    results: list = []
    assert_close(through(model, cross_entropy, ask), through(twin, nn.functional.cross_entropy, ask))
    assert_close(*results)
    assert all(p.grad is None for p in model.parameters())


@each_install
def test_a_second_backward_pass_raises_torchs_own_error(install):
    for criterion in (cross_entropy, nn.functional.cross_entropy):
        model, _ = pair(install)
        loss = criterion(model(torch.randn(B, i)), torch.randint(c, (B,)))
        loss.backward()
        before = state(model)
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        assert_close(state(model), before, 0)


@each_install
def test_hooks_on_the_loss_are_called(install):
    model, twin = pair(install)
    seen: dict = {}
    for network in (model, twin):
        for name, p in network.named_parameters():
            p.register_hook(lambda grad, key=(network, name): seen.__setitem__(key, grad.clone()))
            p.register_post_accumulate_grad_hook(
                lambda p, key=(network, name, "after"): seen.__setitem__(key, p.grad.clone())
            )
    ours = through(model, cross_entropy, USES["backward"])
    assert_close(ours, through(twin, nn.functional.cross_entropy, USES["backward"]))
    for name, p in model.named_parameters():
        torch.testing.assert_close(seen[model, name], p.grad)
        torch.testing.assert_close(seen[model, name, "after"], p.grad)


@each_install
@pytest.mark.parametrize("register", ["register_hook", "register_prehook"])
@pytest.mark.parametrize("of_loss", [False, True])
def test_hooks_on_nodes_of_the_graph_are_called_and_change_the_gradient(install, register, of_loss):
    model, twin = pair(install)
    results = []
    for network, act in ((model, sparse_backward), (twin, torch.Tensor.backward)):
        calls: list = []
        torch.manual_seed(1)
        logits = network(torch.randn(B, i))
        loss = cross_entropy(logits, torch.randint(c, (B,)))
        node = (loss if of_loss else logits).grad_fn
        if register == "register_prehook":
            node.register_prehook(lambda grads, calls=calls: calls.append(1) or (2 * grads[0],))
        else:
            node.register_hook(lambda grads, outputs, calls=calls: calls.append(1))
        act(loss)
        assert calls == [1]
        results.append(state(network))
    assert_close(*results)


@each_install
def test_hooks_registered_after_the_loss_are_called_too(install):
    model, twin = pair(install)
    seen: list = []

    def late(loss, model):
        model[0].weight.register_hook(lambda grad: seen.append(grad.clone()))
        loss.register_hook(lambda grad: seen.append(grad.clone()))
        loss.backward()

    assert_close(through(model, cross_entropy, late), through(twin, nn.functional.cross_entropy, late))
    assert len(seen) == 4
    torch.testing.assert_close(seen[0], seen[2])
    torch.testing.assert_close(seen[1], seen[3])


@each_install
@each_dtype
def test_the_loss_equals_torchs(install, dtype):
    model, _ = pair(install, dtype, lambda: mlp(i, n, c))
    for scale in (1.0, 1e3, 1e-3):
        x, y = scale * torch.randn(B, i, dtype=dtype), torch.randint(c, (B,))
        expected = nn.functional.cross_entropy(model(x), y)
        torch.testing.assert_close(cross_entropy(model(x), y).detach(), expected.detach())
        with torch.no_grad():
            loss = cross_entropy(model(x), y)
        torch.testing.assert_close(loss, expected.detach())
        assert not loss.requires_grad


@each_install
def test_two_losses_may_be_formed_before_their_backward_passes(install):
    model, twin = pair(install)
    results = []
    for network, criterion in ((model, cross_entropy), (twin, nn.functional.cross_entropy)):
        torch.manual_seed(1)
        losses = [criterion(network(torch.randn(rows, i)), torch.randint(c, (rows,))) for rows in (B, 3, B)]
        for loss in (losses[1], losses[0], losses[2]):
            loss.backward()
        results.append(state(network))
    assert_close(*results)


@each_install
def test_an_unused_loss_does_not_affect_the_next_one(install):
    model, twin = pair(install)
    for network, criterion in ((model, cross_entropy), (twin, nn.functional.cross_entropy)):
        torch.manual_seed(2)
        criterion(network(torch.randn(B, i)), torch.randint(c, (B,)))
    assert_close(
        through(model, cross_entropy, USES["backward"]),
        through(twin, nn.functional.cross_entropy, USES["backward"]),
    )


@each_install
def test_parameters_frozen_after_the_forward_pass_get_no_gradient(install):
    model, twin = pair(install)
    for network, act in ((model, sparse_backward), (twin, torch.Tensor.backward)):
        torch.manual_seed(1)
        loss = cross_entropy(network(torch.randn(B, i)), torch.randint(c, (B,)))
        network[0].weight.requires_grad_(False)
        act(loss)
        assert network[0].weight.grad is None
    assert_close(state(model), state(twin))


@each_install
@pytest.mark.parametrize("prepare", [torch.Tensor.to_sparse, torch.Tensor.requires_grad_])
def test_gradients_of_unusual_kinds_are_accumulated_as_by_autograd(install, prepare):
    model, twin = pair(install)
    for network, act in ((model, sparse_backward), (twin, torch.Tensor.backward)):
        torch.manual_seed(1)
        network[0].weight.grad = prepare(torch.ones(n, i))
        act(cross_entropy(network(torch.randn(B, i)), torch.randint(c, (B,))))
    assert_close(state(model), state(twin))
