"""A plain network and its twin that keeps every entry, so that the plain one gives the expected numbers.

Letters: B batch, i in_features, n out_features, c classes.
"""

import copy

import pytest
import torch

from msbp.sparse import convert, fuse

from .problems import mlp

B, i, n, c = 6, 10, 16, 3
FULL = {"convert": lambda model: convert(model, r=1.0), "fuse": fuse}
each_full = pytest.mark.parametrize("install", FULL.values(), ids=FULL)


def batch(dtype=torch.float32):
    return torch.randn(B, i, dtype=dtype), torch.randint(c, (B,))


def pair(install, dtype=torch.float32, **kwargs):
    plain = mlp(i, n, n, c, dtype=dtype, **kwargs)
    model = copy.deepcopy(plain)
    install(model)
    return model, plain
