"""Twenty steps of training against the paper's algorithms, weights and memories included.

Letters: B batch, k kept, p dropout. The oracle works in float64 on the same numbers.
"""

import pytest
import torch
from torch import nn

from msbp.sparse import convert

from .oracle import Oracle, keeps
from .problems import assert_close, gradients, memory_of, mlp

PROBLEMS = {
    "the paper's shape": {},
    "one hidden layer": {"widths": (6, 30, 4)},
    "three hidden layers": {"widths": (6, 20, 33, 17, 4), "r": 0.2},
    "one kept": {"r": 0.01},
    "almost all kept": {"r": 0.9},
    "no memory": {"gamma": 0.0},
    "long memory": {"gamma": 0.99},
    "a memory per slot": {"memory": "per_slot"},
    "a memory that passes on": {"memory": "sequential"},
    "the same columns for all": {"selection": "unified"},
    "the same columns, a memory per slot": {"selection": "unified", "memory": "per_slot"},
    "full bias gradient": {"bias": "full"},
    "full bias gradient, a memory per slot": {"bias": "full", "memory": "per_slot"},
    "no bias": {"has_bias": False},
    "dropout": {"p": 0.3},
    "dropout, a memory per slot": {"p": 0.5, "memory": "per_slot"},
    "one example": {"batches": (1,)},
    "short last batches": {"batches": (8, 8, 3)},
    "short last batches, a memory per slot": {"batches": (8, 8, 3), "memory": "per_slot"},
    "batches that grow, a memory per slot": {"batches": (2, 5, 8), "memory": "per_slot"},
    "short last batches, a memory that passes on": {"batches": (8, 8, 3), "memory": "sequential"},
    "wider than a vector register": {"widths": (40, 130, 70, 10), "r": 0.05, "batches": (32,)},
    "columns out of order": {"layout": lambda x: x.T.contiguous().T},
    "every second column": {"layout": lambda x: x.repeat_interleave(2, 1)[:, ::2]},
}


def train(
    widths=(6, 24, 24, 4),
    r=0.15,
    gamma=0.8,
    p=0.0,
    batches=(8,),
    has_bias=True,
    layout=lambda x: x,
    dtype=torch.float32,
    **choices,
):
    """Twenty steps of SGD side by side; how many of them were undecided."""
    exact = dtype == torch.float64
    model = mlp(*widths, p=p, bias=has_bias, dtype=dtype)
    oracle = Oracle(model, r, gamma, tolerance=1e-12 if exact else 1e-5, **choices)
    relative, undecided = 1e-10 if exact else 1e-5, 0
    convert(model, r, gamma, **choices)
    for step in range(20):
        B = batches[step % len(batches)]
        x, target = layout(torch.randn(B, widths[0], dtype=dtype)), torch.randint(widths[-1], (B,))
        x.requires_grad_()
        masks = keeps(model, B)
        logits = model(x)
        logits.retain_grad()
        model.zero_grad()
        nn.functional.cross_entropy(logits, target).backward()
        theirs = oracle.forward(x.detach(), masks)
        assert_close({"logits": logits.detach()}, {"logits": theirs})
        expected = oracle.backward(logits.grad)
        if oracle.undecided():
            undecided += 1
        else:
            assert_close({**gradients(model), "x": x.grad}, expected, relative)
            assert_close(memory_of(model), oracle.memory, relative)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
            for name, unit in oracle.units.items():
                unit.weight -= 0.1 * expected[f"{name}.weight"]
                if has_bias:
                    unit.bias -= 0.1 * expected[f"{name}.bias"]
        if oracle.undecided():
            oracle.follow(model)
    return undecided


@pytest.mark.parametrize("problem", PROBLEMS)
def test_training_follows_the_paper(problem):
    assert train(**PROBLEMS[problem]) <= 8


@pytest.mark.parametrize("problem", PROBLEMS)
def test_training_follows_the_paper_in_float64(problem):
    assert train(**PROBLEMS[problem], dtype=torch.float64) == 0
