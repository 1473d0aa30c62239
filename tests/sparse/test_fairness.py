"""The baseline and the methods share all but the backward pass of hidden layers: forward bits and masks.

Letters: B batch, i in_features, n out_features, c classes, p dropout.
"""

import copy

import torch
from torch import nn

from msbp.sparse import convert, cross_entropy, fuse, memories

from .networks import each_model
from .oracle import keeps
from .problems import assert_close, each_dtype, gradients, mlp

B, i, n, c = 16, 10, 40, 4
METHODS = {
    "baseline": fuse,
    "sbp": lambda model: convert(model, gamma=0.0),
    "msbp": convert,
    "slots": lambda model: convert(model, memory="per_slot"),
    "passing": lambda model: convert(model, memory="sequential"),
    "unified": lambda model: convert(model, selection="unified"),
}


def trio(build):
    """The same network under every method."""
    model = build()
    copies = {name: copy.deepcopy(model) for name in METHODS}
    for name, twin in copies.items():
        METHODS[name](twin)
    return copies


def same(results):
    first, *others = results
    return all(torch.equal(first, other) for other in others)


def seeded(model, *x):
    torch.manual_seed(7)
    return [model(x) for x in x]


@each_dtype
@each_model
def test_all_methods_have_the_same_forward_bits_and_masks(build, replaced, width, dtype):
    x = [torch.randn(B, width, dtype=dtype) for _ in range(3)]
    models = trio(lambda: build().to(dtype))
    for mode in (True, False):
        results = [seeded(model.train(mode), *x) for model in models.values()]
        assert all(same(step) for step in zip(*results, strict=True))
        with torch.no_grad():
            unrecorded = [seeded(model, *x) for model in models.values()]
        assert all(same(step) for step in zip(*unrecorded, strict=True))
        torch.testing.assert_close(unrecorded[0], results[0])


@each_dtype
def test_all_methods_leave_torchs_generator_in_the_same_state(dtype):
    x, states = torch.randn(B, i, dtype=dtype), []
    for model in trio(lambda: mlp(i, n, n, c, p=0.3, dtype=dtype)).values():
        torch.manual_seed(7)
        cross_entropy(model(x), torch.zeros(B, dtype=torch.long)).backward()
        states.append(torch.get_rng_state())
    assert same(states)


@each_dtype
def test_dropout_drops_the_right_share_and_keeps_the_mean(dtype):
    for p in (0.1, 0.5, 0.9):
        model = nn.Sequential(nn.Linear(1, 500), nn.ReLU(), nn.Dropout(p), nn.Linear(500, 500)).to(dtype)
        with torch.no_grad():
            model[0].weight.fill_(1.0)
            model[0].bias.zero_()
            model[3].weight.copy_(torch.eye(500))
            model[3].bias.zero_()
        fuse(model)
        z = model(torch.ones(64, 1, dtype=dtype))
        assert set(z.unique().tolist()) == {0.0, torch.tensor(1 / (1 - p), dtype=dtype).item()}
        assert abs((z == 0).double().mean().item() - p) < 0.01
        rows, columns = (z == 0).double().mean(1), (z == 0).double().mean(0)
        assert rows.std() < 0.05 and columns.std() < 0.1
        assert not torch.equal(z[0], z[1])


@each_dtype
def test_masks_change_from_pass_to_pass_and_layer_to_layer_and_follow_the_seed(dtype):
    model = mlp(1, n, n, c, p=0.5, dtype=dtype)
    convert(model)
    masks = keeps(model, B)
    assert not torch.equal(masks["0"], masks["3"])
    x = torch.ones(B, 1, dtype=dtype)
    first, second, again = *seeded(model, x, x), *seeded(model, x)
    assert torch.equal(first, again) and not torch.equal(first, second)
    state = torch.get_rng_state()
    third = model(x)
    torch.set_rng_state(state)
    assert torch.equal(third, model(x))


@each_dtype
def test_dropout_with_probability_one_and_zero(dtype):
    x = torch.randn(B, i, dtype=dtype)
    none, plain = mlp(i, n, c, dtype=dtype), mlp(i, n, c, dtype=dtype)
    plain.load_state_dict(none.state_dict())
    everything = nn.Sequential(*plain[:2], nn.Dropout(1.0), plain[2])
    for model in (none, everything):
        convert(model)
    torch.testing.assert_close(none(x), plain(x))
    out = everything(x)
    torch.testing.assert_close(out, plain[2].bias.expand_as(out))
    out.sum().backward()
    assert not everything[0].weight.grad.any() and not memories(everything)["0"].m.any()


@each_dtype
def test_a_full_ratio_without_memory_has_the_curve_of_the_baseline(dtype):
    full = mlp(i, n, n, c, p=0.2, dtype=dtype)
    base = copy.deepcopy(full)
    convert(full, r=1.0, gamma=0.0)
    fuse(base)
    curves = []
    for model in (full, base):
        torch.manual_seed(3)
        optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
        for _ in range(30):
            loss = cross_entropy(model(torch.randn(B, i, dtype=dtype)), torch.randint(c, (B,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        curves.append({"losses": torch.stack(losses), **gradients(model)})
    assert_close(curves[0], curves[1], 1e-5 if dtype == torch.float32 else 1e-12)


@each_dtype
def test_the_same_run_twice_is_the_same_bit_for_bit(dtype):
    runs = []
    for _ in range(2):
        torch.manual_seed(5)
        model = mlp(i, n, n, c, p=0.2, dtype=dtype)
        convert(model, r=0.1)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(20):
            optimizer.zero_grad()
            cross_entropy(model(torch.randn(B, i, dtype=dtype)), torch.randint(c, (B,))).backward()
            optimizer.step()
        runs.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert same(runs)
