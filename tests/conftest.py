"""One thread a worker, whatever the machine: the suite is parallel by processes."""

import os

import pytest

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")


@pytest.fixture(scope="session")
def unprivileged() -> list[str]:
    """The start of a command line that runs without root's right to write anywhere."""
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
