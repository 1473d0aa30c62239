"""Private names of torch, each with its reason and a fallback; the base class of converted layers, which
keeps them right under torch's compilers and tracers.
"""

import ctypes
import functools
import pkgutil
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any, Protocol

import torch
from numba.extending import get_cython_function_address
from torch import Tensor, fx, nn


def private(path: str, fallback: Any) -> Any:
    """Return torch's private object, as in "module:name", or the fallback in a torch that has none."""
    try:
        return pkgutil.resolve_name(path)
    except (AttributeError, ImportError):
        return fallback


# torch.jit.trace's state, or None: it has to record the plain layer.
jit_tracing = private("torch:_C._get_tracing_state", lambda: torch.jit.is_tracing() or None)
# The innermost transform of torch.func, or None: tensors inside are wrappers without memory of their own,
# whose address torch refuses to give.
transforming = private("torch:_C._functorch.peek_interpreter_stack", lambda: None)
# True for a tensor of several gradients at once, as of is_grads_batched=True: it has no memory of its own.
is_batched = private("torch:_C._functorch.is_legacy_batchedtensor", lambda x: False)
# The number of dispatch modes, such as of tracers and of tensors without data.
dispatch_modes = private("torch:_C._len_torch_dispatch_stack", int)
# True while torch.export is at work: it must record the plain layer, too. in torch 2.6 it is less exact.
exporting = private("torch:compiler.is_exporting", torch.compiler.is_compiling)
# True if an optimizer's step has to be recorded; the public profiler classes take microseconds to query.
profiling = private("torch:autograd._profiler_enabled", lambda: True)
# True if autocast is on for any device: a query without arguments, as it is made in every pass.
autocast_anywhere = private("torch:_C._is_any_autocast_enabled", lambda: True)
# Sets whether gradients are recorded, at a tenth of the time that torch.no_grad takes.
set_grad_enabled = private("torch:_C._set_grad_enabled", torch.set_grad_enabled)
# Compares type, dtype, device, layout, sizes and strides of several tensors with those that it was made of,
# in a tenth of the time that reading these attributes takes. None: they are read each time.
TENSOR_GUARDS = private("torch:_C._dynamo.guards.TensorGuards", None)
# Hooks on all modules and on all optimizers: where there are any, or torch does not say, modules and steps
# are run one by one.
UNKNOWN = {"unknown": None}
MODULE_HOOKS = [
    private("torch.nn.modules.module:_global_forward_hooks", UNKNOWN),
    private("torch.nn.modules.module:_global_forward_pre_hooks", UNKNOWN),
    private("torch.nn.modules.module:_global_backward_hooks", UNKNOWN),
    private("torch.nn.modules.module:_global_backward_pre_hooks", UNKNOWN),
]
OPTIMIZER_HOOKS = [
    private("torch.optim.optimizer:_global_optimizer_pre_hooks", UNKNOWN),
    private("torch.optim.optimizer:_global_optimizer_post_hooks", UNKNOWN),
]
# The frame evaluation of torch.compile, which skips the functions of `eager`.
_frames = private("torch:_C._dynamo.eval_frame", None)
# The innermost hooks on saved tensors, or None; torch 2.6 does not have it.
_top_saved_hooks = private("torch:_C._autograd._top_saved_tensors_default_hooks", None)


def saved_tensors_have_hooks() -> bool:
    """Return whether saved tensors pass through hooks at present, as in activation checkpointing."""
    if _top_saved_hooks is not None:
        return _top_saved_hooks(True) is not None
    try:  # forbidding them is public, takes a few microseconds longer, and fails where there are some
        with torch.autograd.graph.disable_saved_tensors_hooks("msbp queries whether there are any"):
            return False
    except RuntimeError:
        return True


