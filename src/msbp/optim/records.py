"""Records of a kernel's step: a row of its table per parameter.

The optimizer checks each tensor that a record points to. Once a kernel could read all of a group, a plan
keeps their layouts, and in later steps one call of torch compares all tensors with these.

Letters: n rows of a parameter, u rows that have a gradient.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from ..sparse.buffers import Layouts
from ..sparse.row_sparse import RowSparseGradient

State = dict[str, Any]
WORDS = (
    "weight", "first", "second",   # (n, i): the parameter and the optimizer's moments, 0 where it has none
    "grad",                        # (n, i) dense, or 0
    "indices", "rows",             # (u) int64 and (u, i): a row-sparse gradient, where there is no dense one
    "last_step",                   # (n) int32: the step that a row's moments belong to
    "n", "i", "u", "step",
)  # fmt: skip
WIDTH = len(WORDS)
WEIGHT, FIRST, SECOND, GRAD, INDICES, ROWS, LAST_STEP, _, _, U, STEP = range(WIDTH)
NONE, DENSE, ROW_SPARSE = range(3)  # kinds of gradients


class StepTensors:
    """Parameters that have a gradient, their states, and all tensors that a record of each points to."""

    __slots__ = ("gradients", "kinds", "parameters", "pointed", "row_states", "states")

    def __init__(self) -> None:
        self.kinds: list[int] = []  # of all parameters' gradients
        self.parameters: list[Tensor] = []
        self.states: list[State] = []
        self.pointed: list[Any] = []  # in the order of their words; None for one that is not there
        self.gradients: list[RowSparseGradient] = []
        self.row_states: list[State] = []  # of the parameters with these gradients


def collect(
    parameters: Iterable[Tensor],
    states: Mapping[Tensor, State],
    moments: Sequence[str],
    of_rows: Sequence[str],
) -> StepTensors | None:
    """Return the tensors of a step, or None where a state has to change before the kernel can read it.

    moments, of_rows: names of a state's tensors in every record, and in that of a row-sparse gradient alone.
    """
    step = StepTensors()
    kinds, pointed = step.kinds, step.pointed
    for p in parameters:
        gradient = p.grad
        if gradient is None:
            kinds.append(NONE)
            continue
        state = states.get(p)
        if not state or type(state.get("step")) is not int:
            return None
        step.parameters.append(p)
        step.states.append(state)
        pointed.append(p)
        for name in moments:
            pointed.append(state.get(name))
        if type(gradient) is RowSparseGradient:
            parts = gradient._parts
            pointed += parts.indices, parts.rows
            for name in of_rows:
                pointed.append(state.get(name))
            step.gradients.append(gradient)
            step.row_states.append(state)
            kinds.append(ROW_SPARSE)
        else:
            for name in of_rows:
                if name in state:
                    return None
            pointed.append(gradient)
            kinds.append(DENSE)
    return step


class Plan:
    """Records of a step and layouts of its tensors, for later steps with the same kinds of gradients."""

    def __init__(self, step: StepTensors, records: Sequence[int], moments: int, of_rows: int):
        self._records = array("q", records)
        self._words: list[int] = []  # of `pointed`
        self._row_sparse: list[int] = []  # the first words of their records
        lengths = []
        for at, kind in enumerate(kind for kind in step.kinds if kind != NONE):
            first = at * WIDTH
            words = [WEIGHT, FIRST, SECOND][: 1 + moments]
            if kind == ROW_SPARSE:
                lengths += [len(self._words) + len(words), len(self._words) + len(words) + 1]
                words += [INDICES, ROWS, LAST_STEP][: 2 + of_rows]
                self._row_sparse.append(first)
            else:
                words.append(GRAD)
            self._words += [first + word for word in words]
        self._steps = range(STEP, len(records), WIDTH)
        self._layouts = Layouts(step.pointed, lengths, step.gradients)

    @classmethod
    def of(cls, step: StepTensors, records: Sequence[int], moments: int, of_rows: int) -> "Plan | None":
        """Return a plan, or None if the records point to other tensors, which replaced some of the step's."""
        if any(tensor is None for tensor in step.pointed):
            return None
        plan = cls(step, records, moments, of_rows)
        pointers = [tensor.data_ptr() for tensor in step.pointed]
        return plan if pointers == [records[word] for word in plan._words] else None

    def records(self, step: StepTensors) -> array | None:
        """Return the records of a step, or None if a tensor has another layout."""
        addresses = self._layouts.addresses(step.pointed, step.gradients)
        if addresses is None:
            return None
        records = self._records[:]
        for word, address in zip(self._words, addresses, strict=True):
            records[word] = address
        for word, state in zip(self._steps, step.states, strict=True):
            records[word] = state["step"] + 1
        for first, gradient in zip(self._row_sparse, step.gradients, strict=True):
            parts: Any = gradient._parts  # whose indices and rows are among the tensors of these layouts
            records[first + U] = u = parts.rows.size(0)
            if parts.indices.size(0) != u:
                return None
        return records
