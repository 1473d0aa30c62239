"""Every test of the optimizers starts from the same seed and leaves torch's generator as it found it."""

import pytest
import torch


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
