"""The k largest entries of many rows, as a matrix with zeros elsewhere or as a list.

Letters: R rows, F their width, k kept.
"""

import numpy as np

from .compile import kernel
from .select import FIRST_DISTANCE, INFINITE, LANES, largest_magnitude, top_k


@kernel
def scratch(width):
    """A row of zeros in whole lanes, and what top_k needs besides."""
    lanes = (width + LANES - 1) // LANES * LANES
    padded = lanes + LANES
    return (
        np.zeros(lanes, np.float32),
        np.empty(padded, np.int32),
        np.zeros(padded, np.int32),
        np.empty(padded, np.int32),
    )


@kernel
def keep_largest(v, k, out):
    """out (R, F) = v with all but the k largest magnitudes of each row set to zero, ties to the lowest index.

    A row that holds a NaN or an infinity is copied as it is, for the caller to find it.
    """
    width = v.shape[1]
    row, candidates, magnitudes, kept = scratch(width)
    bits, distance = row.view(np.int32), np.int64(FIRST_DISTANCE)
    for r in range(len(v)):
        to, of = out[r], v[r]
        for f in range(width):
            row[f], to[f] = of[f], 0
        largest = largest_magnitude(bits)
        if largest >= INFINITE:
            for f in range(width):
                to[f] = of[f]
            continue
        count, distance = top_k(bits, bits.size, k, largest, distance, candidates, magnitudes, kept)
        for q in range(count):
            to[kept[q]] = of[kept[q]]


@kernel
def keep_entries(k, gamma, v, m, place, values, maps, places, m_next):
    """The k largest of each row of v + m (R, F) as entries; returns how many, or -1 if a row is not finite.

    m (F) is a shared memory, and m_next (F) gamma times the mean of what the rows leave.
    """
    width, found = v.shape[1], 0
    row, candidates, magnitudes, kept = scratch(width)
    bits, distance = row.view(np.int32), np.int64(FIRST_DISTANCE)
    left = np.zeros(width, np.float32)
    for r in range(len(v)):
        of = v[r]
        for f in range(width):
            row[f] = of[f] + m[f]
        largest = largest_magnitude(bits)
        if largest >= INFINITE:
            return -1
        count, distance = top_k(bits, bits.size, k, largest, distance, candidates, magnitudes, kept)
        for q in range(count):
            f = kept[q]
            values[found], maps[found], places[found] = row[f], f, place[r]
            row[f] = 0
            found += 1
        for f in range(width):
            left[f] += row[f]
    for f in range(width):
        m_next[f] = np.float32(gamma / len(v)) * left[f]
    return found
