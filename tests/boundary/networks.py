"""A small network with each kind of layer that convert or fuse changes, its input, and the ways to its loss.

Letters: B batch, i in_features, n width of a hidden layer, c classes, V tokens, T words or time steps.
"""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from msbp.sparse import MaxOverTime, convert, cross_entropy, fuse, look_up
from msbp.sparse import backward as sparse_backward

B, i, n, c, V, T = 8, 6, 12, 3, 20, 5


class Linear(nn.Module):
    """Layers that are attributes, with a forward pass of their own."""

    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(i, n), nn.Linear(n, c)

    def forward(self, x):
        return self.out(self.hidden(x).relu())


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.LSTM(i, n, num_layers=2, bidirectional=True), nn.Linear(2 * n, c)

    def forward(self, x):
        return self.out(self.hidden(x)[0][-1])


class Convolution1d(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Conv1d(i, n, 3), nn.Linear(n, c)

    def forward(self, x):
        return self.out(self.hidden(x).amax(2).relu())


class Convolution2d(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Conv2d(2, n, 3, padding=1), nn.Linear(n, c)

    def forward(self, x):
        return self.out(self.hidden(x).tanh().mean((2, 3)))


class Pooled(nn.Module):
    """A convolution and its maximum over the words of sentences, one row of x (B, T, i) a word."""

    def __init__(self):
        super().__init__()
        self.hidden, self.out = MaxOverTime(i, n, 2), nn.Linear(n, c)

    def forward(self, x):
        words = len(x) * x.shape[1]
        offsets = torch.arange(0, words + 1, x.shape[1], device=x.device)
        index = torch.arange(words, device=x.device)
        return self.out(self.hidden(x.flatten(0, 1), index, offsets))


class Words(nn.Module):
    """An embedding in front of a chain, through look_up; the padding token has no gradient."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(V, 4, padding_idx=0)
        self.net = nn.Sequential(nn.Linear(4 * T, n), nn.ReLU(), nn.Linear(n, c))

    def forward(self, tokens):
        return look_up(self.table, self.net, tokens)


class Bag(nn.Module):
    """An embedding of its own, summed over the words."""

    def __init__(self):
        super().__init__()
        self.table, self.net = nn.Embedding(V, i), nn.Sequential(nn.Linear(i, n), nn.ReLU(), nn.Linear(n, c))

    def forward(self, tokens):
        return self.net(self.table(tokens).mean(1))


def chain() -> nn.Module:
    return nn.Sequential(nn.Linear(i, n), nn.ReLU(), nn.Linear(n, n), nn.Tanh(), nn.Linear(n, c))


def tokens() -> Tensor:
    return torch.randint(V, (B, T))


KINDS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor], list[str]]] = {
    "chain": (chain, lambda: torch.randn(B, i), ["0", "2"]),
    "linear": (Linear, lambda: torch.randn(B, i), ["hidden"]),
    "LSTM": (Recurrent, lambda: torch.randn(T, B, i), ["hidden"]),
    "Conv1d": (Convolution1d, lambda: torch.randn(B, i, T), ["hidden"]),
    "Conv2d": (Convolution2d, lambda: torch.randn(B, 2, 4, 4), ["hidden"]),
    "MaxOverTime": (Pooled, lambda: torch.randn(B, T, i), ["hidden"]),
    "Embedding": (Bag, tokens, ["net.0"]),
    "look_up": (Words, tokens, ["net.0"]),
}
each_kind = pytest.mark.parametrize("kind", KINDS)
INSTALLS = ("convert", "fuse")
each_install = pytest.mark.parametrize("how", INSTALLS)
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)


def build(kind: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    return KINDS[kind][0]().to(dtype)


def install(
    model: nn.Module, kind: str, how: str = "convert", r: float = 1.0, gamma: float = 0.0
) -> nn.Module:
    """Return the model, converted in place; by default it propagates everything."""
    if how == "fuse":
        fuse(model)
    else:
        convert(model, r=r, gamma=gamma, layers=KINDS[kind][2])
    return model


def pair(kind: str, how: str = "convert", dtype: torch.dtype = torch.float32) -> tuple[nn.Module, nn.Module]:
    """Return a converted network that propagates everything, and the plain one."""
    plain = build(kind, dtype)
    return install(copy.deepcopy(plain), kind, how), plain


def batch(kind: str, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    x = KINDS[kind][1]()
    return x.to(dtype) if x.is_floating_point() else x, torch.randint(c, (B,))


ENTRIES: dict[str, Callable[[nn.Module, Tensor, Tensor], None]] = {
    "torch": lambda model, x, y: nn.functional.cross_entropy(model(x), y).backward(),
    "cross_entropy": lambda model, x, y: cross_entropy(model(x), y).backward(),
    "backward": lambda model, x, y: sparse_backward(cross_entropy(model(x), y)),
}
each_entry = pytest.mark.parametrize("entry", ENTRIES)


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: p.grad.to_dense().detach().clone() for name, p in model.named_parameters() if p.grad is not None
    }


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def assert_close(ours: dict[str, Tensor], theirs: dict[str, Tensor], relative: float = 2e-5) -> None:
    """Equal up to `relative` times the largest entry of each tensor."""
    assert ours.keys() == theirs.keys()
    for name, a in ours.items():
        b = theirs[name]
        assert a.shape == b.shape and a.dtype is b.dtype, name
        allowed = max(relative, 4 * torch.finfo(a.dtype).eps if a.dtype is torch.bfloat16 else 0)
        worst, scale = (a - b).abs().max().item(), b.abs().max().item()
        assert worst <= allowed * scale + 1e-9, f"{name}: {worst} apart, largest {scale}"
