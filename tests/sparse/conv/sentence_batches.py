"""Sentences of random words, and a convolution with a maximum over time by loops.

Letters: U distinct rows of x, E width, N positions, B sentences, F channels, w window, R rows, k kept.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from msbp.sparse import MaxOverTime
from msbp.sparse.reference import largest

E, F = 7, 12


def sentences(seed: int, B: int = 5, U: int = 9, longest: int = 8, dtype=torch.float64) -> tuple[Tensor, ...]:
    """x (U, E), index (N), offsets (B + 1): one sentence is a single word; a sentence holds no word twice.

    Equal windows of one sentence would tie, and the argmax would depend on rounding.
    """
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (B,), generator=random)
    lengths[seed % B] = 1
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
    x = torch.randn(U, E, generator=random, dtype=torch.float64).to(dtype)
    return x, torch.cat([torch.randperm(U, generator=random)[:length] for length in lengths]), offsets


def upstream(seed: int, B: int = 5, dtype=torch.float64) -> Tensor:
    """∂ℓ/∂z (B, F), some of it zero, as behind a dropout."""
    random = torch.Generator().manual_seed(seed + 1000)
    grad = torch.randn(B, F, generator=random, dtype=torch.float64)
    return (grad * (torch.rand(B, F, generator=random) < 0.9)).to(dtype)


def layer(window: int = 3, dtype=torch.float64) -> MaxOverTime:
    return MaxOverTime(E, F, window).to(dtype)


@dataclass
class Naive:
    """A layer that selects and remembers as documented, one row after the other."""

    weight: Tensor
    bias: Tensor
    k: int
    gamma: float
    selection: str
    m: Tensor = field(default_factory=lambda: torch.zeros(F, dtype=torch.float64))

    @property
    def window(self) -> int:
        return self.weight.shape[2]

    def forward(self, x: Tensor, index: Tensor, offsets: Tensor) -> Tensor:
        """z (B, F); keeps for each sentence and channel the first position of its largest window."""
        self.x, self.index, self.offsets = x, index, offsets
        self.best = [
            [max(self.windows(b), key=lambda p: (self.h(b, p, f), -p)) for f in range(F)] for b in self.all
        ]
        h = torch.stack([torch.stack([self.h(b, self.best[b][f], f) for f in range(F)]) for b in self.all])
        self.on = h > 0
        return h * self.on

    def backward(self, grad_z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """∂ℓ/∂W (F, 1, w, E), ∂ℓ/∂b (F), ∂ℓ/∂x (U, E); m moves on."""
        grad_w, grad_b, grad_x = (torch.zeros_like(t) for t in (self.weight, self.bias, self.x))
        for (b, position), g in self.estimate(grad_z * self.on).items():
            for f in range(F):
                grad_b[f] += g[f]
                for j, row in self.words(b, position):
                    grad_w[f, 0, j] += g[f] * self.x[row]
                    grad_x[row] += g[f] * self.weight[f, 0, j]
        return grad_w, grad_b, grad_x

    def estimate(self, grad_h: Tensor) -> dict[tuple[int, int], Tensor]:
        """g (F) by sentence and position."""
        if self.selection == "pooled":
            g = self.select({(b, b): grad_h[b] for b in self.all}, [[(b, b)] for b in self.all])
            spread = {
                (b, self.best[b][f]): torch.zeros(F, dtype=torch.float64) for b in self.all for f in range(F)
            }
            for b in self.all:
                for f in range(F):
                    spread[b, self.best[b][f]][f] = g[b, b][f]
            return spread
        rows: dict[tuple[int, int], Tensor] = {}
        for b in self.all:
            for f in range(F):
                if grad_h[b, f] != 0:
                    row = rows.setdefault((b, self.best[b][f]), torch.zeros(F, dtype=torch.float64))
                    row[f] = grad_h[b, f]
        rows = dict(sorted(rows.items()))
        by_example = [[key for key in rows if key[0] == b] for b in self.all]
        groups = {"per_example": by_example, "unified": [list(rows)]}
        return self.select(rows, groups.get(self.selection, [[key] for key in rows]))

    def select(self, rows, groups) -> dict[tuple[int, int], Tensor]:
        """In each group of rows k T entries (per_example), k columns (unified), or k entries of a row."""
        if not rows:
            return {}
        carried = {key: row + self.m for key, row in rows.items()}
        g = {}
        for group in filter(None, groups):
            v = torch.stack([carried[key] for key in group])
            if self.selection == "unified":
                kept = torch.zeros_like(v)
                columns = largest(v.abs().sum(0), self.k)
                kept[:, columns] = v[:, columns]
            else:
                count = self.k * self.positions if self.selection == "per_example" else self.k
                kept = torch.zeros(v.numel(), dtype=v.dtype)
                entries = largest(v.flatten(), min(count, v.numel()))
                kept[entries] = v.flatten()[entries]
            g.update(zip(group, kept.view_as(v), strict=True))
        left = torch.stack([carried[key] - g[key] for key in rows])
        self.m = self.gamma * left.mean(0)
        return g

    @property
    def all(self) -> range:
        return range(len(self.offsets) - 1)

    @property
    def positions(self) -> int:
        return int(self.offsets.diff().max()) + self.window - 1

    def windows(self, b: int) -> range:
        """Positions at which the windows start that hold a word of sentence b; the first ones before it."""
        return range(int(self.offsets[b]) - self.window + 1, int(self.offsets[b + 1]))

    def words(self, b: int, start: int) -> list[tuple[int, int]]:
        """The words in a window: the offset of each in the window, and its row."""
        positions = range(
            max(start, int(self.offsets[b])), min(start + self.window, int(self.offsets[b + 1]))
        )
        return [(p - start, int(self.index[p])) for p in positions]

    def h(self, b: int, start: int, f: int) -> Tensor:
        products = [self.weight[f, 0, j] @ self.x[row] for j, row in self.words(b, start)]
        return self.bias[f] + torch.stack(products).sum()
