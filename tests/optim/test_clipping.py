"""Clipping by norm and by value, with torch's functions and ours, is the same on factored gradients."""

import pytest
import torch
from torch import nn

from msbp import optim

from .twins import Twins, batch, each_optimizer, network, run


@each_optimizer
@pytest.mark.parametrize("max_norm", [0.05, 1e6])
def test_clipping_by_norm_gives_the_update_of_torchs_clipping(ours, theirs, max_norm):
    def clip(twins, step):
        clip = (optim.clip_grad_norm_, nn.utils.clip_grad_norm_)[step % 2]
        actual = clip(twins.model.parameters(), max_norm)
        expected = nn.utils.clip_grad_norm_(twins.dense, max_norm)
        torch.testing.assert_close(actual, expected)

    assert run(Twins(network(), ours, theirs), 60, between=clip) <= 5e-6


@each_optimizer
@pytest.mark.parametrize("largest", [0.002, 1e6])
def test_clipping_by_value_gives_the_update_of_torchs_clipping(ours, theirs, largest):
    def clip(twins, step):
        (optim.clip_grad_value_, nn.utils.clip_grad_value_)[step % 2](twins.model.parameters(), largest)
        nn.utils.clip_grad_value_(twins.dense, largest)

    assert run(Twins(network(), ours, theirs), 60, between=clip) <= 5e-6


@each_optimizer
def test_clipping_by_norm_leaves_the_gradients_that_torchs_would(ours, theirs):
    for clip, reference, limit in (
        (optim.clip_grad_norm_, nn.utils.clip_grad_norm_, 0.1),
        (optim.clip_grad_value_, nn.utils.clip_grad_value_, 0.003),
    ):
        twins = Twins(network(), ours, theirs)
        for _ in range(2):
            twins.backward(*batch())
        twins.read()
        clip(twins.model.parameters(), limit)
        reference(twins.dense, limit)
        for p, q in zip(twins.model.parameters(), twins.dense, strict=True):
            torch.testing.assert_close(p.grad, q.grad)


@each_optimizer
def test_accumulated_gradients_may_be_clipped_and_read_in_between(ours, theirs):
    def meddle(twins, step):
        if step % 3 == 0:
            assert twins.model[0].weight.grad.isfinite().all()
        if step % 3 == 1:
            twins.backward(*batch())
            twins.read()

    assert run(Twins(network(), ours, theirs), 40, passes=2, between=meddle) <= 5e-6


@pytest.mark.parametrize("norm_type", [1.0, 2, "inf"])
def test_clipping_takes_torchs_arguments(norm_type):
    models = network(), network()
    models[1].load_state_dict(models[0].state_dict())
    data = batch()
    for model, clip in zip(models, (optim.clip_grad_norm_, nn.utils.clip_grad_norm_), strict=True):
        nn.functional.cross_entropy(model(data[0]), data[1]).backward()
        clip(model.parameters(), 0.1, norm_type=norm_type, error_if_nonfinite=True, foreach=False)
    for p, q in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(p.grad, q.grad)
    models[0][-1].bias.grad[0] = torch.nan
    with pytest.raises(RuntimeError, match="norm"):
        optim.clip_grad_norm_(models[0].parameters(), 0.1, norm_type, error_if_nonfinite=True)


@pytest.mark.parametrize("norm_type", [1.0, 2, "inf"])
def test_gradients_without_any_row_are_clipped_as_zeros(norm_type):
    """Of some layers or of all."""
    model, (x, _) = network(), batch()
    for last in (1.0, 0.0):
        model.zero_grad()
        (0 * model(x)).sum().backward()
        model[-1].bias.grad += last
        assert not model[0].weight.grad.parts()[1].numel()
        dense = [p.grad.clone().to_dense() for p in model.parameters()]
        expected = nn.utils.get_total_norm(dense, float(norm_type))
        optim.clip_grad_value_(model.parameters(), 1e6)
        actual = optim.clip_grad_norm_(model.parameters(), 0.1, norm_type)
        torch.testing.assert_close(actual, expected)
        assert model[0].weight.grad.parts() is not None
