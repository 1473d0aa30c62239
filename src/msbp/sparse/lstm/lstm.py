"""FusedLSTM and SparseLSTM: nn.LSTM with a layer as one autograd node, and a dense or sparse backward pass.

Letters: B sequences, N rows (words), n rows of a time step, D directions, i input_size, H hidden_size, k kept
of a gate.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self, TypeGuard, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import PackedSequence

from ..buffers import CPU, uses_kernel
from ..dropout import dropout
from ..memory import BIAS_GRADIENTS, GradientMemory, check_choices, memory_of
from ..sparsifiers import HAVE_KERNELS, TOP_K, KeepsEntries, Sparsifier, sparsifier_of
from ..torch_compat import Converted, eager_forward
from .gradients import EstimatedGradient, FullGradient, ListedGradient, Saved, Weights
from .memory_over_time import CARRIES, Carry, NoMemory
from .recurrence import Layer, Plan

States = tuple[Tensor, Tensor]
Propagation = Callable[[Weights, Saved, Sequence[slice]], FullGradient]
LISTABLE = ("per_example", "per_position", "pooled")  # selections row by row, for which there is a kernel
GROUPS = {"per_gate": 4, "joint": 1}  # parts of a row's 4H gradients, each with a top-k of its own


class FusedLSTM(Converted, nn.LSTM):
    """nn.LSTM with the same arguments, results, parameters and keys, and a dense backward pass: the baseline.

    Dropout between layers draws its masks as dropout.py does.
    """

    plain = nn.LSTM

    @classmethod
    def adopt(cls, lstm: nn.LSTM) -> Self:
        """Convert an nn.LSTM in place: the same object, parameters, hooks and state_dict keys."""
        if not adoptable(lstm):
            raise ValueError(f"{lstm} is not a plain nn.LSTM with proj_size=0, and no other can be converted")
        lstm.__class__ = cls
        return cast(Self, lstm)

    def revert(self) -> None:
        """Turn into an nn.LSTM in place, which computes with a list of its parameters: with those of now."""
        super().revert()
        self._init_flat_weights()

    @property
    def out_features(self) -> int:
        """Return the width that k is a part of: that of one gate."""
        return self.hidden_size

    @eager_forward
    def forward(self, input: Tensor | PackedSequence, hx: States | None = None) -> tuple[Any, States]:
        """Return output and last states, as nn.LSTM."""
        if isinstance(input, PackedSequence):
            rows, sizes, order, back = input
            hx = None if hx is None else self.permute_hidden(hx, order)
            out, states = self._layers(rows, sizes.tolist(), hx)
            return PackedSequence(out, sizes, order, back), self.permute_hidden(states, back)
        if input.dim() == 2:
            batch_dim = 0 if self.batch_first else 1
            hx = None if hx is None else (hx[0].unsqueeze(1), hx[1].unsqueeze(1))
            out, states = self.forward(input.unsqueeze(batch_dim), hx)
            return out.squeeze(batch_dim), (states[0].squeeze(1), states[1].squeeze(1))
        steps = input.transpose(0, 1) if self.batch_first else input
        if not steps.shape[1]:  # without a sequence there is no gradient to make sparse
            return super().forward(input, hx)
        out, states = self._layers(steps.flatten(0, 1), [steps.shape[1]] * len(steps), hx)
        out = out.view(*steps.shape[:2], -1)
        return out.transpose(0, 1) if self.batch_first else out, states

    def _layers(self, x: Tensor, sizes: list[int], hx: States | None) -> tuple[Tensor, States]:
        """Run all layers over x (N, i), `sizes` rows a time step; return out (N, D · H), states (·, B, H)."""
        self.check_input(x, torch.tensor(sizes, device=CPU))
        if not sizes:
            raise RuntimeError(f"{self} got sequences of length 0; it needs at least one time step")
        if hx is not None:
            self.check_forward_args(x, hx, torch.tensor(sizes, device=CPU))
        if torch.is_autocast_enabled(x.device.type):
            # the selection and the memory need the parameters' precision, so the layers step out of autocast
            with torch.autocast(x.device.type, enabled=False):
                dtype = cast(Tensor, self.weight_ih_l0).dtype
                start = None if hx is None else (hx[0].to(dtype), hx[1].to(dtype))
                return self._layers(x.to(dtype), sizes, start)
        per_layer = 2 if self.bidirectional else 1
        steps, ends = time_steps(sizes), []
        for first in range(0, self.num_layers * per_layer, per_layer):
            if first and self.dropout and self.training:
                x = dropout(x, self.dropout)
            names, part = self._all_weights[first : first + per_layer], slice(first, first + per_layer)
            parameters = [getattr(self, name) for direction in names for name in direction]
            gradients = [self._gradient(suffix(direction)) for direction in names]
            h0, c0 = (None, None) if hx is None else (hx[0][part], hx[1][part])
            x, *last = Layer.apply(Plan(steps, len(names[0]), gradients), x, h0, c0, *parameters)
            ends.append(last)
        h, c = (torch.cat(states) for states in zip(*ends, strict=True))
        return x, (h, c)

    def _gradient(self, direction: str) -> Propagation:
        """Return the function that propagates the gradient in a layer and direction."""
        return full_gradient


def full_gradient(weights: Weights, saved: Saved, steps: Sequence[slice]) -> FullGradient:
    """Return the propagation of the whole gradient through these time steps."""
    return FullGradient(weights, saved)


def adoptable(module: nn.Module) -> TypeGuard[nn.LSTM]:
    """Return True for an nn.LSTM that can be converted."""
    return type(module) is nn.LSTM and not module.proj_size and not parametrize.is_parametrized(module)


def time_steps(sizes: list[int]) -> list[slice]:
    """Return the rows of each time step."""
    ends = list(itertools.accumulate(sizes))
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


class SparseLSTM(KeepsEntries, FusedLSTM):
    """nn.LSTM that keeps k entries of each gate's gradient at a time step, and carries gamma times the rest.

    These are the gradients of the gates' pre-activations. gates: per_gate (k of the H of each gate) | joint
    (4k of all 4H). carry: time | batch, see memory_over_time.py. The other choices are those of SparseLinear.
    Every layer and direction has a memory, which is not in the state_dict.
    """

    own_state = (
        "name", "k", "groups", "carries", "sparsifier", "listable", "dense_bias",
        "enabled", "memory",
    )  # fmt: skip
    name: str
    k: int
    groups: int
    carries: Callable[[GradientMemory, Sequence[slice]], Carry]
    sparsifier: Sparsifier
    listable: bool
    dense_bias: bool
    memory: nn.ModuleDict

    @classmethod
    def adopt(  # type: ignore[override]
        cls, lstm: nn.LSTM, name: str, k: int, gamma: float, memory: str = "shared",
        selection: str = "per_example", bias_gradient: str = "sparse", gates: str = "per_gate",
        carry: str = "time", sparsifier: str = TOP_K, memory_control: str | None = None,
    ) -> Self:  # fmt: skip
        """Make an nn.LSTM sparse in place: the same object, parameters, hooks and keys."""
        check_choices(gamma, memory, selection, bias_gradient, sparsifier, memory_control)
        check_lstm_choices(memory, gates, carry)
        sparse = super().adopt(lstm)
        sparse.name, sparse.k, sparse.groups = name, k, GROUPS[gates]
        sparse.carries, sparse.dense_bias = CARRIES[carry], BIAS_GRADIENTS[bias_gradient]
        sparse.sparsifier = sparsifier_of(sparsifier, selection, gamma > 0, name)
        sparse.listable = selection in LISTABLE
        sparse.enabled, sparse.memory = True, nn.ModuleDict()
        for names in lstm._all_weights:
            direction, weight = suffix(names), getattr(lstm, names[0])
            carried = memory_of(memory, 4 * lstm.hidden_size, gamma, memory_control, f"{name}.{direction}")
            if carried is not None:
                sparse.memory[direction] = carried.to(weight)
        return sparse

    def _gradient(self, direction: str) -> Propagation:
        return partial(self._sparse_gradient, direction) if self.active else full_gradient

    def _sparse_gradient(
        self, direction: str, weights: Weights, saved: Saved, steps: Sequence[slice]
    ) -> FullGradient:
        memory = cast(GradientMemory, self.memory[direction]) if direction in self.memory else None
        if memory is not None:
            memory.on(weights.hh, len(weights.hh))
        carry = NoMemory() if memory is None else self.carries(memory, steps)
        known = self.sparsifier in HAVE_KERNELS and (memory is None or memory.control is None)
        if known and self.listable and uses_kernel(*weights[:2], *saved):
            kept, gamma = 4 * min(self.k, weights.hh.shape[1]), 0.0 if memory is None else memory.gamma
            return ListedGradient(weights, saved, kept, self.groups, gamma, carry, self.dense_bias)
        return EstimatedGradient(weights, saved, self.estimate, carry, self.dense_bias)

    def reset_parameters(self) -> None:
        """Initialize the parameters as nn.LSTM does, and clear the memory."""
        super().reset_parameters()
        for memory in self.memory.values():
            cast(GradientMemory, memory).clear()

    def estimate(self, grad_gates: Tensor, carry: Carry) -> tuple[Tensor, None]:
        """Return the estimate g (n, 4H) of the gates' gradient at a time step."""
        return carry.estimate(grad_gates, self.sparsify), None

    def sparsify(self, carried: Tensor) -> Tensor:
        """Return the entries of carried (n, 4H) that are kept, zeros elsewhere."""
        groups = carried.unflatten(1, (self.groups, -1))
        return self.sparsifier(groups, min(4 * self.k // self.groups, groups.shape[2])).flatten(1)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, k={self.__dict__.get('k')}"


def suffix(names: list[str]) -> str:
    """Return layer and direction of these parameters as in nn.LSTM's names: l0, l0_reverse, l1, ..."""
    return names[0].removeprefix("weight_ih_")


def check_lstm_choices(memory: str, gates: str, carry: str) -> None:
    """ValueError unless an LSTM's own options are known and compatible."""
    for what, got, choices in (("gates", gates, list(GROUPS)), ("carry", carry, list(CARRIES))):
        if got not in choices:
            raise ValueError(f"unknown {what} {got!r}: choose from {', '.join(choices)}")
    if memory == "sequential" and carry == "batch":
        raise ValueError(
            "memory=sequential passes from row to row, it cannot wait for a batch: use carry=time"
        )
