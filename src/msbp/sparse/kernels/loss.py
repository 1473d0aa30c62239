"""Mean cross entropy and its gradient in one pass."""

import math

import numpy as np

from .compile import kernel
from .intrinsics import floats, longs


@kernel
def cross_entropy(logits, target, grad, loss, B, C):
    """Write the mean cross entropy to loss and its gradient at the logits (B, C) to grad; False if a target is none.

    logits and grad are float32, target (B) is int64.
    """
    Z, y, P = floats(logits, (B, C)), longs(target, B), floats(grad, (B, C))
    for b in range(B):
        if not 0 <= y[b] < C:
            return False
    mean, share = 0.0, np.float32(1 / B)
    for b in range(B):
        z, p = Z[b], P[b]
        top = z[0]
        for c in range(1, C):
            top = max(top, z[c])
        total = np.float32(0)
        for c in range(C):
            p[c] = math.exp(z[c] - top)
            total += p[c]
        mean += math.log(total) - (z[y[b]] - top)
        for c in range(C):
            p[c] *= share / total
        p[y[b]] -= share
    floats(loss, 1)[0] = mean / B
    return True
