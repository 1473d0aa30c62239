"""Optimizers on factored gradients are torch's own on dense ones."""

import numpy as np
import pytest
import torch
from numba import njit
from torch import nn

from msbp.optim.kernels import drift_row
from msbp.sparse import fuse

from .twins import B, Twins, batch, each_optimizer, network, run, widths


@each_optimizer
def test_six_hundred_steps_on_factored_gradients_equal_torchs(ours, theirs):
    assert run(Twins(network(), ours, theirs), 600) <= 5e-6


KINDS = {
    "a memory per slot": {"memory": "per_slot"},
    "the same columns for all": {"selection": "unified"},
    "full bias gradient": {"bias": "full"},
    "no memory": {"gamma": 0.0},
    "all kept": {"r": 1.0},
    "the baseline": {"install": fuse},
}


@each_optimizer
@pytest.mark.parametrize("choices", KINDS.values(), ids=KINDS)
def test_every_kind_of_gradient_is_accepted(ours, theirs, choices):
    assert run(Twins(network(**choices), ours, theirs), 40) <= 2e-6


@each_optimizer
def test_float64_updates_equal_torchs(ours, theirs):
    assert run(Twins(network(dtype=torch.float64), ours, theirs), 60) <= 1e-12


@each_optimizer
def test_accumulated_gradients_give_torchs_updates(ours, theirs):
    assert run(Twins(network(), ours, theirs), 40, passes=3) <= 5e-6


@each_optimizer
def test_dense_and_factored_steps_may_alternate(ours, theirs):
    def meddle(twins, step):
        if step % 2:
            for p, q in zip(twins.model.parameters(), twins.dense, strict=True):
                p.grad = q.grad = (q.grad * 0.5).clone() if step % 4 == 1 else torch.randn_like(q) * 1e-3

    assert run(Twins(network(), ours, theirs), 60, between=meddle) <= 5e-6


@each_optimizer
def test_scaled_losses_give_torchs_updates(ours, theirs):
    twins = Twins(network(), ours, theirs)
    for step in range(20):
        twins.backward(*batch(), times=0.5 if step % 2 else 1.0)
        twins.read()
        twins.step()
    assert twins.apart() <= 5e-6


@each_optimizer
def test_rows_that_never_had_a_gradient_equal_torchs_bit_for_bit(ours, theirs):
    model = network(r=1 / 64, gamma=0.0, install=None)
    before, touched = model[0].weight.detach().clone(), torch.zeros(64, dtype=torch.bool)
    twins = Twins(model, ours, theirs)
    for _ in range(5):
        twins.backward(*batch())
        twins.read()
        touched |= twins.dense[0].grad.any(1)
        twins.step()
    assert 0 < touched.sum() < 64
    assert torch.equal(model[0].weight[~touched], twins.dense[0][~touched])
    decays = any(group.get("weight_decay") for group in twins.theirs.param_groups)
    assert torch.equal(model[0].weight[~touched], before[~touched]) is not decays
    assert (model[0].weight[touched] != before[touched]).any(1).all()
    assert twins.apart() <= 5e-6


@each_optimizer
def test_rows_with_few_gradients_keep_moving_as_torchs_do(ours, theirs):
    twins = Twins(network(r=1 / 64, gamma=0.0), ours, theirs)
    zero = torch.zeros(B, widths[0]), torch.zeros(B, dtype=torch.long)
    for step in range(60):
        twins.backward(*(batch() if step in (0, 1, 30) else zero))
        twins.read()
        twins.step()
        assert twins.apart() <= 5e-6


@each_optimizer
def test_steps_without_a_gradient_change_nothing(ours, theirs):
    twins = Twins(network(), ours, theirs)
    run(twins, 3)
    before = [p.detach().clone() for p in twins.model.parameters()]
    for _ in range(3):
        twins.step()
    assert all(torch.equal(p, q) for p, q in zip(twins.model.parameters(), before, strict=True))
    assert run(twins, 10) <= 5e-6


@each_optimizer
def test_a_gradient_that_is_a_view_with_the_other_sign_is_read_as_by_torch(ours, theirs):
    weights = [nn.Parameter(torch.ones(5, 4)) for _ in range(2)]
    for weight, kind in zip(weights, (ours, theirs), strict=True):
        optimizer = kind([weight])
        for _ in range(3):
            weight.grad = torch.complex(torch.zeros(5, 4), torch.ones(5, 4)).conj().imag
            assert weight.grad.is_neg()
            optimizer.step()
    torch.testing.assert_close(*weights)


@each_optimizer
def test_the_learning_rate_may_change_and_a_group_may_be_added(ours, theirs):
    twins = Twins(network(), lambda p: ours(list(p)[:2]), lambda p: theirs(p[:2]))
    for optimizer, parameters in ((twins.ours, list(twins.model.parameters())), (twins.theirs, twins.dense)):
        optimizer.add_param_group({"params": parameters[2:], "lr": 1e-3})
    schedules = [
        torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.7) for optimizer in (twins.ours, twins.theirs)
    ]

    def advance(twins, step):
        if step:
            for schedule in schedules:
                schedule.step()

    assert run(twins, 30, between=advance) <= 5e-6


OTHERS = {
    "Adam": torch.optim.Adam,
    "AdamW": torch.optim.AdamW,
    "RMSprop": torch.optim.RMSprop,
    "Adagrad": torch.optim.Adagrad,
    "Adadelta": torch.optim.Adadelta,
    "SGD": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True),
    "fused Adam": lambda p: torch.optim.Adam(p, fused=True),
    "single Adam": lambda p: torch.optim.Adam(p, foreach=False),
    "NAdam": torch.optim.NAdam,
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_torchs_own_optimizers_see_dense_gradients(other):
    assert run(Twins(network(), other, other), 20) == 0


@each_optimizer
def test_an_input_changed_between_backward_and_step_has_no_effect_or_is_an_error(ours, theirs):
    twins = Twins(network(), ours, theirs)
    x, y = batch()
    twins.backward(x, y)
    twins.read()
    x += 1
    try:
        twins.step()
    except RuntimeError as error:
        assert "changed" in str(error)
    else:
        assert twins.apart() <= 5e-6


@njit
def drift(p, m, v, i, keep, rate, root, eps):
    drift_row(p, m, v, i, 0, keep, rate, root, eps)


@pytest.mark.parametrize("i", [1, 5, 16, 17, 64, 131])
def test_a_row_without_gradient_moves_by_exact_roots_of_all_magnitudes(i):
    one, none = np.float32(1), np.float32(0)
    generator = torch.Generator().manual_seed(i)
    for exponent in range(-120, 128, 8):
        v = torch.rand(i, generator=generator).add(0.5) * 2.0**exponent
        p, m = torch.zeros(i), -v
        drift(p.data_ptr(), m.data_ptr(), v.data_ptr(), i, one, one, one, none)  # p = v / sqrt(v)
        torch.testing.assert_close(p.double(), v.double().sqrt(), rtol=2.0**-22, atol=0)
    for v, moved in ((0.0, 0.0), (torch.inf, 0.0), (torch.nan, torch.nan)):
        p, m, v = torch.zeros(i), torch.zeros(i), torch.full((i,), v)
        drift(p.data_ptr(), m.data_ptr(), v.data_ptr(), i, one, one, one, np.float32(1e-8))
        torch.testing.assert_close(p, torch.full((i,), moved), equal_nan=True)
