"""Torch's tools that record or transform a forward pass: compile, trace, script, fx, vmap and torch.func.

Letters: B batch, i in_features, n out_features, c classes.
"""

import copy
import warnings

import pytest
import torch
from torch import fx, nn

from msbp import optim
from msbp.sparse import convert, cross_entropy, fuse

from .problems import assert_close, gradients, mlp, state

B, i, n, c = 6, 10, 16, 3


class Layers(nn.Module):
    """Single layers of other kinds, with a forward pass of its own."""

    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.conv = nn.Embedding(9, 4), nn.LSTM(4, 5), nn.Conv1d(5, 6, 2)
        self.inner, self.out = mlp(6, 8, 7), nn.Linear(7, c)

    def forward(self, x):
        states, _ = self.rnn(self.table(x))
        return self.out(self.inner(self.conv(states.permute(1, 2, 0)).amax(2)).relu())


MODELS = {
    "chain": (lambda: mlp(i, n, n, c), lambda: torch.randn(B, i)),
    "layers": (Layers, lambda: torch.randint(9, (4, B))),
}
each_model = pytest.mark.parametrize(("build", "draw"), MODELS.values(), ids=MODELS)
INSTALLS = {"fuse": fuse, "convert": lambda model: convert(model, r=0.3)}
each_install = pytest.mark.parametrize("install", INSTALLS.values(), ids=INSTALLS)


def converted(build, install):
    model = build()
    install(model)
    return model, copy.deepcopy(model)


def learn(forward, model, x):
    for _ in range(2):
        cross_entropy(forward(x), torch.arange(B) % c).backward()
    return state(model)


@pytest.fixture
def compiled():
    """torch.compile with a backend that compiles nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch's own, when it is first imported
        import torch._dynamo

    torch._dynamo.reset()
    yield lambda function: torch.compile(function, backend="eager")
    torch._dynamo.reset()


@each_install
@each_model
def test_a_compiled_model_learns_as_it_would_uncompiled(build, draw, install, compiled):
    model, twin = converted(build, install)
    x = draw()
    assert_close(learn(compiled(model), model, x), learn(twin, twin, x), 1e-6)
    with torch.no_grad():
        torch.testing.assert_close(compiled(model)(x), twin(x))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_a_compiled_training_step_is_a_training_step(compiled):
    model, twin = converted(lambda: mlp(i, n, n, c), INSTALLS["convert"])

    def train(network, optimizer, x):
        loss = cross_entropy(network(x), torch.arange(B) % c)
        loss.backward()
        seen = network[0].weight.grad.sum()
        optim.clip_grad_norm_(network.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach() + seen

    results: list = []
    for network, step in ((model, compiled(train)), (twin, train)):
        torch.manual_seed(0)
        optimizer = optim.Adam(network.parameters())
        losses = [step(network, optimizer, torch.randn(B, i)) for _ in range(3)]
        results.append(torch.stack(losses))
    assert torch.equal(*results)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), twin.parameters(), strict=True))


@each_install
@each_model
def test_fx_keeps_the_layers_as_they_are(build, draw, install):
    model, twin = converted(build, install)
    graph, x = fx.symbolic_trace(model), draw()
    assert_close(learn(graph, model, x), learn(twin, twin, x), 1e-6)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::torch.jit.TracerWarning")
@each_install
@each_model
def test_a_traced_model_gives_the_same_outputs(build, draw, install):
    model, _ = converted(build, install)
    traced, x = torch.jit.trace(model, draw()), draw()
    torch.testing.assert_close(traced(x), model(x))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@each_install
@each_model
def test_scripting_is_refused_and_changes_nothing(build, draw, install):
    model, twin = converted(build, install)
    with pytest.raises(RuntimeError, match=r"torch\.jit\.script cannot compile a "):
        torch.jit.script(model)
    assert [*map(type, model.modules())] == [*map(type, twin.modules())]


@each_install
def test_vmap_without_gradients_is_a_loop(install):
    model, _ = converted(MODELS["chain"][0], install)
    x = torch.randn(3, B, i)
    with torch.no_grad():
        torch.testing.assert_close(torch.vmap(model)(x), torch.stack([model(each) for each in x]))


@each_install
@each_model
def test_gradients_by_torch_func_are_refused_with_a_reason(build, draw, install):
    model, _ = converted(build, install)
    before, x = gradients(model), draw()
    given = {name: p.detach() for name, p in model.named_parameters()}

    def loss(weights):
        return torch.func.functional_call(model, weights, (x,)).square().sum()

    tools = (lambda: torch.func.grad(loss)(given), lambda: torch.vmap(model)(torch.stack([x, x])))
    for tool in tools:
        with pytest.raises(RuntimeError, match=r"torch\.func takes no gradients of a "):
            tool()
    assert_close(gradients(model), before, 0)
