"""SparseConvolution: the base of convolutions whose backward pass propagates k entries of ∂ℓ/∂h.

Letters: B examples, F out_channels, T windows (positions of the output), R rows, k kept. A row is the
gradient of all channels at one window of one example. Rows without any gradient are left out: no memory is
added to them and none comes from them. The memory is one vector over the channels, shared by all windows as
the weight is, for any T.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Self, cast

import torch
from torch import Tensor, nn

from ..buffers import uses_kernel, zeros
from ..memory import (
    BIAS_GRADIENTS,
    GradientMemory,
    SequentialMemory,
    SharedMemory,
    check_choices,
    memory_of,
)
from ..sparsifiers import TOP_K, KeepsEntries, Sparsifier, largest_of_rows, sparsifier_of, unified_top_k
from ..torch_compat import Converted
from .patches import Entries, keep_entries


def flat_top_k(v: Tensor, k: int, example: Tensor, windows: int) -> Tensor:
    """Keep the k T largest of all F x T entries of each example (meProp-CNN), ties to the first window."""
    sizes = example.bincount()
    within = torch.arange(len(v), device=v.device) - (sizes.cumsum(0) - sizes)[example]
    blocks = v.new_zeros(len(sizes), int(sizes.max()), v.shape[1])
    blocks[example, within] = v
    kept = largest_of_rows(blocks.flatten(1), min(k * windows, blocks[0].numel()))
    return kept.view_as(blocks)[example, within]


def row_top_k(v: Tensor, k: int, example: Tensor, windows: int) -> Tensor:
    """Keep the k largest channels of each row."""
    return largest_of_rows(v, k)


def unified_channels(v: Tensor, k: int, example: Tensor, windows: int) -> Tensor:
    """Keep the same k channels in all rows of the batch."""
    return unified_top_k(v, k)


class ByRow(nn.Module):
    """A sparsifier of linear layers, for the channels of each row."""

    def __init__(self, sparsifier: Sparsifier):
        super().__init__()
        self.sparsifier = sparsifier

    def forward(self, v: Tensor, k: int, example: Tensor, windows: int) -> Tensor:
        return self.sparsifier(v, k)


class Selection(NamedTuple):
    """A group of entries that compete: the sparsifier takes rows v (R, F), k, the example (R) of each row, T.

    pooled: the entries after the maximum over time compete, not those before it.
    """

    sparsifier: Callable[..., Tensor]
    pooled: bool = False


SELECTIONS = {
    "per_example": Selection(flat_top_k),
    "per_position": Selection(row_top_k),
    "pooled": Selection(row_top_k, pooled=True),
    "unified": Selection(unified_channels),
}


class SparseConvolution(KeepsEntries, Converted):
    """Base of sparse convolutions: k of F out_channels, a selection, a memory, options as SparseLinear's.

    selection: per_example (k T of all F T entries of an example) | per_position (k of the F channels at each
    window) | pooled (k of the F maxima over time; without a maximum, as per_position) | unified (the same k
    channels for the batch). A sparsifier that is not top_k chooses among the channels of each window, or of
    each maximum.
    """

    name = ""
    own_state = ("name", "k", "selection", "sparsifier", "dense_bias", "enabled", "step", "memory")
    out_channels: int
    k: int
    selection: Selection
    dense_bias: bool
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
        sparsifier: str = TOP_K,
        memory_control: str | None = None,
    ) -> Self:
        """Make a layer sparse in place: the same object, parameters, hooks and state_dict keys."""
        check_choices(gamma, memory, selection, bias_gradient, sparsifier, memory_control)
        sparse = cast(Self, convolution)
        sparse.__class__, sparse.name, sparse.k = cls, name, k
        sparse.selection, sparse.dense_bias = SELECTIONS[selection], BIAS_GRADIENTS[bias_gradient]
        sparse.enabled, sparse.step = True, 0
        weight = cast(Tensor, convolution.weight)
        carried = memory_of(memory, sparse.out_channels, gamma, memory_control, name)
        sparse.memory = None if carried is None else carried.to(weight)
        if sparsifier != TOP_K:
            sparse.choose_by_row(sparsifier_of(sparsifier, selection, gamma > 0, name))
        return sparse

    def choose_by_row(self, sparsifier: Sparsifier) -> None:
        """Have a sparsifier of linear layers choose among the channels of each row."""
        self.sparsifier = ByRow(sparsifier)
        self.selection = self.selection._replace(sparsifier=self.sparsifier)

    @property
    def out_features(self) -> int:
        """Return the width that k is a part of: the channels, whatever the number of windows."""
        return self.out_channels

    def reset_parameters(self) -> None:
        """Initialize weight and bias as the plain layer does; clear the memory and the count of steps."""
        super().reset_parameters()  # type: ignore[misc]
        if "step" in self.__dict__:  # not while the layer is being built
            self.step = 0
            if self.memory is not None:
                self.memory.clear()

    def estimate(self, grad_h: Tensor, example: Tensor, windows: int) -> tuple[Tensor, Tensor | None] | None:
        """Return the gradient g that is propagated in place of rows of ∂ℓ/∂h (R, F), and the memory after it.

        example (R) is the example of a row, in ascending order; windows is T. None if g is not finite.
        """
        if self.memory is not None:
            self.memory.on(grad_h, grad_h.shape[1])
        if not len(grad_h):
            return grad_h, None
        k = min(self.k, grad_h.shape[1])
        sparsifier = partial(self.selection.sparsifier, k=k, example=example, windows=windows)
        if self.memory is None:
            g, m = sparsifier(grad_h), None
        elif isinstance(self.memory, SequentialMemory):
            g, m = self.example_by_example(grad_h, example, windows, self.memory)
        else:
            g, m = self.memory.estimate(grad_h, sparsifier)
        # a NaN or Inf is among the largest, so looking at g is enough
        return (g, m) if torch.isfinite(g).all() else None

    def example_by_example(
        self, grad_h: Tensor, example: Tensor, windows: int, memory: SequentialMemory
    ) -> tuple[Tensor, Tensor]:
        """As estimate, with a memory that passes from example to example, shared by the rows of each."""
        m, estimates = memory.m, []
        for rows in grad_h.split(example.unique_consecutive(return_counts=True)[1].tolist()):
            k, alone = min(self.k, rows.shape[1]), example.new_zeros(len(rows))
            sparsifier = partial(self.selection.sparsifier, k=k, example=alone, windows=windows)
            g, left = memory.split(rows, m, sparsifier)  # g ← S(∂ℓ/∂h + m)
            estimates.append(g)
            m = memory.gamma * left.mean(0, keepdim=True)  # m ← γ(∂ℓ/∂h + m − g)
        return torch.cat(estimates), m

    def entries(
        self, rows: Tensor, example: Tensor, position: Tensor, windows: int
    ) -> tuple[Entries, Tensor | None] | None:
        """As estimate, with g as entries: of rows of ∂ℓ/∂h (R, F) whose windows start at `position` (R)."""
        memory = self.memory
        by_row = self.selection.sparsifier is row_top_k and (
            memory is None or (type(memory) is SharedMemory and memory.supports_kernel)
        )
        if by_row and len(rows) and uses_kernel(rows):
            F = rows.shape[1]
            m, gamma = (zeros(1, F), 0.0) if memory is None else (memory.on(rows, F), memory.gamma)
            return keep_entries(rows, position, min(self.k, F), m, gamma)
        estimated = self.estimate(rows, example, windows)
        if estimated is None:
            return None
        g, m_next = estimated
        row, channels = g.nonzero(as_tuple=True)
        return Entries(g[row, channels], channels, position[row]), m_next

    def finish(self, m: Tensor | None) -> None:
        """Store the memory and count the step, after a backward pass without error."""
        if m is not None and self.memory is not None:
            self.memory.store(m)
        self.step += 1
