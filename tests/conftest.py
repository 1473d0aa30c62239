"""One thread a worker, whatever the machine: the suite is parallel by processes."""

import os

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
