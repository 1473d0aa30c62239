"""The rows of gᵀx are the same bit for bit, formed from a whole x or by panels of its columns."""

import numpy as np
import pytest

from msbp.sparse.kernels import parallel
from msbp.sparse.kernels.rows import CHUNK, by_column, form_by_panels, form_part, list_columns


def entries(B: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Values, some of them zero, and columns (B, k) of g (B, n); the last column has none."""
    random = np.random.default_rng(0)
    columns = np.stack([np.sort(random.choice(n - 1, k, replace=False)) for _ in range(B)])
    values = random.standard_normal((B, k), np.float32)
    values[random.random((B, k)) < 0.1] = 0
    return values, columns.astype(np.int32)


@pytest.mark.parametrize(
    "B, i, n, k", [(1, 1, 2, 1), (CHUNK, 64, 9, 3), (CHUNK + 1, 65, 40, 8), (3 * CHUNK - 5, 200, 30, 2)]
)
def test_rows_by_panels_are_those_from_a_whole_x(B, i, n, k):
    (values, columns), x = entries(B, n, k), np.random.default_rng(1).standard_normal((B, i), np.float32)
    starts, examples = np.empty(n + 2, np.int32), np.empty(B * k, np.int32)
    weights, indices = np.empty(B * k, np.float32), np.empty(n, np.int64)
    lists = starts.ctypes.data, examples.ctypes.data, weights.ctypes.data
    u = by_column(values.ctypes.data, columns.ctypes.data, B, n, k, *lists)
    list_columns(starts.ctypes.data, n, indices.ctypes.data, u)
    g = np.zeros((B, n))
    np.put_along_axis(g, columns.astype(np.int64), values.astype(float), 1)
    assert indices[:u].tolist() == np.flatnonzero(g.any(0)).tolist()

    whole = np.full((u, i), np.nan, np.float32)
    of_rows = indices.ctypes.data, whole.ctypes.data, u
    form_part(*lists, n, x.ctypes.data, i, *of_rows, 0, 1)
    np.testing.assert_allclose(whole, (g.T @ x)[indices[:u]], rtol=1e-4, atol=1e-4)
    for threads in (1, 2) if parallel.OPENMP else (1,):
        rows = np.full((u, i), np.nan, np.float32)
        of_rows = indices.ctypes.data, rows.ctypes.data, u
        form_by_panels(*lists, n, x.ctypes.data, B, i, *of_rows, threads)
        assert np.array_equal(rows, whole)
