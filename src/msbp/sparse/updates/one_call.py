"""An optimizer that enters all gradients into a table and updates every parameter in one call of a kernel."""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
import torch.optim.optimizer as torch_hooks
from torch import Tensor

from ..eager import eager
from ..factored import FactoredParameter, Factors, gradient_of
from .table import Table

Group = dict[str, Any]
State = dict[str, Any]
GLOBAL_HOOKS = torch_hooks._global_optimizer_pre_hooks, torch_hooks._global_optimizer_post_hooks


class OneCall(torch.optim.Optimizer):
    """Gradients that wait as factors are taken as they are; what no kernel suits goes through torch."""

    _tables: dict[int, Table]
    only: ClassVar[
        dict[str, Any]
    ] = {}  # what torch's own optimizer has more of, and the one value there is here

    def __init__(self, params: Iterable, defaults: dict[str, Any]):
        super().__init__(params, defaults | self.only)

    @eager
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters that have a gradient; return what the closure gave, if there is one."""
        hooks = self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks, *GLOBAL_HOOKS
        if any(hooks) or torch.autograd._profiler_enabled():
            return self._watched_step(closure)
        return self._plain_step(closure)

    step.hooked = True  # torch would wrap it for hooks and profiler at every step

    def _plain_step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                self._update_group(group)
        return loss

    _watched_step = torch.optim.Optimizer.profile_hook_step(_plain_step)

    @eager
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all gradients, or set them to zero."""
        if not set_to_none:
            super().zero_grad(set_to_none=False)
            return
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state, maybe of torch's own optimizer; ValueError if that does what is not here."""
        for group in state_dict["param_groups"]:
            self._check(group)
        super().load_state_dict(state_dict)
        self.__dict__.pop("_tables", None)
        for group in self.param_groups:
            group.update(self.only)
        for state in self.state.values():
            state["step"] = int(state.get("step", 0))
            for name in [name for name, value in state.items() if value is None]:
                del state[name]  # as torch's SGD has a momentum_buffer without momentum

    def add_param_group(self, param_group: Group) -> None:
        self._check(param_group)
        super().add_param_group(param_group)
        self.__dict__.pop("_tables", None)

    def _check(self, group: Group) -> None:
        for name, value in self.only.items():
            if group.get(name, value) != value:
                raise ValueError(
                    f"{type(self).__name__} has no {name}, got {group[name]}: use torch.optim's, which takes "
                    "the gradients of converted layers as well"
                )

    def settle(self) -> None:
        """Bring all state up to date, for another optimizer to go on with."""

    def _update_group(self, group: Group) -> None:
        table = self._table(group)
        table.clear()
        for at, p in enumerate(table.parameters):
            gradient = gradient_of(p) if type(p) is FactoredParameter else p.grad
            if gradient is None:
                continue
            state = self.state[p] or self._begin(p, group)
            if (type(gradient) is Factors) is not ("last_step" in state):
                self._turn(p, state, group)
            state["step"] += 1
            if not table.enter(at, gradient, state):
                self._update_in_torch(p, state, group)
        if table.entered:
            self._call(table, group)
            torch.autograd.graph.increment_version(table.entered)  # torch does not see what a kernel writes
            table.alive.clear()

    def _update_in_torch(self, p: Tensor, state: State, group: Group) -> None:
        grad: Any = p.grad
        if grad.layout is not torch.strided:
            raise RuntimeError(f"{type(self).__name__} takes no sparse tensors as gradients")
        if "last_step" in state:
            state["step"] -= 1
            self._turn(p, state, group)
            state["step"] += 1
        self._update(p, grad, state, group)

    def _table(self, group: Group) -> Table:
        tables = self.__dict__.setdefault("_tables", {})
        table, moments = tables.get(id(group)), self._moments(group)
        if table is None or not table.fits(group["params"], moments):
            table = tables[id(group)] = Table(group["params"], moments)
            for p in self.state.keys() & set(group["params"]):
                for moment in moments:
                    self.state[p].setdefault(moment, torch.zeros_like(p))
        return table

    def _begin(self, p: Tensor, group: Group) -> State:
        """The state of a parameter before its first step."""
        state = self.state[p]
        state.update({"step": 0} | {moment: torch.zeros_like(p) for moment in self._moments(group)})
        return state

    def _turn(self, p: Tensor, state: State, group: Group) -> None:
        """Make the state ready for factors after dense gradients, or the other way round."""

    @abstractmethod
    def _moments(self, group: Group) -> tuple[str, ...]:
        """Names of the state tensors."""

    @abstractmethod
    def _call(self, table: Table, group: Group) -> None:
        """Update what has been entered."""

    @abstractmethod
    def _update(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        """Update one parameter in plain torch."""
