"""CPU kernels in numba for float32. Arguments are addresses and sizes: a call costs under a microsecond."""
