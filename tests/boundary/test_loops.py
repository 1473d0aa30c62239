"""Common training loops: scaling, hooks, accumulation, kept losses, evaluation, copies."""

import copy
import gc
import io
import warnings

import pytest
import torch
from torch import multiprocessing, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.parametrize import remove_parametrizations

from msbp import optim
from msbp.sparse import RowSparseGradient, cross_entropy, memories, revert
from msbp.sparse import backward as sparse_backward
from msbp.sparse.torch_compat import Converted

from .networks import (
    ENTRIES,
    KINDS,
    B,
    assert_close,
    batch,
    build,
    c,
    each_entry,
    each_install,
    each_kind,
    gradients,
    install,
    pair,
    weights,
)

LOSSES = {"torch": nn.functional.cross_entropy, "msbp": cross_entropy}
each_loss = pytest.mark.parametrize("loss_of", LOSSES.values(), ids=LOSSES)


def held(model):
    return {name: memory.m.clone() for name, memory in memories(model).items()}


@each_loss
@each_kind
def test_hooks_on_gradient_accumulators_run_after_the_gradient_is_accumulated(kind, loss_of):
    model = install(build(kind), kind, r=0.25, gamma=0.8)
    fired, nodes = {}, []
    for name, p in model.named_parameters():
        nodes.append(p.view_as(p).grad_fn.next_functions[0][0])
        nodes[-1].register_hook(lambda *_, name=name, p=p: fired.update({name: p.grad.to_dense().clone()}))
    x, y = batch(kind)
    loss_of(model(x), y).backward()
    assert_close(fired, gradients(model), 0)
    assert fired.keys() == dict(model.named_parameters()).keys()


@each_entry
@each_kind
def test_tensor_and_post_accumulation_hooks_run(kind, entry):
    model, plain = pair(kind)
    x, y = batch(kind)
    seen = []
    for network in (model, plain):
        for p in network.parameters():
            p.register_hook(lambda grad: 2 * grad)
            p.register_post_accumulate_grad_hook(lambda p: seen.append(p))
        ENTRIES[entry](network, x, y)
    assert len(seen) == 2 * len(list(plain.parameters()))
    assert_close(gradients(model), gradients(plain))


@each_entry
@each_kind
def test_a_scaler_skips_a_step_whose_gradient_is_infinite(kind, entry):
    model = install(build(kind), kind, r=0.25, gamma=0.8)
    for make in (torch.optim.Adam, optim.Adam):
        optimizer, scaler = make(model.parameters()), torch.amp.GradScaler("cpu", init_scale=2.0**127)
        before, kept = weights(model), held(model)
        x, y = batch(kind)
        logits = model(x)
        scaler.scale(1e6 * LOSSES["torch" if entry == "torch" else "msbp"](logits, y)).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 2.0**126
        assert_close(weights(model), before, 0)
        assert_close(held(model), kept, 0)
        optimizer.zero_grad()
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        scaler.scale(cross_entropy(model(x), y)).backward()
        scaler.step(optimizer)
        assert any(not torch.equal(p, before[name]) for name, p in weights(model).items())


@pytest.fixture
def only_new_objects():
    """Exclude earlier objects from garbage collection, which takes most of its time for them."""
    gc.freeze()
    yield
    gc.unfreeze()


def live_bytes():
    """Return the bytes of the tensors that Python can reach and the test created, a gradient's rows once."""
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensors = [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor)]
    plain = [t for t in tensors if type(t) is not RowSparseGradient and t.layout is torch.strided]
    return sum(
        {s.data_ptr(): s.nbytes() for t in plain if not t.is_meta for s in [t.untyped_storage()]}.values()
    )


def repeated(step, times):
    """Return the live bytes after a few calls of a step and after many more."""
    kept = [step() for _ in range(3)]
    first = live_bytes()
    kept += [step() for _ in range(times)]
    assert kept
    return first, live_bytes()


