"""Every test of the sparse core starts from the same seed and restores the state of torch's generator."""

import pytest
import torch


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
