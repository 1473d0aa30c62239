"""Each private name of torch has a fallback with which training stays the same."""

import ast
import functools
import importlib
import pkgutil
import re
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from msbp.sparse import torch_compat

B, c = 6, 3
STEPS = 3
TREE = ast.parse(Path(torch_compat.__file__).read_text(encoding="utf-8"))
PRIVATE = [
    node.args[0].value
    for node in ast.walk(TREE)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "private"
]
FRAMES = "torch:_C._dynamo.eval_frame"
LATER = {  # torch 2.6 has these not yet
    "torch:_C._autograd._top_saved_tensors_default_hooks",
    "torch:compiler.is_exporting",
}
CASES = {name: [name] for name in PRIVATE}
CASES["all of them"] = PRIVATE
CASES["ways to skip a frame"] = [f"{FRAMES}.set_code_exec_strategy", f"{FRAMES}.skip_code"]


def each_case(subject: str):
    """Parametrize by the cases whose names contain the subject, and by all names at once."""
    cases = {case: names for case, names in CASES.items() if subject in names[0] or names == PRIVATE}
    return pytest.mark.parametrize("names", cases.values(), ids=cases)


class Network(nn.Module):
    """A layer of every kind."""

    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.conv = nn.Embedding(9, 4), nn.LSTM(4, 5), nn.Conv1d(5, 6, 2)
        self.inner = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, c))

    def forward(self, x):
        states, _ = self.rnn(self.table(x))
        return self.inner(self.conv(states.permute(1, 2, 0)).amax(2).relu())


class Library:
    """The package as a torch without some private names imports it."""

    def __init__(self, names: list[str]):
        others = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "msbp"}
        for name in others:
            del sys.modules[name]
        try:
            with pytest.MonkeyPatch.context() as patch:
                for name in sorted(names, key=len, reverse=True):
                    parent, last = re.fullmatch(r"(.*)[.:](.*)", name).groups()
                    patch.delattr(pkgutil.resolve_name(parent), last, raising=False)
                self.sparse, self.optim = map(importlib.import_module, ("msbp.sparse", "msbp.optim"))
                self.compat = importlib.import_module("msbp.sparse.torch_compat")
        finally:
            for name in [name for name in sys.modules if name.split(".")[0] == "msbp"]:
                del sys.modules[name]
            sys.modules.update(others)

    def network(self) -> nn.Module:
        torch.manual_seed(1)
        model = Network()
        self.sparse.convert(model, r=0.3, min_width=1)
        return model

    def train(self, model, forward, context=torch.enable_grad):
        """Return the weights and memories after some steps."""
        torch.manual_seed(2)
        optimizer = self.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(STEPS):
            with context():
                loss = self.sparse.cross_entropy(forward(torch.randint(9, (4, B))), torch.arange(B) % c)
            self.sparse.backward(loss)
            self.optim.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
        memories = {f"m of {name}": memory.m for name, memory in self.sparse.memories(model).items()}
        return {**dict(model.named_parameters()), **memories}


assert_same = functools.partial(torch.testing.assert_close, rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def libraries():
    return functools.cache(lambda *names: Library(list(names)))


def test_torch_has_the_private_names():
    """Otherwise the fallbacks would be in use, which are right, and slower."""
    absent = object()
    missing = {name for name in PRIVATE if torch_compat.private(name, absent) is absent}
    assert PRIVATE and missing <= LATER


@each_case("")
def test_training_is_the_same_without_a_private_name(names, libraries):
    library, whole = libraries(*names), libraries()
    assert library.compat is not torch_compat
    ours, theirs = library.network(), whole.network()
    assert type(ours.inner).__module__ == type(theirs.inner).__module__ != "torch.nn.modules.container"
    assert_same(library.train(ours, ours), whole.train(theirs, theirs))


@each_case("eval_frame")
def test_a_compiled_model_trains_the_same_without_a_private_name(names, libraries):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch's own, when it is first imported
        import torch._dynamo

    torch._dynamo.reset()
    library, whole = libraries(*names), libraries()
    ours, theirs = library.network(), whole.network()
    compiled = torch.compile(ours, backend="eager")
    assert_same(library.train(ours, compiled), whole.train(theirs, theirs))
    torch._dynamo.reset()


@each_case("saved_tensors")
def test_hooks_on_saved_tensors_are_seen_without_a_private_name(names, libraries):
    library = libraries(*names)
    have_hooks = library.compat.saved_tensors_have_hooks
    assert not have_hooks()
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        assert have_hooks()
    assert not have_hooks()
    ours, theirs = library.network(), library.network()
    with_hooks = library.train(ours, ours, torch.autograd.graph.save_on_cpu)
    assert_same(with_hooks, library.train(theirs, theirs))


@each_case("torch.nn.modules")
def test_hooks_on_all_modules_are_called_without_a_private_name(names, libraries):
    library = libraries(*names)
    model, seen = library.network(), []
    with torch.nn.modules.module.register_module_forward_hook(lambda *args: seen.append(type(args[0]))):
        model(torch.randint(9, (4, B)))
    assert seen.count(nn.ReLU) == 1


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::torch.jit.TracerWarning")
@each_case("tracing")
def test_a_traced_model_gives_the_same_outputs_without_a_private_name(names, libraries):
    model, x = libraries(*names).network().eval(), torch.randint(9, (4, B))
    traced = torch.jit.trace(model, torch.randint(9, (4, B)))
    torch.testing.assert_close(traced(x), model(x))


@each_case("functorch")
def test_a_mapped_model_is_right_or_refused_without_a_private_name(names, libraries):
    model = libraries(*names).network().inner.eval()
    x = torch.randn(3, B, 6)
    with torch.no_grad():
        expected = torch.stack([model(part) for part in x])
        try:
            mapped = torch.func.vmap(model)(x)
        except RuntimeError:
            assert "torch:_C._functorch.peek_interpreter_stack" in names
        else:
            torch.testing.assert_close(mapped, expected)