@pytest.mark.usefixtures("only_new_objects")
@each_loss
@each_kind
def test_gradients_that_no_optimizer_uses_need_bounded_memory(kind, loss_of):
    """An optimizer of the output layer alone."""
    model = install(build(kind), kind, r=0.25, gamma=0.8)
    head = list(model.children())[-1]
    optimizer = optim.Adam((head[-1] if isinstance(head, nn.Sequential) else head).parameters())
    x, y = batch(kind)

    def step():
        loss_of(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    first, last = repeated(step, 20)
    assert last <= first


@pytest.mark.usefixtures("only_new_objects")
@each_entry
@each_kind
def test_stored_losses_hold_no_memory_of_the_network(kind, entry):
    model = install(build(kind), kind, r=0.25, gamma=0.8)
    x, y = batch(kind)

    def step():
        loss = LOSSES["torch" if entry == "torch" else "msbp"](model(x), y)
        if entry == "backward":
            sparse_backward(loss)
        else:
            loss.backward()
        model.zero_grad()
        return loss

    first, last = repeated(step, 20)
    assert last - first <= 20 * 64


@each_entry
@each_kind
def test_losses_and_models_are_saved_and_loaded(kind, entry):
    model = install(build(kind), kind, r=0.25, gamma=0.8)
    x, y = batch(kind)
    loss = LOSSES["torch" if entry == "torch" else "msbp"](model(x), y)
    for late in (False, True):
        buffer = io.BytesIO()
        torch.save({"model": model.state_dict(), "loss": loss}, buffer)
        buffer.seek(0)
        result = torch.load(buffer)
        torch.testing.assert_close(result["loss"].item(), loss.item())
        if not late:
            (sparse_backward if entry == "backward" else torch.Tensor.backward)(loss)
    assert gradients(model)


@pytest.mark.usefixtures("only_new_objects")
@each_entry
@each_kind
def test_sixty_four_micro_batches_add_up_in_bounded_memory(kind, entry):
    model, plain = pair(kind)
    data = [batch(kind) for _ in range(64)]
    sizes = []
    for x, y in data:
        for network in (model, plain):
            ENTRIES[entry](network, x, y)
        sizes.append(live_bytes() if len(sizes) in (8, 63) else 0)
    assert sizes[63] <= sizes[8] * 1.01
    assert_close(gradients(model), gradients(plain), 1e-4)


IN_PLACE = {
    "relu_": lambda h: h.relu_(),
    "add_": lambda h: h.add_(1.0),
    "mul_": lambda h: h.mul_(2.0),
    "an index": lambda h: h.index_fill_(1, torch.tensor([0]), 0.5),
    "through a view": lambda h: (h[:, :1].mul_(3.0), h)[1],
}


@pytest.mark.parametrize("change", IN_PLACE.values(), ids=IN_PLACE)
@pytest.mark.parametrize("where", ["input", "output"])
@each_install
@each_kind
def test_operations_in_place_around_a_network_are_torchs(kind, how, where, change):
    if where == "input" and kind in ("Embedding", "look_up"):
        where = "output"
    model, plain = pair(kind, how)
    x, y = batch(kind)
    for network in (model, plain):
        given = x.clone()
        if where == "input":
            given = change(given.requires_grad_().clone())
        out = network(given)
        nn.functional.cross_entropy(change(out) if where == "output" else out, y).backward()
    assert_close(gradients(model), gradients(plain))


@each_kind
def test_an_input_changed_in_place_after_the_forward_pass_is_reported_as_by_torch(kind):
    x, y = batch(kind)
    for network in pair(kind):
        given = x.clone()
        loss = nn.functional.cross_entropy(network(given), y)
        given.zero_()
        try:
            loss.backward()
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
        else:
            assert kind in ("MaxOverTime", "look_up", "Embedding")


@each_kind
def test_functional_calls_give_gradients_to_the_tensors_they_were_passed(kind):
    model, plain = pair(kind)
    x, y = batch(kind)
    result = []
    for network in (model, plain):
        given = {name: p.detach().clone().requires_grad_() for name, p in network.named_parameters()}
        cross_entropy(torch.func.functional_call(network, given, (x,)), y).backward()
        assert not gradients(network)
        result.append({name: p.grad.to_dense() for name, p in given.items()})
    assert_close(*result)


def train_shared(model, x, y):
    torch.set_num_threads(1)
    optimizer = optim.SGD(model.parameters(), 0.1)
    cross_entropy(model(x), y).backward()
    optimizer.step()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@each_kind
def test_a_shared_model_learns_in_another_process(kind):
    model = install(build(kind), kind, r=0.25, gamma=0.8)
    twin, (x, y) = copy.deepcopy(model), batch(kind)
    train_shared(copy.deepcopy(model), x, y)  # kernels are loaded before the fork
    model.share_memory()
    process = multiprocessing.get_context("fork").Process(target=train_shared, args=(model, x, y))
    process.start()
    process.join()
    assert process.exitcode == 0
    train_shared(twin, x, y)
    assert_close(weights(model), weights(twin), 1e-6)
    assert_close(held(model), held(twin), 1e-6)


@each_loss
@each_kind
def test_evaluation_mode_has_exact_gradients_and_does_not_change_the_memory(kind, loss_of):
    model = install(build(kind), kind, r=0.1, gamma=0.8)
    plain = build(kind)
    x, y = batch(kind)
    loss_of(model(x), y).backward()
    plain.load_state_dict(model.state_dict())
    before = held(model)
    result = []
    for network in (model.eval(), plain.eval()):
        network.zero_grad()
        given = x.clone().requires_grad_(x.is_floating_point())
        loss_of(network(given), y).backward()
        result.append({**gradients(network), **({} if given.grad is None else {"x": given.grad})})
    assert_close(*result)
    assert_close(held(model), before, 0)


@each_entry
@each_kind
def test_reset_parameters_clears_the_memory_for_a_new_fold(kind, entry):
    model = install(build(kind), kind, r=0.1, gamma=0.8)
    x, y = batch(kind)
    folds = []
    for _ in range(2):
        torch.manual_seed(1)
        for layer in model.modules():
            if hasattr(layer, "reset_parameters"):
                layer.reset_parameters()
        assert all(not memory.m.any() for memory in memories(model).values())
        assert all(getattr(layer, "step", 0) == 0 for layer in model.modules())
        model.zero_grad()
        for _ in range(2):
            ENTRIES[entry](model, x, y)
        folds.append({**gradients(model), **held(model)})
    assert_close(folds[1], folds[0], 0)


@each_install
@each_kind
def test_revert_gives_the_plain_network_back(kind, how):
    model, plain = build(kind), build(kind)
    kinds = {name: type(module) for name, module in plain.named_modules()}
    keys = {name: set(module.__dict__) | set(module._modules) for name, module in plain.named_modules()}
    install(model, kind, how, r=0.25, gamma=0.8)
    x, y = batch(kind)
    cross_entropy(model(x), y).backward()
    revert(model)
    model.zero_grad()
    assert {name: type(module) for name, module in model.named_modules()} == kinds
    assert {name: set(m.__dict__) | set(m._modules) for name, m in model.named_modules()} == keys
    plain.load_state_dict(model.state_dict())
    for network in (model, plain):
        cross_entropy(network(x), y).backward()
    assert_close(gradients(model), gradients(plain), 0)
    assert all(type(p.grad) is torch.Tensor for p in model.parameters())
    install(model, kind, how, r=0.5, gamma=0.5)


@each_kind
def test_several_gradients_at_once_are_refused_and_leave_the_memory_as_it_is(kind):
    model = install(build(kind), kind, r=0.25, gamma=0.8)
    x, y = batch(kind)
    cross_entropy(model(x), y).backward()
    before, parameters, some = held(model), list(model.parameters()), torch.randn(2, B, c)
    tools = (
        lambda out: torch.autograd.grad(out, parameters, some, is_grads_batched=True),
        lambda out: torch.vmap(lambda each: torch.autograd.grad(out, parameters, each))(some),
    )
    for tool in tools:
        with pytest.raises(RuntimeError, match="converted layer takes one gradient at a time"):
            tool(model(x))
    assert_close(held(model), before, 0)


@each_install
@each_kind
def test_a_parametrized_layer_is_reverted_once_its_parametrization_is_removed(kind, how):
    model = install(build(kind), kind, how, r=0.25, gamma=0.8)
    parametrized = [m for m in model.modules() if isinstance(m, Converted) and list(m.parameters(False))]
    names = {}
    for module in parametrized:
        names[module] = next(name for name, p in module.named_parameters(recurse=False) if p.dim() > 1)
        weight_norm(module, names[module])
    before = [*map(type, model.modules())]
    x, y = batch(kind)
    if parametrized:
        with pytest.raises(ValueError, match="is parametrized: .*remove_parametrizations"):
            revert(model)
    assert [*map(type, model.modules())] == before
    cross_entropy(model(x), y).backward()
    for module in parametrized:
        remove_parametrizations(module, names[module])
    revert(model)
    assert [*map(type, model.modules())] == [*map(type, build(kind).modules())]
    model.zero_grad()
    cross_entropy(model(x), y).backward()
    assert all(p.grad is not None for p in model.parameters())


@each_kind
@pytest.mark.filterwarnings("ignore")
def test_a_reverted_model_is_quantized_exported_and_scripted(kind):
    model = install(build(kind), kind, r=0.25, gamma=0.8)
    revert(model.eval())
    x, _ = batch(kind)
    out = model(x)
    quantized = torch.ao.quantization.quantize_dynamic(model, {nn.Linear, nn.LSTM}, dtype=torch.qint8)
    assert any("quantized" in type(m).__module__ for m in quantized.modules())
    if kind not in (
        "MaxOverTime",
        "look_up",
    ):  # the first reads numbers out, a function is no part of the second
        torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), out)
    if kind in ("chain", "linear", "Conv1d", "Conv2d"):
        torch.testing.assert_close(torch.jit.script(model)(x), out)


