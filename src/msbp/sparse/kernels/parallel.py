"""Loops in parts, on the threads of torch's own OpenMP library.

torch's operators and its BLAS run on the same threads, so that a step never has more of them than
`torch.get_num_threads()`, and a loop finds them awake. A part writes what no other part reads or writes, by
the same instructions in the same order whichever thread has it: results do not depend on the number of
threads.
"""

import ctypes
import os
import platform
from pathlib import Path

import llvmlite.binding
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing import Signature
from numba.extending import intrinsic

from .compile import kernel
from .simd import I32, I64

ENOUGH = 1 << 15  # of a loop's work, in floats read: below it, about 10 µs, a second thread gains nothing
PARTS = 4  # of a loop for each thread: they are claimed one by one, by whoever is free
LINE = 16  # floats of a cache line
SYMBOL = "msbp_openmp_parallel"


def find_openmp() -> int:
    """Return the address of the OpenMP library's GOMP_parallel that torch's operators call, or 0.

    GNU's, LLVM's and Intel's have it, on Linux.
    """
    for library in sorted((Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*")):
        try:
            return ctypes.cast(ctypes.CDLL(str(library)).GOMP_parallel, ctypes.c_void_p).value or 0
        except (AttributeError, OSError):
            continue
    return 0


OPENMP = find_openmp() if "parallel backend: OpenMP" in torch.__config__.parallel_info() else 0
# compiled kernels name it, so that it needs some address
llvmlite.binding.add_symbol(SYMBOL, OPENMP or ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value)
_forked = False


def _after_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_after_fork)


def threads() -> int:
    """Return how many threads kernels may use: torch's, but one in a forked process, which has no others."""
    return torch.get_num_threads() if OPENMP and not _forked else 1


@kernel
def parts_of(threads, units, work):
    """Return into how many parts to divide a loop over `units` that reads about `work` floats."""
    return 1 if threads == 1 or work < ENOUGH else max(1, min(units, threads * PARTS))


@kernel
def share(part, parts, size, unit):
    """Return start and end of one part of `size`, in whole units but for the end."""
    units = (size + unit - 1) // unit
    return min(size, units * part // parts * unit), min(size, units * (part + 1) // parts * unit)


@intrinsic
def spread(typing, body, job, parts, threads):
    """Call body(job, part, parts), a kernel, for each part, on so many threads; job is a tuple.

    MemoryError if a part failed.
    """
    job = types.Tuple.from_types(tuple(types.unliteral(kind) for kind in job))
    called = body.get_call_type(typing, (job, types.int64, types.int64), {})

    def build(context, b: ir.IRBuilder, signature: Signature, args):
        _, values, parts, threads = args
        content = context.get_value_type(job)
        shared = ir.LiteralStructType([I64, I64, I32, I32, content])  # next part, parts, mode, failed, job
        compiled = body.dispatcher.overloads[called.args]
        context.active_code_library.add_linking_library(compiled.library)
        work = _claim_parts(context, b.module, shared, compiled.fndesc, called)
        state = cgutils.alloca_once(b, shared)
        mode = b.load(_rounding(b, b.module, "st")) if X86 else I32(0)
        for index, value in enumerate((I64(0), parts, mode, I32(0), values)):
            b.store(value, cgutils.gep_inbounds(b, state, 0, index))
        address = b.bitcast(state, cgutils.voidptr_t)
        several = b.and_(b.icmp_signed(">", threads, I64(1)), b.icmp_signed(">", parts, I64(1)))
        with b.if_else(several) as (then, otherwise):
            with then:
                pointer, kind = cgutils.voidptr_t, ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t])
                library = ir.FunctionType(ir.VoidType(), [kind.as_pointer(), pointer, I32, I32])
                run = cgutils.get_or_insert_function(b.module, library, SYMBOL)
                b.call(run, [work, address, b.trunc(threads, I32), I32(0)])
            with otherwise:
                b.call(work, [address])
        failed = b.load(cgutils.gep_inbounds(b, state, 0, 3))
        with cgutils.if_unlikely(b, b.icmp_signed("!=", failed, I32(0))):
            context.call_conv.return_user_exc(b, MemoryError, ("a kernel ran out of memory",))
        return context.get_dummy_value()

    return types.void(body, job, types.int64, types.int64), build


def _claim_parts(context, module: ir.Module, shared: ir.Type, body, called: Signature) -> ir.Function:
    """Return a function that calls the body for parts that nobody has claimed, until there are none.

    It has the rounding and the treatment of subnormal numbers of the thread that began the loop.
    """
    kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t])
    function = ir.Function(module, kind, module.get_unique_name("claim_parts"))
    function.linkage = "internal"
    b = ir.IRBuilder(function.append_basic_block("entry"))
    state = b.bitcast(function.args[0], shared.as_pointer())
    following, parts, mode, failed, job = (cgutils.gep_inbounds(b, state, 0, index) for index in range(5))
    before = _rounding(b, module, "st") if X86 else None
    if X86:
        _rounding(b, module, "ld", mode)
    count, values = b.load(parts), b.load(job)
    claim, work, done = (function.append_basic_block(name) for name in ("claim", "work", "done"))
    b.branch(claim)
    b.position_at_end(claim)
    part = b.atomic_rmw("add", following, I64(1), "monotonic")
    b.cbranch(b.icmp_signed("<", part, count), work, done)
    b.position_at_end(work)
    status, _ = context.call_internal_no_propagate(b, body, called, [values, part, count])
    with cgutils.if_unlikely(b, status.is_error):
        b.store(I32(1), failed)
    b.branch(claim)
    b.position_at_end(done)
    if X86:
        _rounding(b, module, "ld", before)
    b.ret_void()
    return function


X86 = platform.machine().lower() in ("x86_64", "amd64")  # elsewhere threads have what they began with


def _rounding(b: ir.IRBuilder, module: ir.Module, access: str, where: ir.Value | None = None) -> ir.Value:
    """Store the control register of vector arithmetic, or load it; return where."""
    where = cgutils.alloca_once(b, I32) if where is None else where
    kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t])
    function = cgutils.get_or_insert_function(module, kind, f"llvm.x86.sse.{access}mxcsr")
    b.call(function, [b.bitcast(where, cgutils.voidptr_t)])
    return where
