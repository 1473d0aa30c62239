"""The method on one row: g ← top_k(∂ℓ/∂h + m) and m ← γ(∂ℓ/∂h + m − g), with an exact top-k.

Top-k goes by a threshold on the bits of the magnitudes: a float's bits without the sign order like its
magnitude, so thresholds are integers. The search starts at the last row's distance between the largest
magnitude and the threshold; rows of one layer resemble each other.
"""

import numpy as np

from .compile import kernel
from .simd import lowest, ones, reaches

MAGNITUDE = np.int32(0x7FFFFFFF)
INFINITE = np.int32(0x7F800000)  # and above: NaN
LANES = 32  # a row is zero beyond its end, up to a multiple of this
FIRST_DISTANCE = 2 << 23  # two octaves below the largest magnitude: the guess for the first row
GROUP = 4  # candidates that are listed at a time
LAST_LANE = 1 << 31  # where a word has no further bit
SLACK = 24  # candidates beyond 2k that are sifted rather than searched for again
QUARTER_OCTAVE = 1 << 21
NOT_FINITE = -1


@kernel
def whole_lanes(n):
    """Return n rounded up to a multiple of LANES."""
    return (n + LANES - 1) // LANES * LANES


@kernel
def search_size(n):
    """Return the size of one of top_k's work arrays: whole lanes, and room for zeros beyond the end."""
    return whole_lanes(n) + 2 * LANES


@kernel
def search_arrays(work, n):
    """Split work (3 · search_size(n), int32) into candidates, their magnitudes and the kept indices."""
    size = search_size(n)
    return work[:size], work[size : 2 * size], work[2 * size : 3 * size]


@kernel
def add(row, other):
    for c in range(row.size):
        row[c] += other[c]


@kernel
def sparsify(bits, m, gamma, m_next, accumulate, k, distance, search, values, columns, first):
    """Estimate one row ∂ℓ/∂h in place: g goes to values and columns (k, from `first` on), γ times the rest to
    the memory m_next.

    bits (whole lanes) are those of ∂ℓ/∂h, zero beyond its end; m and m_next are of its width, or of none
    without memory. accumulate: the rest adds to m_next, which several rows share. Return how many entries g
    has, or NOT_FINITE, and the next row's distance.
    """
    row = bits.view(np.float32)
    largest = carry(bits, m)  # ∂ℓ/∂h + m
    if largest >= INFINITE:
        return NOT_FINITE, distance
    count, distance = top_k(bits, k, largest, distance, search)
    move(row, search[2], count, values, columns, first)  # g ← top_k(∂ℓ/∂h + m), and the row becomes the rest
    remember(row, gamma, m_next, accumulate)  # m ← γ(∂ℓ/∂h + m − g)
    return count, distance


@kernel
def carry(bits, m):
    """Add the memory to a row; return the bits of its largest magnitude."""
    row = bits.view(np.float32)
    for j in range(m.size):
        row[j] += m[j]
    return largest_magnitude(bits)


@kernel
def move(row, kept, count, values, columns, first):
    """Move the kept entries out of a row: to values and, counted from `first`, columns; zeros behind them."""
    for q in range(count):
        j = kept[q]
        values[q], columns[q] = row[j], j + first
        row[j] = 0
    for q in range(count, values.size):  # fewer than k entries are not zero
        values[q], columns[q] = 0, first


@kernel
def remember(row, gamma, m_next, accumulate):
    """Store γ times the rest of a row as the next memory, or add it to a sum over rows."""
    if accumulate:
        for j in range(m_next.size):
            m_next[j] += gamma * row[j]
    else:
        for j in range(m_next.size):
            m_next[j] = gamma * row[j]


@kernel
def largest_magnitude(bits):
    """Return the bits of the largest magnitude."""
    largest = np.int32(0)
    for j in range(bits.size):
        largest = max(largest, np.int32(bits[j] & MAGNITUDE))
    return np.int64(largest)


@kernel
def count_reaching(bits, lanes, threshold):
    """Return how many of the first `lanes` magnitudes reach the threshold."""
    count = 0
    for i in range(0, lanes, LANES):
        count += ones(reaches(bits, i, np.int32(threshold)))
    return count


@kernel
def find_threshold(bits, lanes, k, largest, distance):
    """Return a threshold that k to 2k + 24 entries reach, or the lowest one (1), or one where many tie."""
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
    """List the indices of the entries that reach the threshold, and their magnitudes with zeros behind."""
    gathered = 0
    for i in range(0, lanes, LANES):
        word, at = reaches(bits, i, np.int32(threshold)), gathered
        if word == 0:  # rare in narrow rows, common in wide ones
            continue
        gathered += ones(word)
        while True:  # by groups: most words need one, and the processor predicts that
            for q in range(GROUP):  # what a group has too many is overwritten
                j = i + lowest(word | LAST_LANE)
                candidates[at + q], magnitudes[at + q] = j, bits[j] & MAGNITUDE
                word &= word - 1
            at += GROUP
            if at >= gathered:
                break
    for q in range(gathered, whole_lanes(gathered)):
        magnitudes[q] = 0
    return gathered


@kernel
def top_k(bits, k, largest, distance, search):
    """Find the ascending indices of the k largest magnitudes, ties to the lowest; zeros are never kept.

    bits (whole lanes) holds the row, zero beyond its end. The indices are search[2]. Return how many were
    kept and the next row's distance.
    """
    candidates, magnitudes, kept = search
    lanes = bits.size
    low = find_threshold(bits, lanes, k, largest, distance)
    distance = largest - low
    gathered = gather_candidates(bits, lanes, low, candidates, magnitudes)
    padded, high, reached = whole_lanes(gathered), largest + 1, gathered
    while reached > k and high - low > 1:
        t = low + (high - low) // 2
        count = count_reaching(magnitudes, padded, t)
        if count >= k:
            low, reached = t, count
        else:
            high = t
    above = low if reached <= k else low + 1  # else entries tie for the last positions
    ties, last = k - (count_reaching(magnitudes, padded, above) if reached > k else reached), np.int32(above)
    count = 0
    if reached <= k:
        for q in range(gathered):
            kept[count] = candidates[q]
            count += magnitudes[q] >= last
        return count, distance
    for q in range(gathered):
        tied = (magnitudes[q] == low) & (ties > 0)
        if (magnitudes[q] >= last) | tied:
            kept[count] = candidates[q]
            count += 1
            ties -= tied
    return count, distance
