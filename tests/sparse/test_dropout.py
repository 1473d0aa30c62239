"""Dropout modules of a converted model: torch's, with masks of their own where a kernel draws them."""

import copy
import pickle

import pytest
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from msbp.sparse import convert, fuse, keep_mask, revert
from msbp.sparse.dropout import DropoutFused, draw_key, keep_scale

SHAPES = [(7,), (3, 5), (2, 3, 70), (2, 3, 4, 5), (0, 4), ()]


class Block(nn.Module):
    """Dropout beside a linear layer and within a Sequential."""

    def __init__(self, p=0.4):
        super().__init__()
        self.wide, self.drop = nn.Linear(6, 200), nn.Dropout(p)
        self.net = nn.Sequential(
            nn.Dropout(p), nn.Linear(200, 200), nn.ReLU(), nn.Dropout(p), nn.Linear(200, 3)
        )

    def forward(self, x):
        return self.net(self.drop(self.wide(x)))


def fused(p=0.4, **options):
    module = nn.Dropout(p, **options)
    DropoutFused.adopt(module)
    return module


def outcome(module, x, seed=3):
    """The output, and the gradient of its sum weighted by position."""
    torch.manual_seed(seed)
    x = x.detach().requires_grad_(x.is_floating_point())
    out = module(x)
    out.backward(torch.arange(out.numel(), dtype=out.dtype).view(out.shape) + 1)
    return out.detach(), x.grad


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_output_and_gradient_are_the_mask_times_the_scale(shape):
    x = torch.randn(shape)
    out, grad = outcome(fused(), x)
    torch.manual_seed(3)
    keep = keep_mask(shape, 0.4, draw_key()) * keep_scale(0.4)
    torch.testing.assert_close(out, x * keep)
    torch.testing.assert_close(grad, keep * (torch.arange(x.numel()).view(shape) + 1.0))


def test_every_call_drops_other_entries_of_the_right_share():
    module, x = fused(0.3), torch.ones(400, 250)
    first, second = module(x), module(x)
    assert not torch.equal(first, second)
    for out in (first, second):
        assert (out == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
        assert out.mean().item() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_mask_does_not_depend_on_the_number_of_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        out, _ = outcome(fused(), torch.ones(1000, 999))
    finally:
        torch.set_num_threads(before)
    torch.manual_seed(3)
    assert torch.equal(out != 0, keep_mask((1000, 999), 0.4, draw_key()))


ORDINARY = {
    "double": lambda: torch.randn(5, 6, dtype=torch.float64),
    "bfloat16": lambda: torch.randn(5, 6).bfloat16(),
    "transposed": lambda: torch.randn(6, 5).t(),
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "expanded": lambda: torch.randn(1, 6).expand(5, 6),
    "negated": lambda: torch._neg_view(torch.randn(5, 6)),
    "zeros without memory": lambda: torch._efficientzerotensor(5, 6),
}


@pytest.mark.parametrize("x", ORDINARY.values(), ids=ORDINARY)
def test_inputs_without_a_kernel_have_torchs_masks_and_layout(x):
    x = x()
    for module in (fused(), fused().eval(), fused(0.0)):
        plain = copy.deepcopy(module)
        revert(plain)
        assert type(plain) is nn.Dropout
        torch.manual_seed(1)
        ours = module(x)
        torch.manual_seed(1)
        torchs = plain(x)
        assert torch.equal(ours, torchs)
        assert ours.stride() == torchs.stride()


def test_in_place_dropout_and_evaluation_are_torchs():
    x = torch.ones(50, 50)
    assert fused(inplace=True)(x) is x
    assert (x == 0).any()
    assert fused().eval()(x) is x


def test_an_expanded_gradient_is_read_as_it_is_seen():
    x = torch.ones(30, 40, requires_grad=True)
    torch.manual_seed(3)
    fused()(x).sum().backward()  # whose gradient is one number, expanded
    torch.manual_seed(3)
    assert torch.equal(x.grad, keep_mask((30, 40), 0.4, draw_key()) * keep_scale(0.4))


def test_second_derivatives_are_those_of_a_product_with_the_mask():
    x = torch.randn(8, 9, requires_grad=True)
    torch.manual_seed(3)
    out = fused()(x).pow(3).sum()
    (first,) = torch.autograd.grad(out, x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.manual_seed(3)
    keep = keep_mask((8, 9), 0.4, draw_key()) * keep_scale(0.4)
    torch.testing.assert_close(second, 6 * x.detach() * keep**3)


def test_infinite_and_undefined_entries_are_multiplied_with_the_mask_as_in_torch():
    for value in (torch.inf, -torch.inf, torch.nan):
        x = torch.full((40, 40), value)
        out, grad = outcome(fused(), x)
        torch.manual_seed(3)
        keep = keep_mask((40, 40), 0.4, draw_key())
        assert torch.equal(out.isnan(), ~keep | x.isnan())
        assert torch.isfinite(grad).all()
    assert fused(1.0)(x).isnan().all()


@pytest.mark.parametrize("p", [-0.1, 1.5, float("nan"), torch.tensor(2.0)])
def test_a_p_that_is_no_probability_is_refused_as_by_torch(p):
    chain = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5))
    fuse(chain)
    for model, drop in ((chain, chain[2]), (alone := fused(), alone)):
        drop.p = p
        with pytest.raises(ValueError, match="dropout probability has to be between 0 and 1, but got"):
            model(torch.ones(4, 6))