@each_install
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("MaxOverTime", "look_up")])
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(
    not hasattr(torch.compiler, "is_exporting"), reason="an older torch exports a model after revert alone"
)
def test_a_converted_model_is_exported_as_the_plain_one(kind, how):
    model, plain = pair(kind, how)
    x, _ = batch(kind)
    for gradients_on in (True, False):
        with torch.set_grad_enabled(gradients_on):
            result = torch.export.export(model, (x,)).module()(x)
        torch.testing.assert_close(result, plain(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@each_install
@each_kind
def test_gradients_are_cast_and_moved_with_their_module(kind, how, dtype):
    """Gradients also accumulate after it."""
    model, plain = pair(kind, how)
    x, y = batch(kind)
    for network in (model, plain):
        cross_entropy(network(x), y).backward()
        network.to(dtype)
    for p in model.parameters():
        assert p.grad.dtype is p.grad.to_dense().dtype is dtype
    assert_close(gradients(model), gradients(plain), 0.01 if dtype is torch.bfloat16 else 2e-5)
    for network in (model, plain):
        network.to(torch.float64)
        cross_entropy(network(x.double() if x.is_floating_point() else x), y).backward()
    assert_close(gradients(model), gradients(plain), 0.01 if dtype is torch.bfloat16 else 2e-5)


@pytest.mark.parametrize("make", [optim.Adam, torch.optim.Adam], ids=["msbp", "torch"])
@each_kind
def test_assigning_the_data_of_a_gradient_replaces_it(kind, make):
    model, plain = pair(kind)
    x, y = batch(kind)
    for network, optimizer in ((model, make), (plain, torch.optim.Adam)):
        cross_entropy(network(x), y).backward()
        for p in network.parameters():
            p.grad.data = p.grad.data.clamp(-0.001, 0.001) + 1
        optimizer(network.parameters()).step()
    assert_close(gradients(model), gradients(plain))
    assert_close(weights(model), weights(plain), 1e-4)
