"""CPU kernels in numba: float32, addresses and sizes in, so a call costs a fraction of a microsecond."""
