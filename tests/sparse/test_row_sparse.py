"""A row-sparse gradient is an ordinary tensor to code that reads or changes `.grad`.

Letters: B batch, i in_features, n out_features, c classes.
"""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from msbp import optim
from msbp.sparse import RowSparseGradient, convert

from .problems import assert_close, each_entry, gradients, mlp

B, i, n, c = 6, 10, 16, 3
OPTIMIZERS = {"ours": lambda p: optim.SGD(p, 0.1), "torch's": lambda p: torch.optim.SGD(p, 0.1)}


def batch():
    return torch.randn(B, i), torch.randint(c, (B,))


@pytest.fixture
def networks():
    """A sparse network, and an equal one whose gradients are always taken at once as dense tensors."""
    model = mlp(i, n, n, c)
    convert(model, r=0.2)
    twin = copy.deepcopy(model)
    for p in twin.parameters():
        p.register_hook(lambda grad: grad)
    return model, twin


def double(p):
    p.grad.mul_(2)


def add(p):
    p.grad += 1


def replace(p):
    p.grad = torch.ones_like(p)


def replace_by_half(p):
    p.grad = p.grad / 2


def forget(p):
    p.grad = None


def delete(p):
    del p.grad


def read_twice(p):
    assert p.grad is p.grad
    assert torch.equal(p.grad, p.grad.clone()) and p.grad.shape == p.shape and not p.grad.requires_grad


TOUCHES = [double, add, replace, replace_by_half, forget, delete, read_twice]


@each_entry
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("touch", TOUCHES, ids=lambda f: f.__name__)
def test_every_change_of_a_gradient_affects_the_update(networks, touch, optimizer, backward):
    """Before, between and after backward passes, and for the step that follows."""
    optimizers = [optimizer(network.parameters()) for network in networks]
    for first, second, third in ((0, 1, 0), (1, 0, 0), (0, 1, 1)):
        batches = [batch(), batch()]
        for network, each in zip(networks, optimizers, strict=True):
            each.zero_grad()
            for data, touches in zip(batches, (first, second), strict=True):
                backward(network, *data)
                for p in network.parameters() if touches else []:
                    touch(p)
            if third and touch not in (forget, delete) and network[0].weight.grad is not None:
                touch(network[0].weight)
            each.step()
        ours, theirs = ({name: p.detach() for name, p in network.named_parameters()} for network in networks)
        assert_close(ours, theirs)


@each_entry
def test_parameters_become_vectors_and_back(networks, backward):
    for network in networks:
        vector = nn.utils.parameters_to_vector(network.parameters())
        nn.utils.vector_to_parameters(vector.detach() * 2, network.parameters())
    data = batch()
    for network in networks:
        backward(network, *data)
    assert_close(gradients(networks[0]), gradients(networks[1]))


def test_parameters_print_compare_and_compute_like_any(networks):
    weight, plain = networks[0][0].weight, nn.Parameter(networks[0][0].weight.detach().clone())
    assert isinstance(weight, nn.Parameter) and weight.is_leaf and weight.requires_grad
    assert "requires_grad=True" in repr(weight)
    assert type(weight.detach()) is type(weight + 1) is type(weight.clone()) is torch.Tensor
    assert torch.equal(weight @ weight.T, plain @ plain.T)
    again = nn.Parameter(weight.detach())
    assert type(again) is nn.Parameter and torch.equal(again, plain)


def gradient(rows=(1, 4), n=8, i=3):
    """A row-sparse gradient and the dense tensor that it stands for."""
    indices, values = torch.tensor(rows, dtype=torch.int64), torch.randn(len(rows), i)
    return RowSparseGradient(indices, values, n), torch.zeros(n, i).index_copy(0, indices, values)


@pytest.mark.parametrize(
    ("indices", "shape", "message"),
    [
        (torch.tensor([1, 8]), (2, 3), "0 to 7, got .1, 8"),
        (torch.tensor([-1, 2]), (2, 3), "0 to 7, got .-1, 2"),
        (torch.tensor([2, 2]), (2, 3), "distinct"),
        (torch.tensor([1, 2], dtype=torch.int32), (2, 3), "int64 of shape"),
        (torch.tensor([1, 2]), (3, 3), "rows of shape .3, 3"),
        (torch.tensor([1, 2]), (2,), "rows of shape .2,"),
    ],
)
def test_rows_that_no_weight_has_are_refused(indices, shape, message):
    with pytest.raises(ValueError, match=message):
        RowSparseGradient(indices, torch.ones(shape), 8)


