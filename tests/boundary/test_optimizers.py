"""torch's optimizers on the gradients of converted layers, and torch's own lists of options and inputs."""

import copy
import sys
import types
import unittest
import warnings

import pytest
import torch
from torch import nn

from msbp import optim
from msbp.sparse import convert, cross_entropy

from .networks import ENTRIES, assert_close, batch, each_kind, gradients, install, pair, weights

DENSE = {
    "Adadelta": {},
    "Adafactor": {},
    "Adagrad": {"fused": True},
    "Adam": {"fused": True},
    "AdamW": {"fused": True},
    "Adamax": {},
    "ASGD": {},
    "Muon": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {},
    "Rprop": {},
    "SGD": {"fused": True},
}
WAYS = {"single": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
RUNS = [
    (name, way)
    for name, has in DENSE.items()
    for way in WAYS
    if hasattr(torch.optim, name)
    and (way != "fused" or "fused" in has)
    and (name, way) != ("Muon", "foreach")
]


def make(name, way, model):
    """Muon takes matrices alone, and has one implementation."""
    parameters = [p for p in model.parameters() if name != "Muon" or p.dim() == 2]
    return getattr(torch.optim, name)(parameters, lr=0.01, **({} if name == "Muon" else WAYS[way]))


@pytest.mark.parametrize(("name", "way"), RUNS, ids=map("-".join, RUNS))
@pytest.mark.parametrize("r", [0.1, 1.0])
def test_torchs_optimizers_make_equal_updates_from_row_sparse_and_dense_gradients(name, way, r):
    """Bit for bit; at r = 1 the plain network has the same gradients but for rounding."""
    model, plain = pair("chain")
    install(model := copy.deepcopy(plain), "chain", r=r)
    optimizers = [make(name, way, network) for network in (model, plain)]
    for entry in ENTRIES.values():
        for network, optimizer in zip((model, plain), optimizers, strict=True):
            optimizer.zero_grad()
            entry(network, *batch_of(network, plain))
        if r == 1:
            assert_close(gradients(model), gradients(plain))
        for p, q in zip(model.parameters(), plain.parameters(), strict=True):
            q.grad = copy.deepcopy(p.grad).to_dense()
        for optimizer in optimizers:
            optimizer.step()
        ours, theirs = weights(model), weights(plain)
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs), name


def batch_of(network, plain):
    if network is not plain:
        batch_of.last = batch("chain")
    return batch_of.last


