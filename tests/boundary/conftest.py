"""Every test starts from the same seed and leaves torch's generator and defaults as they were."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
