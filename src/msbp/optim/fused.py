"""An optimizer that updates all parameters of a group in one call of a kernel.

Letters: n rows of a parameter, u rows that have a gradient.
"""

from abc import abstractmethod
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..sparse.buffers import address, address_of, zero_pages
from ..sparse.row_sparse import RowSparseGradient
from ..sparse.torch_compat import OPTIMIZER_HOOKS, eager, profiling, set_grad_enabled
from .records import WIDTH, Plan, State, collect

Group = dict[str, Any]
Constants = tuple[float | np.ndarray, ...]  # of a group, for its kernel
MOST_PLANS = 64  # of all groups and kinds of gradients


class FusedOptimizer(torch.optim.Optimizer):
    """The step of one of torch's optimizers, which is the next base of a class that derives from this one.

    Row-sparse gradients are taken as they are. Parameters that the kernel does not support, and groups with
    options that it does not have, go through torch's own functions.
    """

    of_rows: tuple[str, ...] = ()  # names of the state tensors of a row-sparse gradient, besides the moments

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Return False: gradients are unscaled before the step, whatever torch's optimizer sets."""
        return False

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, value: bool) -> None:
        pass

    @eager
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update the parameters that have a gradient; return the closure's result, if there is one."""
        hooks = self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks, *OPTIMIZER_HOOKS
        if any(hooks) or profiling():
            return self._recorded_step(closure)
        return self._plain_step(closure)

    step.hooked = True  # torch would wrap it for hooks and profiler at every step

    def _plain_step(self, closure: Callable[[], float] | None = None) -> float | None:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        before = torch.is_grad_enabled()
        set_grad_enabled(False)
        try:
            for group in self.param_groups:
                self._update_group(group)
        finally:
            set_grad_enabled(before)
        return loss

    _recorded_step = torch.optim.Optimizer.profile_hook_step(_plain_step)

    @eager
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all gradients, or set them to zero."""
        if not set_to_none:
            super().zero_grad(set_to_none=False)
            return
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    def load_state_dict(self, state_dict: State) -> None:
        """Load a state, also of torch's own optimizer; ValueError if that has an option that is not here."""
        for group in state_dict["param_groups"]:
            self._check(group)
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)
        for state in self.state.values():
            state["step"] = int(state.get("step", 0))
            for name in [name for name, value in state.items() if value is None]:
                del state[name]  # as torch's SGD has a momentum_buffer without momentum

    @eager
    def add_param_group(self, param_group: Group) -> None:
        self._check(self.defaults | param_group)
        add: Any = super().add_param_group
        if hasattr(add, "__wrapped__"):  # torch's wrapper does as `eager`, but imports the compiler, a second
            add = partial(add.__wrapped__, self)
        add(param_group)
        group = self.param_groups[-1]["params"]
        if len({*map(id, group)}) < len(group):
            self.param_groups.pop()
            raise ValueError("a parameter is in its group more than once, and would be updated as often")

    def _check(self, group: Group) -> None:
        """Raise ValueError for options with another meaning than speed that no step here has."""
        for name in ("capturable", "differentiable"):
            if group.get(name):
                raise ValueError(
                    f"msbp.optim.{type(self).__name__} has no {name}=True: use torch.optim."
                    f"{type(self).__name__}, which takes the gradients of converted layers as well"
                )

    def settle(self) -> None:
        """Bring all state up to date, for another optimizer to go on with."""

    def _update_group(self, group: Group) -> None:
        moments = self._moments(group) if self._has_kernel(group) else None
        step = None
        if moments is not None and self._takes_rows(group):
            step = collect(group["params"], self.state, moments, self.of_rows)
        if moments is None or step is None:
            self._update_each(group, moments)
            return
        plans: dict[object, Plan] = self.__dict__.setdefault("_plans", {})
        key = id(group), moments, *step.kinds
        plan = plans.get(key)
        records = None if plan is None else plan.records(step)
        if records is not None:
            for state in step.row_states:
                self._check_row_state(state, group)
            self._run(group, records, step.parameters, step.states)
            return
        records = self._update_each(group, moments)
        if len(records) == WIDTH * len(step.parameters):
            plan = Plan.of(step, records, len(moments), len(self.of_rows))
            if plan is not None:
                if len(plans) >= MOST_PLANS:
                    plans.clear()
                plans[key] = plan

    def _update_each(self, group: Group, moments: tuple[str, ...] | None) -> array:
        """Check and update each parameter; return the records of those that went through the kernel."""
        records = array("q")
        held: list[object] = []  # tensors of the records, should another thread replace one in the state
        updated: list[Tensor] = []
        states: list[State] = []
        for p in group["params"]:
            gradient = p.grad
            if gradient is None:
                continue
            shape = p.shape
            if gradient.shape != shape:
                raise mismatch("gradient", gradient.shape, shape)
            state = self.state[p]
            state["step"] = int(state.get("step", 0))
            record = None
            if moments is not None:
                record = self._record(p, shape, gradient, state, moments, group, held)
            if record is None:
                self._update_in_torch(p, gradient, state, group)
                state["step"] += 1
            else:
                records.extend(record)
                updated.append(p)
                states.append(state)
        if updated:
            self._run(group, records, updated, states)
        return records

    def _run(self, group: Group, records: array, parameters: list[Tensor], states: list[State]) -> None:
        """Update parameters by kernel."""
        constants = self._constants(group)
        for state in states:  # before the kernel, which fills the cache with other data
            state["step"] += 1
        torch.autograd.graph.increment_version(parameters)  # torch does not see what a kernel writes
        self._call(records.buffer_info()[0], len(parameters), constants)

    def _record(
        self,
        p: Tensor,
        shape: torch.Size,
        gradient: Tensor,
        state: State,
        moments: tuple[str, ...],
        group: Group,
        held: list[object],
    ) -> tuple[int, ...] | None:
        """Return a record of the kernel's table, or None where the parameter has to go through plain torch.

        RuntimeError names a state tensor that does not fit the parameter. held: gets the tensors.
        """
        step = state["step"] + 1
        addresses = [address_of(p, shape), 0, 0]
        if not addresses[0]:
            return None
        for index, moment in enumerate(moments, 1):
            tensor = state.get(moment)
            if tensor is None:
                of_rows = type(gradient) is RowSparseGradient and gradient.parts() is not None
                tensor = state[moment] = zero_pages(*shape) if of_rows else torch.zeros_like(p)
            held.append(tensor)
            addresses[index] = address_of(tensor, shape)
            if not addresses[index]:
                if tensor.shape != shape:
                    raise mismatch(f"state {moment!r}", tensor.shape, shape)
                return None
        if type(gradient) is RowSparseGradient:
            parts = gradient.parts() if self._takes_rows(group) else None
            if parts is not None:
                indices, rows = parts
                n, (u, i) = shape[0], rows.shape
                last_step = self._last_step(state, n, group)
                if not u:
                    rows = rows.new_zeros(1, i)  # no rows, but an address
                where = address(indices, (u,), "indices", torch.int64), address(rows, rows.shape, "rows")
                held += p.data, indices, rows, last_step
                ages = 0 if last_step is None else last_step.data_ptr()
                return *addresses, 0, *where, ages, n, i, u, step
            gradient = gradient.to_dense()
        pointer = address_of(gradient, shape)
        if not pointer:
            return None
        held += p.data, gradient
        self._to_dense(p, state, group)
        return *addresses, pointer, 0, 0, 0, 1, p.numel(), 0, step

    def _update_in_torch(self, p: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        if isinstance(gradient, RowSparseGradient):
            gradient = gradient.to_dense()
        if gradient.layout is not torch.strided:
            raise RuntimeError(f"{type(self).__name__} takes no sparse tensors as gradients")
        self._to_dense(p, state, group)
        self._update(p, gradient, state, group)

    def _last_step(self, state: State, n: int, group: Group) -> Tensor | None:
        """Return the step (n, int32) that each row's state belongs to, checked; None if there is none."""
        return None

    def _check_row_state(self, state: State, group: Group) -> None:
        """Raise RuntimeError if a state with rows that have yet to decay was changed."""

    def _to_dense(self, p: Tensor, state: State, group: Group) -> None:
        """Bring all rows' state up to the present step, for a dense update."""

    def _takes_rows(self, group: Group) -> bool:
        """Return whether this step leaves the state of rows without gradient for later."""
        return True

    @abstractmethod
    def _moments(self, group: Group) -> tuple[str, ...]:
        """Return the names of the state tensors that the kernel calls first and second."""

    @abstractmethod
    def _has_kernel(self, group: Group) -> bool:
        """Return whether the kernel has all options of a group."""

    @abstractmethod
    def _constants(self, group: Group) -> Constants:
        """Return the numbers of a group that the kernel takes."""

    @abstractmethod
    def _call(self, table: int, count: int, constants: Constants) -> None:
        """Update the parameters in the table at this address."""

    @abstractmethod
    def _update(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        """Update one parameter by torch's function for this optimizer."""


def mismatch(name: str, got: torch.Size, wanted: torch.Size) -> RuntimeError:
    """Return the error for a tensor of a shape that does not fit the parameter's."""
    return RuntimeError(
        f"{name} of a parameter has shape {tuple(got)} and must have {tuple(wanted)}: where a parameter is "
        "replaced or resized, zero its gradient and resize its whole state alike (after optimizer.settle()), "
        "or give it a new optimizer"
    )
