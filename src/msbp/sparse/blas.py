"""The address of a BLAS sgemm for the kernels: torch's own, else the one numba knows through scipy."""

import ctypes
from pathlib import Path

import torch
from numba.extending import get_cython_function_address


def sgemm_address() -> int:
    """Where sgemm is, or 0 if there is none. Torch's obeys torch.set_num_threads."""
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
