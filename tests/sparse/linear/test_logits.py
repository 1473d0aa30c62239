"""Logits that are changed before the loss, or come from another kind of network.

Letters: B batch, i in_features, n out_features, c classes.
"""

import copy

import pytest
import torch
from torch import nn

from msbp.sparse import cross_entropy

from ..networks import Branches, each_model
from ..problems import assert_close, state
from .test_loss import each_install, pair, through

B, i, c = 6, 10, 3


def backward(loss, model):
    loss.backward()


@each_install
def test_logits_may_be_used_besides_the_loss(install):
    model, twin = pair(install)

    def both(criterion):
        def loss(logits, y):
            return criterion(logits, y) + 0.1 * logits.square().mean()

        return loss

    ours = through(model, both(cross_entropy), backward)
    assert_close(ours, through(twin, both(nn.functional.cross_entropy), backward))


@each_install
def test_logits_may_retain_their_gradient_or_have_hooks(install):
    for prepare in (
        lambda logits, seen: logits.retain_grad(),
        lambda logits, seen: logits.register_hook(seen.append),
    ):
        model, twin = pair(install)
        results = []
        for network, criterion in ((model, cross_entropy), (twin, nn.functional.cross_entropy)):
            torch.manual_seed(1)
            x, y, seen = torch.randn(B, i), torch.randint(c, (B,)), []
            logits = network(x)
            prepare(logits, seen)
            criterion(logits, y).backward()
            results.append({**state(network), "logits": seen[0] if seen else logits.grad})
        assert_close(*results)


BETWEEN = {
    "scaled": lambda logits: 2 * logits,
    "fewer classes": lambda logits: logits[:, :2],
    "fewer rows": lambda logits: logits[1:],
    "a sum": lambda logits: logits + 0,
    "log_softmax": lambda logits: logits.log_softmax(1),
    "a clone": lambda logits: logits.clone(),
    "changed in place": lambda logits: logits.add_(1),
    "a view": lambda logits: logits.view(-1, c),
    "detached": lambda logits: logits.detach().requires_grad_(),
}


@each_install
@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_modified_logits_give_torchs_gradients(install, between):
    model, twin = pair(install)

    def after(criterion):
        def loss(logits, y):
            logits = between(logits)
            return criterion(logits, y[len(y) - len(logits) :] % 2)

        return loss

    ours = through(model, after(cross_entropy), backward)
    assert_close(ours, through(twin, after(nn.functional.cross_entropy), backward))


@each_model
@each_install
def test_cross_entropy_works_with_any_model(build, replaced, width, install):
    model, twin = pair(install, build=build)
    for network, criterion in ((model, cross_entropy), (twin, nn.functional.cross_entropy)):
        torch.manual_seed(1)
        for _ in range(2):
            criterion(network(torch.randn(B, width)), torch.randint(c, (B,))).backward()
    assert_close(state(model), state(twin))


def test_logits_without_a_sparse_network_give_torchs_gradients():
    x, y = torch.randn(B, 6), torch.randint(c, (B,))
    for network in (Branches(), nn.Linear(6, c)):
        ours, theirs = copy.deepcopy(network), network
        cross_entropy(ours(x), y).backward()
        nn.functional.cross_entropy(theirs(x), y).backward()
        assert_close(state(ours), state(theirs))
    leaf = torch.randn(B, c, requires_grad=True)
    cross_entropy(leaf, y).backward()
    assert leaf.grad.any()


@each_install
def test_targets_out_of_range_or_of_another_shape_are_errors_as_in_torch(install):
    model, _ = pair(install)
    for wrong in (
        torch.full((B,), c),
        torch.full((B,), -1),
        torch.zeros(B + 1, dtype=torch.long),
        torch.zeros(B, 2).long(),
    ):
        with pytest.raises((IndexError, ValueError, RuntimeError)):
            cross_entropy(model(torch.randn(B, i)), wrong)


@each_install
def test_ignored_targets_are_ignored_as_in_torch(install):
    model, twin = pair(install)
    y = torch.tensor([0, -100, 2, 1, -100, 0])
    for network, criterion in ((model, cross_entropy), (twin, nn.functional.cross_entropy)):
        torch.manual_seed(1)
        criterion(network(torch.randn(B, i)), y).backward()
    assert_close(state(model), state(twin))


CHOICES: dict[str, dict] = {
    "sum": {"reduction": "sum"},
    "smoothed": {"label_smoothing": 0.1},
    "weighted": {"weight": torch.tensor([0.2, 1.0, 3.0])},
    "ignored": {"ignore_index": 1},
    "mean": {"reduction": "mean"},
}


@each_install
@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
def test_other_options_of_torchs_cross_entropy_give_torchs_loss(install, choices):
    model, twin = pair(install)
    for network, criterion in ((model, cross_entropy), (twin, nn.functional.cross_entropy)):
        torch.manual_seed(1)
        criterion(network(torch.randn(B, i)), torch.randint(c, (B,)), **choices).backward()
    assert_close(state(model), state(twin))
