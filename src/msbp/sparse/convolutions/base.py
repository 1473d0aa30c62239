"""SparseConvolution: what convolutions share whose backward pass propagates part of ∂ℓ/∂h.

Letters: B examples, F maps (out_channels), T positions of the output, R rows, k kept. A row is the gradient
of all F maps at one position of one example; rows without any gradient take no part: they neither get memory
nor leave any. The memory is one vector over the maps, shared by all positions as the weight is, for any T.
"""

from functools import partial
from typing import NoReturn, Self, cast

import torch
from torch import Tensor, nn

from ..choices import BIAS_GRADIENTS, check_choices
from ..eager import Converted, not_finite
from ..memory import MEMORIES, GradientMemory, SequentialMemory, SharedMemory
from ..suited import by_kernel
from .selections import SELECTIONS, Selection, row_top_k
from .windows import Entries, keep_entries


class SparseConvolution(Converted):
    """What sparse convolutions share: k of F maps, a selection, a memory; the choices are SparseLinear's.

    selection: per_example (k T of all F T entries of an example) | per_position (k of the F maps at each
    position) | pooled (k of the F maxima over time; without a maximum, as per_position) | unified (the same k
    maps for the batch).
    """

    name = ""
    out_channels: int
    k: int
    selection: Selection
    dense_bias: bool
    enabled: bool
    step: int
    memory: GradientMemory | None

    @classmethod
    def adopt(
        cls,
        convolution: nn.Module,
        name: str,
        k: int,
        gamma: float,
        memory: str = "shared",
        selection: str = "per_example",
        bias_gradient: str = "sparse",
    ) -> Self:
        """Turn a layer into a sparse one in place: the same object, parameters, hooks and state_dict keys."""
        check_choices(gamma, memory, selection, bias_gradient)
        sparse = cast(Self, convolution)
        sparse.__class__, sparse.name, sparse.k = cls, name, k
        sparse.selection, sparse.dense_bias = SELECTIONS[selection], BIAS_GRADIENTS[bias_gradient]
        sparse.enabled, sparse.step = True, 0
        weight = cast(Tensor, convolution.weight)
        sparse.memory = MEMORIES[memory](sparse.out_channels, gamma).to(weight) if gamma > 0 else None
        return sparse

    @property
    def out_features(self) -> int:
        """The width that k is a part of: the maps, whatever the number of positions."""
        return self.out_channels

    def estimate(self, grad_h: Tensor, example: Tensor, positions: int) -> tuple[Tensor, Tensor | None]:
        """The gradient g that is propagated in place of rows of ∂ℓ/∂h (R, F), and the memory that follows it.

        example (R) says which example a row is of, in ascending order; positions is T.
        """
        if not len(grad_h):
            return grad_h, None
        sparsifier = partial(self.selection.sparsifier, k=self.k, example=example, positions=positions)
        if self.memory is None:
            g, m = sparsifier(grad_h), None
        elif isinstance(self.memory, SequentialMemory):
            g, m = self.example_by_example(grad_h, example, positions, self.memory)
        else:
            g, m = self.memory.estimate(grad_h, sparsifier)
        self.check(g)  # a NaN or Inf is among the largest, so looking at g is enough
        return g, m

    def example_by_example(
        self, grad_h: Tensor, example: Tensor, positions: int, memory: SequentialMemory
    ) -> tuple[Tensor, Tensor]:
        """The same with a memory that passes from example to example, shared by the rows of each."""
        m, estimates = memory.m, []
        for rows in grad_h.split(example.unique_consecutive(return_counts=True)[1].tolist()):
            carried, alone = rows + m, example.new_zeros(len(rows))  # ∂ℓ/∂h + m
            estimates.append(self.selection.sparsifier(carried, self.k, alone, positions))
            m = memory.gamma * (carried - estimates[-1]).mean(0, keepdim=True)  # m ← γ(∂ℓ/∂h + m − g)
        return torch.cat(estimates), m

    def entries(
        self, rows: Tensor, example: Tensor, place: Tensor, positions: int
    ) -> tuple[Entries, Tensor | None]:
        """The same as entries, for rows of ∂ℓ/∂h (R, F) that stand at places (R)."""
        memory = self.memory
        by_row = self.selection.sparsifier is row_top_k and (memory is None or type(memory) is SharedMemory)
        if by_row and len(rows) and by_kernel(rows):
            m, gamma = (rows.new_zeros(1, rows.shape[1]), 0.0) if memory is None else (memory.m, memory.gamma)
            kept = keep_entries(rows, place, self.k, m, gamma)
            if kept is None:
                self.refuse()
            return kept
        g, m_next = self.estimate(rows, example, positions)
        row, maps = g.nonzero(as_tuple=True)
        return Entries(g[row, maps], maps, place[row]), m_next

    def check(self, g: Tensor) -> None:
        """Refuse a gradient unless all of it is finite."""
        if not torch.isfinite(g).all():
            self.refuse()

    def refuse(self) -> NoReturn:
        """Report a gradient that is not finite."""
        raise not_finite(self, self.step + 1)

    def finish(self, m: Tensor | None) -> None:
        """End a backward pass that went well: store the memory and count the step."""
        if m is not None and self.memory is not None:
            self.memory.store(m)
        self.step += 1
