"""numba frees an array after its last use by name, so no kernel may use one by its address alone."""

import ast
from pathlib import Path

import pytest
import torch
from torch import nn

from msbp.optim import Adam
from msbp.sparse import convert, cross_entropy, kernels, look_up

peak_mib = pytest.importorskip("msbp.bench.costs").peak_mib  # the sparse core is tested without the pipeline
KERNELS = sorted(Path(kernels.__file__).parent.glob("*.py"))


def remembered(source: str) -> list[str]:
    """Arrays created in a kernel whose address is kept in a variable, beyond the call that reads it."""
    unsafe = []
    for function in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)):
        given = {argument.arg for argument in function.args.args}
        for node in (node for node in ast.walk(function) if isinstance(node, ast.Assign)):
            if isinstance(node.value, ast.Name) and node.value.id in given:  # a job, which its caller holds
                named = (name for target in node.targets for name in ast.walk(target))
                given |= {name.id for name in named if isinstance(name, ast.Name)}
        kept = [node.value for node in ast.walk(function) if isinstance(node, ast.Assign | ast.AugAssign)]
        for value in kept:
            for call in (node for node in ast.walk(value) if isinstance(node, ast.Call)):
                if isinstance(call.func, ast.Name) and call.func.id == "address_of":
                    unsafe += [name.id for name in call.args if name.id not in given]
    return unsafe


def test_no_kernel_keeps_the_address_of_a_local_array():
    assert not {path.name: names for path in KERNELS if (names := remembered(path.read_text()))}


def test_an_address_that_outlives_its_array_is_detected():
    assert remembered("def f(x):\n    a = np.empty(3)\n    p, q = address_of(x), 4 + address_of(a)") == ["a"]


def test_kernels_touch_no_freed_memory(caplog):
    """Every block beyond 64 KiB is unmapped when it is freed, so a use after that ends the process."""
    net = nn.Sequential(nn.Linear(4 * 50, 100), nn.ReLU(), nn.Linear(100, 3))
    embedding = nn.Embedding(1000, 50)
    convert(net, r=0.2, gamma=0.5)
    optimizer = Adam([*embedding.parameters(), *net.parameters()])
    tokens, target = torch.randint(1000, (1024, 4)), torch.randint(3, (1024,))

    def step():
        cross_entropy(look_up(embedding, net, tokens), target).backward()
        optimizer.step()
        optimizer.zero_grad()

    peak_mib("kernels", step)
    assert not caplog.messages, "the process has died"
