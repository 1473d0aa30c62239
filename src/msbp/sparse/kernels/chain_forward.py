"""The forward pass of a chain: per stage a product of BLAS, then bias, activation and dropout in a sweep."""

import math

import numpy as np

from .compile import kernel
from .layout import CUBE, RELU, TANH, stage_table
from .simd import floats, product_nt, scramble
from .skip_zeros import product_of_used

WORD = 2**32
DEPTH_STEP = 0x9E3779B9  # as in dropout.py


@kernel
def drop_below(p):
    """Hashes below this are dropped; p = 1 keeps one in 2**32, whose scale is zero."""
    return np.uint32(min(p * WORD + 0.5, WORD - 1.0))


@kernel
def keep_scale(p):
    return np.float32(1 / (1 - p)) if p < 1 else np.float32(0)


@kernel
def relu(row, bias):
    for j in range(row.size):
        h = row[j] + bias[j]
        row[j] = np.float32(0) if h < 0 else h  # max(h, 0) would swallow a NaN


@kernel
def relu_dropout(row, bias, first, p, key):
    limit, scale = drop_below(p), keep_scale(p)
    for j in range(row.size):
        word = scramble(np.uint32(first + np.uint32(j)) ^ key)
        h = row[j] + bias[j]
        row[j] = np.float32(0) if h < 0 or word < limit else h * scale


@kernel
def activate(row, bias, slope, activation, first, p, key):
    """Any activation and dropout; slope becomes ∂z/∂h."""
    limit, scale = drop_below(p), keep_scale(p)
    for j in range(row.size):
        h = row[j] + bias[j]
        keep = np.float32(1)
        if p > 0:
            word = scramble(np.uint32(first + np.uint32(j)) ^ key)
            keep = np.float32(0) if word < limit else scale
        if activation == TANH:
            t = np.float32(math.tanh(h))
            row[j], slope[j] = t * keep, (1 - t * t) * keep
        elif activation == CUBE:
            row[j], slope[j] = h * h * h * keep, np.float32(3) * h * h * keep
        else:
            row[j], slope[j] = h * keep, keep


@kernel
def forward(table, count, B, key, sgemm, given):
    """Fill z (and slope) of every stage from x of the first; `given` stages have their product in z."""
    stages = stage_table(table, count)
    for depth in range(count):
        s = stages[depth]
        n = s.outputs
        by_columns = depth == 0 and not given and product_of_used(s.x, s.weight, s.z, B, n, s.inputs)
        if depth >= given and not by_columns:
            product_nt(sgemm, s.x, s.weight, s.z, B, n, s.inputs)
        z, bias, slope = floats(s.z, (B, n)), floats(s.bias, n), floats(s.slope, (B, n))
        stage_key = np.uint32(key + DEPTH_STEP * depth)
        for b in range(B):
            first = np.uint32(b * n)
            if s.activation == RELU and s.p == 0:
                relu(z[b], bias)
            elif s.activation == RELU:
                relu_dropout(z[b], bias, first, s.p, stage_key)
            elif s.slope:
                activate(z[b], bias, slope[b], s.activation, first, s.p, stage_key)
            else:
                row = z[b]
                for j in range(n):
                    row[j] += bias[j]
