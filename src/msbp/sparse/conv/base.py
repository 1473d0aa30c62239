"""SparseConvolution: what convolutions share whose backward pass propagates part of ∂ℓ/∂h.

Letters: B examples, F maps (out_channels), T positions of the output, R rows, k kept. A row is the gradient
of all F maps at one position of one example; rows without any gradient take no part: they neither get memory
nor leave any. The memory is one vector over the maps, shared by all positions as the weight is, for any T.
"""

from functools import partial
from typing import Self, cast

import torch
from torch import Tensor, nn

from ..buffers import uses_kernel, zeros
from ..choices import BIAS_GRADIENTS, check_choices
from ..memory import MEMORIES, GradientMemory, SequentialMemory, SharedMemory
from ..torch_compat import Converted
from .patches import Entries, keep_entries
from .selections import SELECTIONS, Selection, row_top_k


class SparseConvolution(Converted):
    """What sparse convolutions share: k of F maps, a selection, a memory; the choices are SparseLinear's.

    selection: per_example (k T of all F T entries of an example) | per_position (k of the F maps at each
    position) | pooled (k of the F maxima over time; without a maximum, as per_position) | unified (the same k
    maps for the batch).
    """

    name = ""
    own_state = ("name", "k", "selection", "dense_bias", "enabled", "step", "memory")
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

    @property
    def active(self) -> bool:
        """Whether the backward pass is sparse at present: not if disabled, nor in evaluation mode."""
        return self.enabled and self.training

    def reset_parameters(self) -> None:
        """Initialize weight and bias as the plain layer does; clear the memory and the count of steps."""
        super().reset_parameters()  # type: ignore[misc]
        if "step" in self.__dict__:  # not while the layer is being built
            self.step = 0
            if self.memory is not None:
                self.memory.clear()

    def estimate(
        self, grad_h: Tensor, example: Tensor, positions: int
    ) -> tuple[Tensor, Tensor | None] | None:
        """Return the gradient g that is propagated in place of rows of ∂ℓ/∂h (R, F), and the memory after it.

        example (R) is the example of a row, in ascending order; positions is T. None if g is not finite.
        """
        if self.memory is not None:
            self.memory.on(grad_h, grad_h.shape[1])
        if not len(grad_h):
            return grad_h, None
        sparsifier = partial(self.selection.sparsifier, k=self.k, example=example, positions=positions)
        if self.memory is None:
            g, m = sparsifier(grad_h), None
        elif isinstance(self.memory, SequentialMemory):
            g, m = self.example_by_example(grad_h, example, positions, self.memory)
        else:
            g, m = self.memory.estimate(grad_h, sparsifier)
        # a NaN or Inf is among the largest, so looking at g is enough
        return (g, m) if torch.isfinite(g).all() else None

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
    ) -> tuple[Entries, Tensor | None] | None:
        """Return the same as entries, for rows of ∂ℓ/∂h (R, F) at positions `place` (R)."""
        memory = self.memory
        by_row = self.selection.sparsifier is row_top_k and (memory is None or type(memory) is SharedMemory)
        if by_row and len(rows) and uses_kernel(rows):
            F = rows.shape[1]
            m, gamma = (zeros(1, F), 0.0) if memory is None else (memory.on(rows, F), memory.gamma)
            return keep_entries(rows, place, self.k, m, gamma)
        estimated = self.estimate(rows, example, positions)
        if estimated is None:
            return None
        g, m_next = estimated
        row, maps = g.nonzero(as_tuple=True)
        return Entries(g[row, maps], maps, place[row]), m_next

    def finish(self, m: Tensor | None) -> None:
        """End a backward pass that went well: store the memory and count the step."""
        if m is not None and self.memory is not None:
            self.memory.store(m)
        self.step += 1
