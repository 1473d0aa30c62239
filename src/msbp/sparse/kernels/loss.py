"""Mean cross entropy and its gradient in one pass."""

import math

import numpy as np

from .compile import kernel
from .simd import bools, floats, longs


@kernel
def cross_entropy(logits, target, allowed, grad, loss, B, C):
    """Write the mean cross entropy to loss and its gradient at the logits (B, C) to grad; False if a
    target is none.

    logits and grad are float32, target (B) is int64, allowed (B, C) is bool or 0 for all.
    """
    y, P, A = longs(target, B), floats(grad, (B, C)), bools(allowed, (B, C))
    for b in range(B):
        if not 0 <= y[b] < C:
            return False
    mean, share = 0.0, np.float32(1 / B)
    for b in range(B):
        z, p, top = floats(logits + b * C * 4, C), P[b], np.float32(-np.inf)
        for c in range(C):
            p[c] = z[c] if not allowed or A[b, c] else np.float32(-np.inf)
            top = max(top, p[c])
        of_target = p[y[b]] - top
        total = np.float32(0)
        for c in range(C):
            p[c] = math.exp(p[c] - top)
            total += p[c]
        mean += math.log(total) - of_target
        for c in range(C):
            p[c] *= share / total
        if not allowed or A[b, y[b]]:  # what is not allowed has no gradient
            p[y[b]] -= share
    floats(loss, 1)[0] = mean / B
    return True