def sgemm_address() -> int:
    """Return the address of sgemm, or 0: torch's own, which obeys set_num_threads, else scipy's."""
    for library in sorted((Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*")):
        try:
            return ctypes.cast(ctypes.CDLL(str(library)).sgemm_, ctypes.c_void_p).value or 0
        except (AttributeError, OSError):
            continue
    try:
        return get_cython_function_address("scipy.linalg.cython_blas", "sgemm")
    except (ImportError, ValueError):
        return 0


SGEMM = sgemm_address()


def eager(function: Callable) -> Any:
    """Return the function as torch.compile leaves it alone: neither traced into nor changed.

    torch.compiler.disable does the same, but takes seconds to import: it is the fallback.
    """
    skips = hasattr(_frames, "set_code_exec_strategy") or hasattr(_frames, "skip_code")
    if not skips or not hasattr(_frames, "set_eval_frame"):
        return torch.compiler.disable(function)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        compiler = _frames.set_eval_frame(None)
        if compiler is None:
            return function(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        finally:
            _frames.set_eval_frame(compiler)

    known: Any = run
    _skip(known.__code__)
    known._torchdynamo_disable, known._torchdynamo_disable_msg = True, "its backward pass is its own"
    return run


def _skip(code: CodeType) -> None:
    if hasattr(_frames, "set_code_exec_strategy"):
        act = _frames._FrameAction
        _frames.set_code_exec_strategy(code, _frames._FrameExecStrategy(act.SKIP, act.DEFAULT))
    else:  # torch 2.6
        _frames.skip_code(code)


class Context(Protocol):
    """The `ctx` of an autograd function, with what torch sets on it."""

    saved_tensors: tuple[Any, ...]  # tensors, some with attributes of our own
    needs_input_grad: tuple[bool, ...]

    def save_for_backward(self, *tensors: Tensor | None) -> None: ...


def node_class(function: Any) -> Any:
    """Return the class of the graph nodes of an autograd function, whose `hooked` says if one has hooks."""
    node = function._backward_cls
    node.hooked = False

    def marking(register: Callable) -> Callable:
        @functools.wraps(register)
        def marked(self: Any, hook: Callable) -> Any:
            self.hooked = True
            return register(self, hook)

        return marked

    for name in ("register_hook", "register_prehook"):
        setattr(node, name, marking(getattr(node, name)))
    return node


class Converted(nn.Module):
    """A layer that stands for one of torch's, `plain`; it goes before that in the list of bases.

    torch.compile and torch.fx call it as a whole; torch.export, torch.jit.trace and a vmap without gradients
    take the plain forward pass; torch.jit.script and gradients by torch.func are refused.
    """

    plain: type[nn.Module]
    own_state: tuple[str, ...] = ()  # attributes that plain does not have

    def __prepare_scriptable__(self) -> nn.Module:
        raise RuntimeError(
            f"torch.jit.script cannot compile a {type(self).__name__}: call msbp.sparse.revert(model) first, "
            "or use torch.jit.trace"
        )

    def revert(self) -> None:
        """Turn into the plain layer in place: the same object, parameters, hooks and keys."""
        for name in self.own_state:
            self.__dict__.pop(name, None)
            self._modules.pop(name, None)
        self.__class__ = self.plain  # type: ignore[assignment]

    def _instead(self, x: Any, *others: Any, **named: Any) -> Any:
        """Return the output for a tracer or transform."""
        if isinstance(x, fx.Proxy) and x.tracer.root is not self:  # type: ignore[attr-defined]
            path: Any = x.tracer.path_of_module(self)  # type: ignore[attr-defined]
            return x.tracer.create_proxy("call_module", path, (x, *others), named)
        if transforming() is not None and torch.is_grad_enabled():
            raise RuntimeError(
                f"torch.func takes no gradients of a {type(self).__name__}, whose backward pass is its own: "
                "use backward() or torch.autograd.grad, and put torch.no_grad() around a vmap"
            )
        return self.plain.forward(self, x, *others, **named)


def eager_forward(forward: Callable) -> Any:
    """Return the forward pass of a Converted as `eager` does, with the plain one for torch's tracers."""

    @functools.wraps(forward)
    def run(self: Any, input: Any, *others: Any, **named: Any) -> Any:  # the name in torch's layers
        traced = jit_tracing() is not None or transforming() is not None
        if traced or (type(input) is not Tensor and (isinstance(input, fx.Proxy) or exporting())):
            return self._instead(input, *others, **named)
        return forward(self, input, *others, **named)

    return eager(run)