READS = {
    "numpy": lambda g: torch.from_numpy(g.numpy().copy()),
    "asarray": lambda g: torch.from_numpy(np.asarray(g).copy()),
    "tolist": lambda g: torch.tensor(g.tolist()),
    "data_ptr": lambda g: torch.tensor(g.data_ptr() != 0),
    "storage": lambda g: torch.tensor(g.untyped_storage().nbytes()),
    "shared memory": lambda g: g.share_memory_().sum(),
    "dlpack": lambda g: torch.from_dlpack(g).clone(),
    "dlpack of an alias": lambda g: torch.from_dlpack(g.detach()).clone(),
    "dlpack by numpy": lambda g: torch.from_numpy(np.from_dlpack(g.detach()).copy()),
    "dlpack's device": lambda g: torch.tensor(g.__dlpack_device__()),
    "norm": lambda g: g.norm(),
    "abs": lambda g: g.abs().sum(),
    "row": lambda g: g[4],
    "view": lambda g: g.view(-1),
    "cast": lambda g: g.double(),
    "stack": lambda g: torch.stack([g, g]),
    "matmul": lambda g: g.T @ g,
    "deepcopy": lambda g: copy.deepcopy(g).to_dense(),
    "pickle": lambda g: pickle.loads(pickle.dumps(g)),
    "isfinite": lambda g: torch.isfinite(g).all(),
    "foreach norm": lambda g: torch.stack(torch._foreach_norm([g, g])),
    "to_dense": lambda g: g.to_dense(torch.float64),
    "clone": lambda g: g.clone().to_dense(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_every_way_to_read_a_gradient_gives_its_values(read):
    sparse, dense = gradient()
    torch.testing.assert_close(read(sparse), read(dense), rtol=1e-6, atol=1e-7)


WRITES = {
    "scale": lambda g: g.mul_(2),
    "clamp": lambda g: g.clamp_(-0.1, 0.1),
    "fill a row": lambda g: g[2].fill_(1.0),
    "through data": lambda g: g.data.mul_(3),
    "data": lambda g: setattr(g, "data", 3 * g),
    "data from an alias": lambda g: setattr(g, "data", g.detach().clone().mul_(3)),
    "data from rows": lambda g: setattr(g, "data", g.clone() + g),
    "through detach": lambda g: g.detach().add_(1.0),
    "through a view": lambda g: g.view(-1)[5:9].zero_(),
    "zero": lambda g: g.zero_(),
    "copy": lambda g: g.copy_(torch.ones(8, 3)),
    "foreach": lambda g: torch._foreach_mul_([g], 0.5),
    "out": lambda g: torch.neg(g.clone(), out=g.data),
    "add a number": lambda g: g.add_(1.0),
    "add half": lambda g: g.add_(torch.ones(8, 3), alpha=0.5),
    "add a row": lambda g: g.add_(torch.ones(3)),
    "apply": lambda g: g.apply_(lambda value: value + 1).mul_(2),
    "map": lambda g: g.map_(torch.ones(8, 3), lambda value, other: value + other).mul_(2),
    "map two": lambda g: g.map2_(g, torch.ones(8, 3), lambda value, *others: value + sum(others)).mul_(2),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_every_way_to_change_a_gradient_changes_it(write):
    sparse, dense = gradient()
    write(sparse), write(dense)
    torch.testing.assert_close(sparse.to_dense(), dense)


RESHAPES = {
    "set_": lambda g: g.set_(torch.ones(3)),
    "resize_": lambda g: g.resize_(3, 3),
    "resize_as_": lambda g: g.resize_as_(torch.ones(3, 3)),
    "t_": lambda g: g.t_(),
    "unsqueeze_": lambda g: g.data.unsqueeze_(0),
}


@pytest.mark.filterwarnings("ignore:non-inplace resize")
@pytest.mark.parametrize("name", RESHAPES)
def test_every_way_to_reshape_a_gradient_in_place_is_refused_and_changes_nothing(name):
    sparse, dense = gradient()
    with pytest.raises(RuntimeError, match=f"{name} cannot reshape a RowSparseGradient in place"):
        RESHAPES[name](sparse)
    assert sparse.parts() is not None and torch.equal(sparse.to_dense(), dense)
    other = torch.ones(2)
    assert torch.equal(other.set_(sparse), dense) and sparse.detach_() is sparse


@pytest.mark.parametrize("second", [(1, 4), (0, 4), (5,), (), (0, 2, 3, 5, 7)], ids=str)
def test_a_sum_of_gradients_has_the_union_of_their_rows_and_is_dense_from_half_of_all_rows_on(second):
    (a, dense_a), (b, dense_b) = gradient(), gradient(second)
    torch.testing.assert_close((a + b).to_dense(), dense_a + dense_b)
    assert a.parts() is not None and b.parts() is not None
    union = {1, 4} | set(second)
    total = a.clone()
    total += b
    assert (total.parts() is None) == (len(union) > 4)
    if total.parts() is not None:
        assert total.parts()[0].tolist() == sorted(union)
    torch.testing.assert_close(total.to_dense(), dense_a + dense_b)
    torch.testing.assert_close((dense_a.clone() + b), dense_a + dense_b)
    torch.testing.assert_close(dense_a.clone().add_(b), dense_a + dense_b)


@each_entry
def test_gradients_of_several_backward_passes_stay_row_sparse(backward):
    model = mlp(i, 200, 200, c)
    convert(model, r=0.01)
    for passes in range(1, 4):
        backward(model, *batch())
        indices, rows = model[0].weight.grad.parts()
        assert len(indices) == len(rows) <= passes * B * 2 and rows.abs().sum() > 0
    assert type(model[4].weight.grad) is torch.Tensor
