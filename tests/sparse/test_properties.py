"""Kernels, plain torch and the reference agree for all shapes, numbers and options.

Letters: B batch, i in_features, n out_features, c classes, k kept. A problem is exact if all its numbers are
small multiples of one power of two: its ties are then ties on every path, and every selection is decided.
"""

import contextlib
import copy
from itertools import pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from msbp.sparse import Cube, convert, fuse, reference
from msbp.sparse.buffers import plain_torch

from .oracle import Oracle, keeps
from .problems import Probe, assert_close, gradients, memory_of, mlp

bounded = settings(max_examples=120, deadline=None, derandomize=True, database=None)
PATHS = {"kernels": contextlib.nullcontext, "plain torch": plain_torch}
CHOICES = [
    ("shared", "per_example"),
    ("per_slot", "per_example"),
    ("sequential", "per_example"),
    ("shared", "unified"),
    ("per_slot", "unified"),
]


@st.composite
def problems(draw):
    exact = draw(st.booleans())
    hidden = draw(st.lists(st.integers(1, 40 if exact else 90), min_size=1, max_size=1 if exact else 3))
    memory, selection = draw(st.sampled_from(CHOICES))
    return {
        "exact": exact,
        "seed": draw(st.integers(0, 10**6)),
        "widths": (draw(st.integers(1, 20)), *hidden, draw(st.integers(1, 12))),
        "batches": draw(
            st.lists(st.sampled_from([1, 2, 4, 8]) if exact else st.integers(1, 9), min_size=2, max_size=2)
        ),
        "r": draw(st.integers(1, hidden[0])) / hidden[0],
        "gamma": draw(st.sampled_from([0.0, 0.5] if exact else [0.0, 0.05, 0.8, 1.0])),
        "p": draw(st.sampled_from([0.0, 0.5] if exact else [0.0, 0.1, 0.7])),
        "scale": draw(st.sampled_from([1.0, 2.0**-136, 2.0**90] if exact else [1.0, 1e-20, 1e-38, 1e20])),
        "has_bias": draw(st.booleans()),
        "choices": {
            "memory": memory,
            "selection": selection,
            "bias": draw(st.sampled_from(["sparse", "full"])),
        },
    }


def numbers(exact, *shape):
    return torch.randint(-2, 3, shape).float() if exact else torch.randn(shape)


def built(problem):
    model = mlp(*problem["widths"], p=problem["p"], bias=problem["has_bias"])
    if problem["exact"]:
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(numbers(True, *p.shape))
    return model


def step(model, x, grad):
    """Gradients, that of the input, logits and memories after one more pass."""
    x = x.clone().requires_grad_()
    model.zero_grad()
    logits = model(x)
    logits.backward(grad)
    return {**gradients(model), "x": x.grad}, {"logits": logits.detach()}, memory_of(model)


@bounded
@given(problems())
def test_kernels_plain_torch_and_the_reference_agree(problem):
    torch.manual_seed(problem["seed"])
    model, exact = built(problem), problem["exact"]
    relative = 1e-6 if exact else 1e-5
    oracle = Oracle(
        model, problem["r"], problem["gamma"], tolerance=0 if exact else 1e-5, **problem["choices"]
    )
    models = {path: copy.deepcopy(model) for path in PATHS}
    for model in models.values():
        convert(model, problem["r"], problem["gamma"], skip_zero_rows=False, **problem["choices"])
    for B in problem["batches"]:
        x = numbers(exact, B, problem["widths"][0])
        grad = problem["scale"] * numbers(exact, B, problem["widths"][-1])
        masks, state, results = keeps(models["kernels"], B), torch.get_rng_state(), []
        for path, model in models.items():
            torch.set_rng_state(state)
            with PATHS[path]():
                results.append(step(model, x, grad))
        logits, outcomes = {"logits": oracle.forward(x, masks)}, oracle.backward(grad)
        for result in results:
            assert_close(result[1], logits, relative, {"logits": oracle.terms})
        if oracle.undecided():
            return
        for result in results:
            assert_close(result[0], outcomes, relative)
            assert_close(result[2], oracle.memory, relative, oracle.remainders)


@st.composite
def rows(draw):
    """Gradients with ties, zeros of both signs, subnormals and numbers near the end of the range."""
    B, n = draw(st.integers(1, 6)), draw(st.integers(1, 100))
    few = draw(
        st.lists(
            st.floats(
                width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**126), max_value=2.0**126
            ),
            min_size=1,
            max_size=5,
        )
    )
    values = [0.0, -0.0, 2.0**-149, -(2.0**-149), 2.0**-126, 1.0, -1.0, *few]
    picked = draw(st.lists(st.sampled_from(values), min_size=B * n, max_size=B * n))
    return torch.tensor(picked).reshape(B, n), draw(st.integers(1, n))


@bounded
@given(rows(), st.sampled_from(["per_example", "unified"]))
def test_all_paths_select_the_same_entries_bit_for_bit(drawn, selection):
    grad_z, k = drawn
    if selection == "unified":
        grad_z = grad_z.clamp(-1e6, 1e6)  # a sum over the batch must not overflow, nor round
        grad_z = grad_z.sign() * grad_z.abs().clamp(min=1).round().clamp(max=1000) * (grad_z != 0)
    outcomes = []
    for path in PATHS.values():
        probe = Probe(*grad_z.shape, k, 0.8, dtype=torch.float32, selection=selection)
        with path():
            outcomes.append(probe.backward(grad_z)[0])
    assert torch.equal(*outcomes)
    unit = reference.Unit(torch.ones(grad_z.shape[1], 1), None, k, 0.8, selection=selection)
    assert torch.equal(outcomes[0], unit.estimate(grad_z))


@st.composite
def stacks(draw):
    """Networks of stages with and without activation, dropout and bias; numbers before a cube are exact."""
    torch.manual_seed(draw(st.integers(0, 10**6)))
    widths = draw(st.lists(st.integers(1, 40), min_size=3, max_size=5))
    layers: list[nn.Module] = []
    for at, (i, n) in enumerate(pairwise(widths)):
        last = at == len(widths) - 2
        linear = nn.Linear(i, n, bias=draw(st.booleans()))
        for p in linear.parameters():
            p.data = numbers(True, *p.shape)
        activation = draw(st.sampled_from([None, nn.ReLU, *([Cube] if last else [])]))
        layers += [linear, *([activation()] if activation else []), *[nn.Dropout(0.5)] * draw(st.booleans())]
    B = draw(st.sampled_from([1, 2, 8]))
    return nn.Sequential(*layers), numbers(True, B, widths[0]), numbers(True, B, widths[-1])


INSTALL = [
    fuse,
    lambda model: convert(model, 0.1, 0.5),
    lambda model: convert(model, 0.3, 0.5, memory="per_slot"),
]


@bounded
@given(stacks(), st.sampled_from(INSTALL))
def test_stages_of_every_kind_are_the_same_by_kernel_and_in_plain_torch(drawn, install):
    model, x, grad = drawn
    relative = 1e-5 if any(isinstance(layer, Cube) for layer in model) else 1e-6
    twin = copy.deepcopy(model)
    for network in (model, twin):
        install(network)
    for seed in range(2):
        results = []
        for network, path in zip((model, twin), PATHS.values(), strict=True):
            torch.manual_seed(seed)
            with path():
                results.append(step(network, x, grad))
        for ours, theirs in zip(*results, strict=True):
            assert_close(ours, theirs, relative)