def test_p_may_be_a_tensor_of_one_number():
    drop = fused()
    drop.p = torch.tensor(0.4)
    x = torch.ones(20, 30)
    assert torch.equal(outcome(drop, x)[0], outcome(fused(), x)[0])


def test_programs_that_look_for_dropout_by_its_name_find_it():
    assert type(fused()).__name__.startswith("Dropout")
    assert isinstance(fused(), nn.Dropout)


def dropouts(model):
    return [type(module) for module in model.modules() if isinstance(module, nn.Dropout)]


@pytest.mark.parametrize(
    "change", [lambda m, **a: convert(m, layers=["wide"], **a), fuse], ids=["convert", "fuse"]
)
def test_convert_and_fuse_replace_dropout_unless_they_are_not_to(change):
    model = Block()
    change(model, dropout=False)
    assert dropouts(model) == [nn.Dropout] * 3
    revert(model)
    keys = list(model.state_dict())
    change(model)
    assert dropouts(model) == [DropoutFused] * 3
    assert list(model.state_dict()) == keys
    revert(model)
    assert dropouts(model) == [nn.Dropout] * 3


@pytest.mark.parametrize("install", [lambda m: convert(m, r=1.0, min_width=0), fuse], ids=["r = 1", "fuse"])
def test_a_model_with_dropout_learns_as_the_plain_one_with_the_same_masks(install):
    model = Block(p=0.0)
    plain, x = copy.deepcopy(model), torch.randn(16, 6)
    install(model)
    for each in (model, plain):
        each(x).square().mean().backward()
    for ours, torchs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, torchs.grad)


def test_dropout_must_be_true_or_false():
    with pytest.raises(ValueError, match="dropout must be True or False, got 'no'"):
        convert(Block(), dropout="no")


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_draws_the_same_mask_twice(reentrant):
    module, x = fused(), torch.ones(20, 30, requires_grad=True)
    out = checkpoint(module, x, use_reentrant=reentrant)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def save(function, x):
    with torch.autograd.graph.save_on_cpu():
        return function(x)


def again(function, x, reentrant):
    return checkpoint(function, x, use_reentrant=reentrant)


MIXED = {
    "hooks around a checkpoint": lambda module, x: save(lambda y: again(module, y, True), x),
    "a checkpoint in another": lambda module, x: again(lambda y: again(module, y, True) * 2, x, False),
    "the other way round": lambda module, x: again(lambda y: again(module, y, False) * 2, x, True),
}


@pytest.mark.parametrize("run", MIXED.values(), ids=MIXED)
def test_checkpoints_and_hooks_on_saved_tensors_may_be_mixed(run):
    module, x = fused(), torch.ones(20, 30, requires_grad=True)
    out = run(module, x)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_a_backward_pass_within_hooks_draws_the_mask_of_the_forward_pass():
    module, x = fused(), torch.ones(20, 30, requires_grad=True)
    out = again(module, x, True)
    with torch.autograd.graph.save_on_cpu():
        out.sum().backward()
    assert torch.equal(x.grad, out.detach())


@pytest.mark.filterwarnings("ignore:`torch.jit.script:FutureWarning", "ignore:`torch.jit:DeprecationWarning")
def test_derivatives_of_many_outputs_at_once_and_forward_mode_are_the_mask():
    module, x = fused(), torch.ones(6, requires_grad=True)
    out = module(x)
    (rows,) = torch.autograd.grad(out, x, torch.eye(6), is_grads_batched=True)
    assert torch.equal(rows, torch.diag(out.detach()))
    jacobian = torch.autograd.functional.jacobian(module, x, vectorize=True)
    assert torch.equal(jacobian, torch.diag(jacobian.diagonal()))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.ones(6), torch.arange(6.0))
        out, tangent = torch.autograd.forward_ad.unpack_dual(module(dual))
    assert torch.equal(tangent, out * torch.arange(6.0))


def test_tracers_of_operations_get_torchs_dropout():
    module, x = fused(), torch.ones(20, 30)
    graph = make_fx(module)(x)
    assert not torch.equal(graph(x), graph(x))
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert module(x).shape == x.shape


def test_copies_draw_as_the_module_does():
    module, x = fused(), torch.ones(20, 30)
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(outcome(twin, x)[0], outcome(module, x)[0])


@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning", "ignore:`torch.jit:DeprecationWarning")
def test_tracers_see_torchs_dropout():
    module, x = nn.Sequential(fused()), torch.ones(20, 30)
    graph = fx.symbolic_trace(module)
    assert [node.op for node in graph.graph.nodes] == ["placeholder", "call_module", "output"]
    assert (graph(x) == 0).any()
    assert torch.equal(graph.eval()(x), x)
    traced = torch.jit.trace(module.eval(), x)
    assert torch.equal(traced(x), x)
    assert "dropout" in str(torch.export.export(module, (x,)).graph)


def test_torch_func_differentiates_it():
    module = fused()
    x = torch.ones(6, 7)
    grad = torch.func.grad(lambda v: module(v).sum())(x)
    assert torch.equal(grad != 0, torch.isclose(grad, torch.tensor(1 / 0.6)))
    out = torch.func.vmap(module, randomness="different")(x)
    assert out.shape == x.shape


def test_torch_compile_takes_it_in_without_a_break():
    module = nn.Sequential(fused(), nn.Tanh())
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    out = compiled(torch.ones(20, 30))
    assert (out == 0).any()
    assert (out != 0).any()
