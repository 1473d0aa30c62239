"""Exact top-k of one row by a threshold on the bits of its magnitudes.

A float's bits without the sign order like its magnitude, so thresholds are integers. The search starts
from how far below the largest magnitude the last row's threshold lay; rows of one layer resemble each
other.
"""

import numpy as np

from .compile import kernel
from .simd import lowest, ones, reaches

MAGNITUDE = np.int32(0x7FFFFFFF)
INFINITE = np.int32(0x7F800000)  # and above: NaN
LANES = 32  # scratch is a multiple of this
FIRST_DISTANCE = 2 << 23  # two octaves below the largest magnitude, until a row has told better
SLACK = 24  # candidates beyond 2k that are sifted rather than searched for again
QUARTER_OCTAVE = 1 << 21


@kernel
def largest_magnitude(bits):
    """The bits of the largest magnitude."""
    largest = np.int32(0)
    for j in range(bits.size):
        largest = max(largest, np.int32(bits[j] & MAGNITUDE))
    return np.int64(largest)


@kernel
def count_reaching(bits, lanes, threshold):
    count = 0
    for i in range(0, lanes, LANES):
        count += ones(reaches(bits, i, np.int32(threshold)))
    return count


@kernel
def find_threshold(bits, lanes, k, largest, distance):
    """A threshold that k to 2k + 24 entries reach, or the lowest one (1), or one where many tie."""
    low, high, step = 1, largest + 1, QUARTER_OCTAVE
    t = max(1, largest - distance)
    count = count_reaching(bits, lanes, t)
    while not k <= count <= 2 * k + SLACK and not (count < k and t == 1):
        if count < k:
            high = t
        else:
            low = t
        if high - low <= 1:
            return low
        open_ended = low == 1 if count < k else high == largest + 1
        t = (t - step if count < k else t + step) if open_ended else low + (high - low) // 2
        step *= 2
        if not low < t < high:
            t = low + (high - low) // 2
        count = count_reaching(bits, lanes, t)
    return t


@kernel
def gather_candidates(bits, lanes, threshold, candidates, magnitudes):
    """Ascending indices of the entries that reach the threshold, and their magnitudes padded with zeros."""
    found = 0
    for i in range(0, lanes, LANES):
        word = reaches(bits, i, np.int32(threshold))
        while word:  # faster than spreading every byte by a table
            j = i + lowest(word)
            candidates[found], magnitudes[found] = j, bits[j] & MAGNITUDE
            word &= word - 1
            found += 1
    for q in range(found, (found + LANES - 1) // LANES * LANES):
        magnitudes[q] = 0
    return found


@kernel
def top_k(bits, lanes, k, largest, distance, candidates, magnitudes, kept):
    """Write the ascending indices of the k largest magnitudes to kept, ties to the lowest; zeros are
    never kept.

    bits (lanes) holds the row, zero beyond its end. Returns how many were kept and the next distance.
    """
    low = find_threshold(bits, lanes, k, largest, distance)
    distance = largest - low
    found = gather_candidates(bits, lanes, low, candidates, magnitudes)
    padded, high, reached = (found + LANES - 1) // LANES * LANES, largest + 1, found
    while reached > k and high - low > 1:
        t = low + (high - low) // 2
        count = count_reaching(magnitudes, padded, t)
        if count >= k:
            low, reached = t, count
        else:
            high = t
    above = low if reached <= k else low + 1  # else entries tie for the last places
    ties, last = k - (count_reaching(magnitudes, padded, above) if reached > k else reached), np.int32(above)
    count = 0
    if reached <= k:
        for q in range(found):
            kept[count] = candidates[q]
            count += magnitudes[q] >= last
        return count, distance
    for q in range(found):
        tied = (magnitudes[q] == low) & (ties > 0)
        if (magnitudes[q] >= last) | tied:
            kept[count] = candidates[q]
            count += 1
            ties -= tied
    return count, distance
