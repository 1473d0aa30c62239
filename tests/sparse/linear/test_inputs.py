"""A layer alone takes inputs of any number of dimensions, and large ones by panels that are copied.

Letters: i in_features, n out_features, B rows.
"""

import copy

import pytest
import torch
from torch import nn

from msbp.sparse import convert, memories
from msbp.sparse.buffers import plain_torch

from ..problems import assert_close, gradients

i, n = 10, 16


def layer(i=i, n=n, r=0.25, bias=True, **choices):
    model = nn.Sequential(nn.Linear(i, n, bias=bias))
    convert(model, r, layers=["0"], **choices)
    return model[0]


def passes(linear, x, grad):
    """The output, ∂ℓ/∂x, the gradients and the memory after a step."""
    x = x.detach().requires_grad_()
    linear.zero_grad()
    out = linear(x)
    out.backward(grad)
    found = {name: p.grad.to_dense() for name, p in linear.named_parameters()}
    return {"out": out.detach(), "x": x.grad, "memory": linear.memory.m.clone(), **found}


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("shape", [(), (1,), (6,), (2, 3), (3, 1, 2), (1, 1, 1, 6)], ids=str)
def test_an_input_of_any_shape_gets_what_its_rows_get(shape, bias):
    torch.manual_seed(0)
    one, x, grad = layer(bias=bias), torch.randn(*shape, i), torch.randn(*shape, n)
    torch.manual_seed(0)
    other = layer(bias=bias)
    found = passes(one, x, grad)
    rows = passes(other, x.reshape(-1, i), grad.reshape(-1, n))
    assert found["out"].shape == (*shape, n)
    assert found["x"].shape == x.shape
    for name, expected in rows.items():
        assert torch.equal(found[name].reshape(expected.shape), expected), name


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_without_selection_a_layer_is_torchs_own_at_any_shape(bias):
    plain, x, grad = nn.Linear(i, n, bias=bias), torch.randn(2, 3, i), torch.randn(2, 3, n)
    found = layer(r=1.0, bias=bias)
    found.load_state_dict(plain.state_dict())
    expected = x.clone().requires_grad_()
    plain(expected).backward(grad)
    result = passes(found, x, grad)
    own = {name: p.grad for name, p in plain.named_parameters()} | {"x": expected.grad}
    assert_close({name: result[name] for name in own}, own, 1e-6)


def test_a_gradient_that_is_not_finite_is_propagated_whole_at_any_shape():
    linear, x, grad = layer(), torch.randn(2, 3, i), torch.randn(2, 3, n)
    grad[0, 1, 2] = torch.inf
    found = passes(linear, x, grad)
    assert_close({"x": found["x"][1]}, {"x": grad[1] @ linear.weight.detach()}, 1e-6)
    assert not found["memory"].any()


def test_the_output_of_several_dimensions_may_be_changed_in_place():
    x = torch.randn(2, 3, i, requires_grad=True)
    layer()(x).relu_().sum().backward()
    assert x.grad.shape == x.shape


def test_an_input_of_several_dimensions_that_changes_before_the_backward_pass_is_an_error():
    linear, x = layer(), torch.randn(2, 3, i)
    out = linear(x)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def ragged(layout):
    rows = [torch.randn(3, i), torch.randn(5, i)]
    return torch.nested.nested_tensor(rows, layout=layout)


def sparse(convert_layout):
    return convert_layout(torch.randn(4, i).relu())


LAYOUTS = {
    "jagged": lambda: ragged(torch.jagged),
    "nested": lambda: ragged(torch.strided),
    "COO": lambda: sparse(torch.Tensor.to_sparse),
    "CSR": lambda: sparse(torch.Tensor.to_sparse_csr),
}
MODELS = {
    "a layer": (lambda: nn.Linear(i, n), {"layers": [""]}),
    "a chain": (
        lambda: nn.Sequential(nn.Linear(i, n), nn.ReLU(), nn.Dropout(0.0), nn.Linear(n, n), nn.Linear(n, 3)),
        {},
    ),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested", "ignore:Sparse CSR")
@pytest.mark.parametrize(("build", "options"), MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("draw", LAYOUTS.values(), ids=LAYOUTS)
def test_a_nested_or_sparse_input_gets_torchs_own_passes(draw, build, options):
    plain, x = build(), draw()
    model = copy.deepcopy(plain)
    convert(model, r=0.25, **options)
    results = []
    for network in (model, plain):
        out = network(x)
        out = out.to_padded_tensor(0.0) if out.is_nested else out
        out.square().sum().backward()
        results.append({"out": out.detach(), **{name: p.grad for name, p in network.named_parameters()}})
        with torch.no_grad():
            assert network(x).is_nested == x.is_nested
    assert_close(*results, 1e-6)
    assert not any(memory.m.any() for memory in memories(model).values())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
def test_nested_tokens_are_looked_up_with_torchs_own_passes():
    plain = nn.Sequential(nn.Embedding(9, i), nn.Linear(i, n), nn.Linear(n, 3))
    model = copy.deepcopy(plain)
    convert(model, r=0.25)
    tokens = torch.nested.nested_tensor([torch.arange(3), torch.arange(5)], layout=torch.jagged)
    for network in (model, plain):
        network(tokens).values().square().sum().backward()
    assert_close(gradients(model), gradients(plain), 1e-6)


LARGE = {
    "a wide weight": (300, 480, 600),
    "a narrow weight": (1100, 130, 300),
    "even sizes": (512, 320, 512),
    "a large batch, a small weight": (150, 70, 400),
}


@pytest.mark.parametrize(("i", "n", "B"), LARGE.values(), ids=LARGE)
def test_kernels_and_plain_torch_agree_where_panels_are_copied(i, n, B):
    linear, x, grad = layer(i, n, 0.1), torch.randn(B, i), torch.randn(B, n)
    grad[3:9] = 0  # of padding
    results = [passes(linear, x, grad)]
    linear.memory.clear()
    with plain_torch():
        results.append(passes(linear, x, grad))
    assert_close(*results, 1e-5)
