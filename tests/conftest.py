"""One thread a worker, whatever the machine: the suite is parallel by processes."""

import logging
import os
import re
from collections.abc import Iterator

import pytest
import torch
from forked import Commands

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # of processes that tests start
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def unprivileged() -> list[str]:
    """The start of a command line that runs without root's right to write anywhere."""
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Runs `python -m src.train` as processes: one import for all of them."""
    server = Commands(tmp_path_factory.mktemp("commands"))
    yield server
    server.close()


@pytest.fixture(autouse=True)
def narrow_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `convert` take the small layers of small tests by default."""
    monkeypatch.setattr("msbp.sparse.layers.MIN_WIDTH", 1)


@pytest.fixture(autouse=True)
def subnormal_numbers() -> Iterator[None]:
    """Restore subnormal numbers, which runs flush to zero for the whole process."""
    yield
    torch.set_flush_denormal(False)


@pytest.fixture(autouse=True)
def log_handlers() -> Iterator[None]:
    """Remove the handlers that Hydra adds to the root logger for the whole process."""
    root = logging.getLogger()
    before = list(root.handlers)
    yield
    for handler in list(root.handlers):
        if handler not in before and not type(handler).__module__.startswith("_pytest"):
            root.removeHandler(handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse names of tests with an address, which would differ between the processes of pytest-xdist."""
    for item in items:
        if re.search(r"\bat 0x[0-9a-f]+", item.nodeid):
            raise pytest.UsageError(f"{item.nodeid} has an address in its name: give the parameter an id")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their argument: compressed data may differ from one worker to the next."""
    return argname if isinstance(val, bytes) else None
