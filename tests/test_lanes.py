"""Stored values times rows of a matrix: compiled code and Python, sums of sparse rows and of dense ones."""

import numpy as np
import pytest
import scipy.sparse as sp

from margindist.compilation import njit
from margindist.spaces.lanes import LANES, gather, padded, spread
from margindist.spaces.rows import all_scores, as_rows, class_scores, class_sums, n_columns, products, row_range


@njit(nogil=True)
def compiled_gather(data, indices, begin, end, W, out):
    gather(data, indices, begin, end, W, out)


@njit(nogil=True)
def compiled_spread(data, indices, begin, end, v, out):
    spread(data, indices, begin, end, v, out)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index", [np.uint32, np.uint64])
@pytest.mark.parametrize("n_columns", [1, 4, 7, 12, 13, 30])
def test_compiled_code_does_what_python_says(n_columns, index, dtype, rng):
    W, v = padded(rng.normal(size=(9, n_columns))), padded(rng.normal(size=(1, n_columns)))[0]
    assert W.shape[1] % LANES == 0 and W.shape[1] - n_columns < LANES
    data = rng.normal(size=8).astype(dtype)
    indices = rng.permutation(9)[:8].astype(index)
    for begin, end in ((0, 8), (1, 8), (2, 3), (5, 5)):
        found = []
        for gathers, spreads in ((gather, spread), (compiled_gather, compiled_spread)):
            gathers(data, indices, begin, end, W, total := np.full(W.shape[1], np.nan))
            spreads(data, indices, begin, end, v, sums := np.ones_like(W))
            found.append((total, sums))
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12 if dtype is np.float64 else 1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("n_classes", [1, 2, 3, 10, 25])
def test_products_of_sparse_rows_are_those_of_dense_ones(n_classes, fit_intercept, dtype, rng):
    X = np.where(rng.random((40, 30)) < 0.3, rng.normal(size=(40, 30)), 0.0).astype(dtype)
    X[7] = 0.0
    rows = as_rows(sp.csr_array(X), fit_intercept)
    full = np.column_stack([X, np.ones((40, int(fit_intercept)))]).astype(float)
    W, V = rng.normal(size=(n_columns(rows), n_classes)), rng.normal(size=(40, n_classes))
    V[3] = 0.0
    scores, sums = class_scores(rows, W), class_sums(rows, V)
    assert scores.flags.c_contiguous and sums.flags.c_contiguous
    np.testing.assert_allclose(scores, full @ W, atol=1e-12)
    np.testing.assert_allclose(sums, full.T @ V, atol=1e-12)
    np.testing.assert_allclose(products(row_range(rows, 5, 20), W[:30]), (X @ W[:30])[5:20], atol=1e-12)
    wide = padded(W)
    found = all_scores(rows, 10, wide, np.empty((9, wide.shape[1])))
    np.testing.assert_allclose(found[:, :n_classes], (full @ W)[10:19], atol=1e-12)