def test_torchs_lbfgs_calls_a_closure_on_both_networks_alike():
    model, plain = pair("chain")
    x, y = batch("chain")
    for network in (model, plain):
        optimizer = torch.optim.LBFGS(network.parameters(), lr=0.1, max_iter=4)

        def closure(network=network, optimizer=optimizer):
            optimizer.zero_grad()
            loss = cross_entropy(network(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)
    assert_close(weights(model), weights(plain), 1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("r", [0.1, 1.0])
def test_momentum_that_begins_in_mid_training_begins_as_torchs(r, dtype):
    plain = pair("chain", dtype=dtype)[1]
    model = install(copy.deepcopy(plain), "chain", r=r)
    optimizers = optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(plain.parameters(), lr=0.1)
    for step in range(4):
        for optimizer in optimizers:
            optimizer.zero_grad()
            optimizer.param_groups[0]["momentum"] = 0.9 * (step >= 1)
        cross_entropy(model(x := torch.randn(8, 6, dtype=dtype)), torch.arange(len(x)) % 3).backward()
        for p, q in zip(model.parameters(), plain.parameters(), strict=True):
            q.grad = copy.deepcopy(p.grad).to_dense()
        for optimizer in optimizers:
            optimizer.step()
    assert_close(weights(model), weights(plain), 1e-6)


@each_kind
def test_clipping_by_torch_counts_every_row(kind):
    model, plain = pair(kind)
    x, y = batch(kind)
    norms = []
    for network in (model, plain):
        cross_entropy(network(x), y).backward()
        norms.append(nn.utils.clip_grad_norm_(network.parameters(), 0.01))
        nn.utils.clip_grad_value_(network.parameters(), 0.002)
    torch.testing.assert_close(*norms, rtol=1e-5, atol=1e-7)
    assert_close(gradients(model), gradients(plain))


@pytest.fixture(scope="module")
def lists():
    """torch's own inputs of modules and optimizers; its test tools import a package that these do not use."""
    try:
        import expecttest  # noqa: F401
    except ImportError:
        stub = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stub
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from torch.testing._internal import common_modules, common_optimizers
        except (ImportError, AttributeError) as error:
            pytest.skip(f"this torch has no lists of inputs: {error}")
    # their import forbids this whole process to set flags of torch.backends, which other tests do
    torch.backends.disable_global_flags.__globals__["__allow_nonbracketed_mutation_flag"] = True
    return common_modules.module_db, common_optimizers.optim_db


OURS = {"Adam": optim.Adam, "AdamW": optim.AdamW, "SGD": optim.SGD}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", OURS)
def test_torchs_list_of_options_is_equal(name, dtype, lists):
    """Through six steps, half of them with few rows, and with each of torch's learning-rate schedules."""
    info = next(info for info in lists[1] if info.optim_cls.__name__ == name)
    compared = 0
    for options in (entry.kwargs for entry in info.optim_inputs_func(device="cpu", dtype=dtype)):
        source = nn.Sequential(nn.Linear(5, 9), nn.ReLU(), nn.Linear(9, 2)).to(dtype)
        model, plain = copy.deepcopy(source), copy.deepcopy(source)
        convert(model, r=1.0, gamma=0.0)
        theirs = info.optim_cls(plain.parameters(), **options)
        ours = OURS[name](model.parameters(), **options)
        schedules = info.scheduler_inputs[compared % len(info.scheduler_inputs)]
        tensor_lr = isinstance(options.get("lr"), torch.Tensor)
        pairs = [] if tensor_lr else [(make(ours), make(theirs)) for make in schedules]
        for _ in range(6):
            x, y = torch.randn(4, 5, dtype=dtype), torch.randint(2, (4,))
            losses = []
            for network, optimizer in ((model, ours), (plain, theirs)):
                optimizer.zero_grad()
                losses.append(cross_entropy(network(x), y))
                losses[-1].backward()
                optimizer.step()
            for pair_of in pairs:
                for schedule, loss in zip(pair_of, losses, strict=True):
                    plateau = isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau)
                    schedule.step(*[loss.item()] if plateau else [])
        assert_close(weights(model), weights(plain), 1e-4 if dtype is torch.float32 else 1e-9)
        compared += 1
    assert compared >= 5


@pytest.mark.parametrize("name", OURS)
def test_torchs_list_of_wrong_options_is_refused_by_the_same_error(name, lists):
    info = next(info for info in lists[1] if info.optim_cls.__name__ == name)
    result = info.optim_error_inputs_func(device="cpu", dtype=torch.float32)
    for entry in result:
        given, expected = entry.optimizer_error_input, entry.error_type
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if expected is UserWarning:
                continue  # torch warns and goes on
            with pytest.raises((expected, TypeError)):
                OURS[name](given.params, **given.kwargs)
    assert result


LAYERS = (nn.Linear, nn.LSTM, nn.Conv1d, nn.Conv2d, nn.Embedding)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
@pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: kind.__name__)
def test_torchs_list_of_inputs_gives_the_plain_layers_outputs_and_gradients(kind, dtype, lists):
    info = next(info for info in lists[0] if info.module_cls is kind)
    inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=True)
    compared = 0
    for entry in inputs:
        plain = kind(*entry.constructor_input.args, **entry.constructor_input.kwargs).to(dtype)
        for sparse in (False, True):
            holder = nn.ModuleDict({"layer": copy.deepcopy(plain)})
            try:
                install_layer(holder, sparse)
            except ValueError as error:
                assert "projection" in str(error) and plain.proj_size
                continue
            compare(holder["layer"], copy.deepcopy(plain), entry.forward_input, dtype)
            compared += 1
    assert compared >= 2


def install_layer(holder, sparse):
    """Convert the only layer; fuse alone knows embeddings."""
    from msbp.sparse import fuse

    if sparse and type(holder["layer"]) is not nn.Embedding:
        convert(holder, r=1.0, gamma=0.0, layers=["layer"])
    else:
        fuse(holder)


def compare(layer, plain, given, dtype):
    results = []
    for network in (layer, plain):
        args, kwargs = copy_of(given.args), {k: copy_of(v) for k, v in given.kwargs.items()}
        outputs = flat(network(*args, **kwargs))
        leaves = [t for t in flat((*args, *kwargs.values())) if t.requires_grad]
        generator = torch.Generator().manual_seed(1)
        random = [torch.randn(t.shape, generator=generator, dtype=dtype) for t in outputs]
        sum((t * w).sum() for t, w in zip(outputs, random, strict=True)).backward()
        result = [*outputs, *[t.grad for t in leaves], *[p.grad.to_dense() for p in network.parameters()]]
        results.append([t.detach() for t in result])
    tolerance = 1e-5 if dtype is torch.float32 else 1e-10
    torch.testing.assert_close(*results, rtol=tolerance, atol=tolerance)


def copy_of(value):
    """Return a deep copy whose tensors are leaves that need gradients where the originals do."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(copy_of(part) for part in value)
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    return value


def flat(value):
    """Return the tensors in an input or output, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    return (
        [t for part in value if part is not None for t in flat(part)]
        if isinstance(value, (tuple, list))
        else []
    )
