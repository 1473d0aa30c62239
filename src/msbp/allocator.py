"""Tell glibc to keep freed memory; by itself it gives large blocks back and maps them anew at every step."""

import ctypes

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4  # malloc.h


def keep_freed_memory(top_pad: int = 64 << 20) -> bool:
    """Keep freed memory in this process from now on; False where the C library has no mallopt."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return all([mallopt(M_MMAP_MAX, 0), mallopt(M_TRIM_THRESHOLD, -1), mallopt(M_TOP_PAD, top_pad)])
