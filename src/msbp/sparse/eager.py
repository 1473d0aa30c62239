"""What becomes of converted layers under torch's tools that look into a forward pass rather than run it."""

import functools
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._C import _get_tracing_state as jit_tracing
from torch._C._functorch import peek_interpreter_stack as transforming

frames: Any = torch._C._dynamo.eval_frame


def eager(function: Callable) -> Any:
    """The function as torch.compile finds it: not looked into, and run as it is.

    torch.compiler.disable would do so, too, but takes seconds to import.
    """

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        compiler = frames.set_eval_frame(None)
        if compiler is None:
            return function(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        finally:
            frames.set_eval_frame(compiler)

    known: Any = run
    _skip(known.__code__)
    known._torchdynamo_disable, known._torchdynamo_disable_msg = True, "its backward pass is its own"
    return run


def _skip(code: CodeType) -> None:
    if not hasattr(frames, "set_code_exec_strategy"):
        frames.skip_code(code)  # torch 2.6
        return
    act = frames._FrameAction
    frames.set_code_exec_strategy(code, frames._FrameExecStrategy(act.SKIP, act.DEFAULT))


class Converted(nn.Module):
    """What layers share that stand for one of torch's, `plain`; it goes before that in the list of bases.

    torch.compile and torch.fx call them and leave it at that; torch.jit.trace and a vmap without gradients
    take the plain forward pass; torch.jit.script and gradients by torch.func are refused.
    """

    plain: type[nn.Module]

    def __prepare_scriptable__(self) -> nn.Module:
        raise RuntimeError(
            f"torch.jit.script cannot compile a {type(self).__name__}: load the weights into a model that is "
            "not converted and script that, or use torch.jit.trace"
        )

    def _instead(self, x: Any, *others: Any, **named: Any) -> Any:
        """What one of these tools gets for the output."""
        if isinstance(x, fx.Proxy) and x.tracer.root is not self:  # type: ignore[attr-defined]
            path: Any = x.tracer.path_of_module(self)  # type: ignore[attr-defined]
            return x.tracer.create_proxy("call_module", path, (x, *others), named)
        if transforming() is not None and torch.is_grad_enabled():
            raise RuntimeError(
                f"torch.func takes no gradients of a {type(self).__name__}, whose backward pass is its own: "
                "use backward() or torch.autograd.grad, and put torch.no_grad() around a vmap"
            )
        return self.plain.forward(self, x, *others, **named)


def not_finite(layer: nn.Module, step: int | None = None) -> FloatingPointError:
    """The error for a gradient that is NaN or infinite in a backward pass, the one of `step` if it counts."""
    at = "" if step is None else f", step {step}"
    return FloatingPointError(
        f"the gradient of layer {layer.name or layer} is NaN or infinite in its backward pass{at}; nothing "
        "of it was kept: the learning rate is too high, or the data hold bad values"
    )


def eager_forward(forward: Callable) -> Any:
    """The same for the forward pass of a Converted."""

    @functools.wraps(forward)
    def run(self: Any, input: Any, *others: Any, **named: Any) -> Any:  # named as torch's layers have it
        looked_into = jit_tracing() is not None or transforming() is not None
        if looked_into or (type(input) is not Tensor and isinstance(input, fx.Proxy)):
            return self._instead(input, *others, **named)
        return forward(self, input, *others, **named)

    return eager(run)
