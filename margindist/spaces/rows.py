"""The one place where dense and CSR storage differ.

A solver sees the training rows through one of two named tuples and a handful of functions. A ``bias``
different from zero stands for one more column with that value in every row, which is never stored: the
intercept is its weight, the last entry of the coefficient vector.

Functions named ``row_*`` are chosen by the tuple's type inside compiled code; the others work on all rows.

On few dense rows NumPy takes some milliseconds more than compiled code, and a first fit does not wait for Numba, which
takes most of a second to import and prepare (:func:`are_few`). Which of the two does it depends on the rows alone, so
that the same rows have the same bits in every process.
"""

import ctypes
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cython_blas
from scipy.linalg.blas import dsyrk

from margindist.compilation import njit, overload, read_only
from margindist.spaces.lanes import gather, padded, spread

_MANY = 24  # columns up to which scores are summed in registers, four at a time
_BLOCK_BYTES = 1 << 20  # a block of scaled rows stays in the second-level cache
BLAS = 40.0  # how much faster an operation is inside a dense product or factorisation than on a stored value
_FEW_VALUES = 25 * 10**5  # of dense rows: up to here NumPy needs some milliseconds more at most
_FEW_OF_SINGLE = 0.4  # share of them up to which that is true of float32, which NumPy converts in every sweep
_VALUES_OF_A_ROW = 20  # that solvers keep beside the row itself, and NumPy sweeps over many times
_WORTH_PASSES = 2 * 10**5  # stored values, and five per row: below, passes could save some milliseconds at most
_STRIP_ROWS = 4096  # rows that are converted to float64 at a time
_STRIP_VALUES = 1 << 21  # values that are, where they are not converted by rows
_COMMON = 4  # of so many rows one at least has a column that is taken for dense in inner products
_WORTH_A_COPY = 10**6  # values of dense rows from which on it pays to copy those that are not zero
_MOSTLY_ZEROS = 0.5  # share of other values up to which dense rows are read faster as sparse ones
_MOST_SPREAD = 1 << 24  # values of sparse rows, zeros included, that are held as an array for a product
# Positions of stored values are unsigned: signed ones might count from the end, and compiled code that asks so at every
# access takes twice as long.
_ONE, _TWO, _THREE, _FOUR = np.arange(1, 5, dtype=np.uint64)


@read_only
class DenseRows(NamedTuple):
    """Rows of a C-contiguous array, float32 or float64."""

    X: np.ndarray
    bias: float
    few: bool  # whether NumPy sweeps over them; some of the rows, copied or not, are summed as all of them are


@read_only
class SparseRows(NamedTuple):
    """Rows in compressed sparse row form."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    n_features: int
    bias: float


def as_rows(X, fit_intercept=False):
    """View ``X`` (C-contiguous array or CSR) as rows, with a column of ones if asked for. Copies nothing."""
    bias = 1.0 if fit_intercept else 0.0
    if sp.issparse(X):
        unsigned = X.indices.view(f"u{X.indices.itemsize}")  # spares compiled code the check for negative indices
        return SparseRows(X.data, unsigned, X.indptr, X.shape[1], bias)
    most = _FEW_VALUES * (1.0 if X.dtype == np.float64 else _FEW_OF_SINGLE)
    return DenseRows(X, bias, X.size + _VALUES_OF_A_ROW * len(X) <= most)


def take_rows(rows, which):
    """Return some rows, copied."""
    if isinstance(rows, DenseRows):
        return rows._replace(X=rows.X[which])
    part = as_matrix(rows)[which]
    return as_rows(part)._replace(bias=rows.bias)


def as_matrix(rows):
    """Return the array or CSR matrix that these are the rows of, without the constant column. Copies no values."""
    if isinstance(rows, DenseRows):
        return rows.X
    signed, begin, end = rows.indices.view(f"i{rows.indices.itemsize}"), rows.indptr[0], rows.indptr[-1]
    indptr = rows.indptr - begin if begin else rows.indptr  # of a range
    stored = rows.data[begin:end], signed[begin:end], indptr
    return sp.csr_matrix(stored, shape=(n_rows(rows), rows.n_features), copy=False)


def n_rows(rows):
    """Return the number of rows."""
    return len(rows.X) if isinstance(rows, DenseRows) else len(rows.indptr) - 1


def n_columns(rows):
    """Return the number of columns, the constant one included."""
    n_features = rows.X.shape[1] if isinstance(rows, DenseRows) else rows.n_features
    return n_features + (rows.bias != 0.0)


def n_stored(rows):
    """Return the number of stored values: what one sweep over the rows costs."""
    return rows.X.size if isinstance(rows, DenseRows) else int(rows.indptr[-1] - rows.indptr[0])


def are_few(rows):
    """Tell whether these rows are left to NumPy."""
    return isinstance(rows, DenseRows) and rows.few


def are_worth_passes(rows):
    """Tell whether there is anything to be saved by passes over these rows, for which compiled code must be loaded."""
    return n_stored(rows) + 5 * n_rows(rows) >= _WORTH_PASSES


@contextmanager
def all_compiled():
    """Leave no rows to NumPy meanwhile, however few they are: for compiling ahead, in a process of its own."""
    global _FEW_VALUES
    before, _FEW_VALUES = _FEW_VALUES, -1
    try:
        yield
    finally:
        _FEW_VALUES = before


def stored_bytes(rows):
    """Return the memory that a copy of the rows takes."""
    if isinstance(rows, DenseRows):
        return rows.X.nbytes
    return rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes


def _dense_dot(rows, i, w):
    x = rows.X[i]
    total = rows.bias * w[-1]
    for j in range(x.shape[0]):
        total += x[j] * w[j]
    return total


def _sparse_dot(rows, i, w):
    begin, end = np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + 1])
    rest = end - (end - begin) % _FOUR
    s0 = s1 = s2 = s3 = 0.0  # four sums need not wait for each other
    for k in range(begin, rest, _FOUR):
        s0 += rows.data[k] * w[rows.indices[k]]
        s1 += rows.data[k + _ONE] * w[rows.indices[k + _ONE]]
        s2 += rows.data[k + _TWO] * w[rows.indices[k + _TWO]]
        s3 += rows.data[k + _THREE] * w[rows.indices[k + _THREE]]
    for k in range(rest, end):
        s0 += rows.data[k] * w[rows.indices[k]]
    return rows.bias * w[-1] + ((s0 + s1) + (s2 + s3))


def _dense_size(rows, i, sizes):
    x = rows.X[i]
    total = abs(rows.bias) * sizes[-1]
    for j in range(x.shape[0]):
        total += abs(x[j]) * sizes[j]
    return total


def _sparse_size(rows, i, sizes):
    total = abs(rows.bias) * sizes[-1]
    for k in range(np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + 1])):
        total += abs(rows.data[k]) * sizes[rows.indices[k]]
    return total


def _dense_add(rows, i, scale, w):
    x = rows.X[i]
    for j in range(x.shape[0]):
        w[j] += scale * x[j]
    w[-1] += scale * rows.bias  # not only if there is one: with a branch, counting references would take the most time


def _sparse_add(rows, i, scale, w):
    for k in range(np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + 1])):
        w[rows.indices[k]] += scale * rows.data[k]
    w[-1] += scale * rows.bias


def _dense_square(rows, i):
    x = rows.X[i]
    total = rows.bias * rows.bias
    for j in range(x.shape[0]):
        value = np.float64(x[j])
        total += value * value
    return total


def _sparse_square(rows, i):
    total = rows.bias * rows.bias
    for k in range(np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + 1])):
        value = np.float64(rows.data[k])
        total += value * value
    return total


def _dense_scores(rows, i, W, out):
    x = rows.X[i]
    last = W[-1]
    if len(out) > _MANY:
        for l in range(len(out)):
            out[l] = rows.bias * last[l]
        for j in range(x.shape[0]):
            if x[j] != 0.0:
                for l in range(len(out)):
                    out[l] += x[j] * W[j, l]
        return
    for l in range(0, len(out), 4):
        s0, s1, s2, s3 = (
            rows.bias * last[l],
            rows.bias * last[l + 1],
            rows.bias * last[l + 2],
            rows.bias * last[l + 3],
        )
        for j in range(x.shape[0]):
            value = x[j]
            if value != 0.0:
                s0 += value * W[j, l]
                s1 += value * W[j, l + 1]
                s2 += value * W[j, l + 2]
                s3 += value * W[j, l + 3]
        out[l], out[l + 1], out[l + 2], out[l + 3] = s0, s1, s2, s3


def _sparse_scores(rows, i, W, out):
    gather(rows.data, rows.indices, rows.indptr[i], rows.indptr[i + 1], W, out)
    if rows.bias != 0.0:
        last = W[-1]
        for l in range(len(out)):
            out[l] += rows.bias * last[l]


def _dense_add_outer(rows, i, columns, scales, n, W):
    x = rows.X[i]
    for j in range(x.shape[0]):
        value = x[j]
        if value != 0.0:
            for c in range(n):
                W[j, columns[c]] += value * scales[c]
    if rows.bias != 0.0:
        for c in range(n):
            W[-1, columns[c]] += rows.bias * scales[c]


def _sparse_add_outer(rows, i, columns, scales, n, W):
    for k in range(np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + 1])):
        value, j = rows.data[k], rows.indices[k]
        for c in range(n):
            W[j, columns[c]] += value * scales[c]
    if rows.bias != 0.0:
        for c in range(n):
            W[-1, columns[c]] += rows.bias * scales[c]


def _dense_scatter(rows, i, values, columns):
    x = rows.X[i]
    count = 0
    for j in range(x.shape[0]):
        if x[j] != 0.0:
            values[j] = x[j]
            columns[count] = j
            count += 1
    return count


def _sparse_scatter(rows, i, values, columns):
    count = 0
    for k in range(np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + 1])):
        if rows.data[k] != 0.0:
            values[rows.indices[k]] = rows.data[k]
            columns[count] = rows.indices[k]
            count += 1
    return count


_DOT = {DenseRows: _dense_dot, SparseRows: _sparse_dot}
_SIZE = {DenseRows: _dense_size, SparseRows: _sparse_size}
_ADD = {DenseRows: _dense_add, SparseRows: _sparse_add}
_SQUARE = {DenseRows: _dense_square, SparseRows: _sparse_square}
_SCORES = {DenseRows: _dense_scores, SparseRows: _sparse_scores}
_ADD_OUTER = {DenseRows: _dense_add_outer, SparseRows: _sparse_add_outer}
_SCATTER = {DenseRows: _dense_scatter, SparseRows: _sparse_scatter}


def row_dot(rows, i, w):
    """Return the inner product of row ``i`` and ``w``."""
    return _DOT[type(rows)](rows, i, w)


def row_size(rows, i, sizes):
    """Return the sum of the row's absolute values times ``sizes``."""
    return _SIZE[type(rows)](rows, i, sizes)


def row_add(rows, i, scale, w):
    """Add ``scale`` times row ``i`` to ``w``."""
    _ADD[type(rows)](rows, i, scale, w)


def row_square(rows, i):
    """Return the squared length of row ``i``."""
    return _SQUARE[type(rows)](rows, i)


def row_scores(rows, i, W, out):
    """Fill ``out`` with the products of row ``i`` and the columns of ``W``, whose number is a multiple of four."""
    _SCORES[type(rows)](rows, i, W, out)


def row_add_outer(rows, i, columns, scales, n, W):
    """Add ``scales[c]`` times row ``i`` to column ``columns[c]`` of ``W``, for the first ``n`` of them."""
    _ADD_OUTER[type(rows)](rows, i, columns, scales, n, W)


def row_scatter(rows, i, values, columns):
    """Write row ``i``'s non-zero features into ``values`` and their positions into ``columns``; return their number."""
    return _SCATTER[type(rows)](rows, i, values, columns)


_VECTORISED = {"fastmath": {"reassoc", "contract"}}
# Sums of values from all over an array stay scalar: on some processors the instruction that gathers several at once
# takes five times as long as one after the other, and on the others it gains little.
_SCALAR = {"fastmath": {"contract"}}


@overload(row_dot, jit_options=_VECTORISED)
def _compiled_dot(rows, i, w):
    return _dense_dot if rows.instance_class is DenseRows else None


@overload(row_dot, jit_options=_SCALAR)
def _compiled_sparse_dot(rows, i, w):
    return _sparse_dot if rows.instance_class is SparseRows else None


@overload(row_size, jit_options=_VECTORISED)
def _compiled_size(rows, i, sizes):
    return _SIZE[rows.instance_class]


@overload(row_add, jit_options=_VECTORISED)
def _compiled_add(rows, i, scale, w):
    return _ADD[rows.instance_class]


@overload(row_square, jit_options=_VECTORISED)
def _compiled_square(rows, i):
    return _SQUARE[rows.instance_class]


@overload(row_scores, jit_options=_VECTORISED)
def _compiled_scores(rows, i, W, out):
    return _dense_scores if rows.instance_class is DenseRows else None


@overload(row_scores, jit_options=_SCALAR)
def _compiled_sparse_scores(rows, i, W, out):
    return _sparse_scores if rows.instance_class is SparseRows else None


@overload(row_add_outer, jit_options=_VECTORISED)
def _compiled_add_outer(rows, i, columns, scales, n, W):
    return _ADD_OUTER[rows.instance_class]


@overload(row_scatter)
def _compiled_scatter(rows, i, values, columns):
    return _SCATTER[rows.instance_class]


def scores(rows, w, out):
    """Fill ``out`` with the inner products of all rows with ``w``."""
    if are_few(rows):
        out[:] = _few_scores(rows, w)
    else:
        _scores(rows, w, out)


def some_scores(rows, which, w, out):
    """Fill ``out`` with the inner products of the rows ``which`` with ``w``; return it."""
    if not are_few(rows):
        return _some_scores(rows, which, w, out)
    out[:] = _few_scores(rows._replace(X=_taken(rows.X, which)), w)
    return out


def score_sizes(rows, sizes, out):
    """Fill ``out`` with the sums of the rows' absolute values times ``sizes``, the absolute values of some weights.

    A score is off by at most a multiple of that.
    """
    if not are_few(rows):
        _score_sizes(rows, sizes, out)
        return
    for start in range(0, len(out), _STRIP_ROWS):
        strip = np.abs(rows.X[start : start + _STRIP_ROWS])
        out[start : start + _STRIP_ROWS] = strip @ sizes[: rows.X.shape[1]]
    if rows.bias != 0.0:
        out += abs(rows.bias) * sizes[-1]


def n_terms(rows):
    """Return the number of products that each row's score is added up from."""
    if isinstance(rows, DenseRows):
        return n_columns(rows)
    return np.diff(rows.indptr).astype(np.float64) + 1.0


def add_rows(rows, which, scales, out):
    """Add the rows ``which``, each times its scale, to ``out``; return ``out``."""
    if not are_few(rows):
        return _add_rows(rows, which, scales, out)
    out[: rows.X.shape[1]] += scales @ _taken(rows.X, which)
    if rows.bias != 0.0:
        out[-1] += rows.bias * scales.sum()
    return out


def squares(rows, out):
    """Fill ``out`` with the squared length of every row."""
    if are_few(rows):
        X = rows.X.astype(np.float64, copy=False)
        out[:] = np.einsum("ij,ij->i", X, X) + rows.bias**2
    else:
        _squares(rows, out)


def _taken(X, which):
    """Return some rows of an array; neighbours in their order are not copied, which costs more than any sum of them."""
    if len(which) and np.array_equal(which, np.arange(which[0], which[0] + len(which))):
        return X[which[0] : which[0] + len(which)]
    return X[which]


def _few_scores(rows, w):
    z = rows.X @ w[: rows.X.shape[1]]
    return z + rows.bias * w[-1] if rows.bias != 0.0 else z


@njit(cache=True, nogil=True)
def _scores(rows, w, out):
    for i in range(len(out)):
        out[i] = row_dot(rows, i, w)


@njit(cache=True, nogil=True)
def _score_sizes(rows, sizes, out):
    for i in range(len(out)):
        out[i] = row_size(rows, i, sizes)


@njit(cache=True, nogil=True)
def _some_scores(rows, which, w, out):
    for k in range(len(which)):
        out[k] = row_dot(rows, which[k], w)
    return out


@njit(cache=True, nogil=True)
def _add_rows(rows, which, scales, out):
    for k in range(len(which)):
        if scales[k] != 0.0:
            row_add(rows, which[k], scales[k], out)
    return out


@njit(cache=True, nogil=True)
def _squares(rows, out):
    for i in range(len(out)):
        out[i] = row_square(rows, i)


@njit(cache=True, nogil=True)
def gram_product(rows, which, weights, v, out):
    """Add ``Σ weights_k x_k x_kᵀ v`` over the rows ``which`` to ``out``; return ``out``."""
    for k in range(len(which)):
        row_add(rows, which[k], weights[k] * row_dot(rows, which[k], v), out)
    return out


@njit(cache=True, nogil=True)
def all_scores(rows, first, W, out):
    """Fill ``out`` with the products of the rows from ``first`` on and the columns of ``W``; return it."""
    for i in range(len(out)):
        row_scores(rows, first + i, W, out[i])
    return out


@njit(cache=True, nogil=True)
def add_entries(rows, which, columns, scales, W):
    """Add ``scales[p]`` times row ``which[p]`` to column ``columns[p]`` of ``W``, for all p."""
    for p in range(len(which)):
        row_add_outer(rows, which[p], columns[p : p + 1], scales[p : p + 1], 1, W)


def dense_matrix(rows):
    """Return all rows as one float64 array, the constant column included."""
    X = rows.X if isinstance(rows, DenseRows) else as_matrix(rows).toarray()
    if rows.bias != 0.0:
        X = np.column_stack([X, np.full(len(X), rows.bias)])
    return np.ascontiguousarray(X, dtype=np.float64)


def matrix(rows):
    """Return all rows as one float64 array or CSR matrix, the constant column included; copies where it must.

    Sparse rows that are mostly stored become an array, if that is small: it is multiplied faster.
    """
    if not _are_multiplied_as_stored(rows) and (isinstance(rows, DenseRows) or _can_be_spread(rows)):
        return dense_matrix(rows)
    X = as_matrix(rows).astype(np.float64, copy=False)
    return sp.csr_matrix(sp.hstack([X, np.full((X.shape[0], 1), rows.bias)])) if rows.bias != 0.0 else X


def without_zeros(rows):
    """Return dense rows that are mostly zeros as sparse ones, other rows as they are.

    Products with a few columns take as long as the rows take to read, which many of them make worth a smaller copy.
    """
    if isinstance(rows, SparseRows) or rows.X.size <= _WORTH_A_COPY:
        return rows
    if np.count_nonzero(rows.X) > _MOSTLY_ZEROS * rows.X.size:
        return rows
    return as_rows(sp.csr_matrix(rows.X))._replace(bias=rows.bias)


def gram_diagonal(rows, which, weights):
    """Return the diagonal of ``Σ weights_k x_k x_kᵀ`` over the rows ``which``."""
    everything = np.zeros(n_rows(rows))
    everything[which] = weights
    diagonal = sum_of_squares(rows, everything)
    return np.append(diagonal, weights.sum() * rows.bias**2) if rows.bias != 0.0 else diagonal


@njit(cache=True, nogil=True)
def quadratic_forms(rows, matrix, out):
    """Fill ``out`` with x'Ax for every row x; return it."""
    image = np.empty(len(matrix))
    for i in range(len(out)):
        for j in range(len(matrix)):
            image[j] = row_dot(rows, i, matrix[j])
        out[i] = row_dot(rows, i, image)
    return out


def row_range(rows, start, stop):
    """Return the rows from ``start`` to ``stop``, copying nothing."""
    if isinstance(rows, DenseRows):
        return rows._replace(X=rows.X[start:stop])
    return rows._replace(indptr=rows.indptr[start : stop + 1])


def products(rows, W):
    """Return the inner products of all rows (without the constant column) with the columns of ``W``."""
    out = np.zeros((n_rows(rows), W.shape[1]))
    if W.shape[1] == 1:
        scores(rows._replace(bias=0.0), np.ascontiguousarray(W[:, 0]), out[:, 0])
        return out
    if isinstance(rows, SparseRows):
        return _sparse_products(rows, padded(W), out)
    for start in range(0, len(out), _STRIP_ROWS):
        strip = rows.X[start : start + _STRIP_ROWS].astype(np.float64, copy=False)
        np.matmul(strip, W, out=out[start : start + _STRIP_ROWS])
    return out


def weighted_sums(rows, scales):
    """Return, for each column of ``scales``, the sum of all rows (without the constant column) times its entries."""
    n_features = n_columns(rows._replace(bias=0.0))
    if isinstance(rows, SparseRows):
        if scales.shape[1] == 1:
            which = np.arange(len(scales))
            return add_rows(rows._replace(bias=0.0), which, scales[:, 0], np.zeros(n_features))[None, :]
        sums = _sparse_weighted_sums(rows, scales, padded(np.zeros((n_features, scales.shape[1]))))
        return sums[:, : scales.shape[1]].T
    return _dense_weighted_sums(rows.X, scales, np.zeros((scales.shape[1], n_features)))


def class_scores(rows, W):
    """Return the inner products of all rows, the constant column included, with the columns of ``W``."""
    if rows.bias == 0.0:
        return products(rows, W)
    return products(rows, W[:-1]) + rows.bias * W[-1]


def class_sums(rows, scales):
    """Return, one column per column of ``scales``, the sum of all rows, constant included, times its entries."""
    if isinstance(rows, SparseRows):
        sums = weighted_sums(rows, scales).T
    else:
        sums = np.zeros((scales.shape[1], rows.X.shape[1]))
        for start in range(0, len(scales), _STRIP_ROWS):
            strip = rows.X[start : start + _STRIP_ROWS].astype(np.float64, copy=False)
            sums += scales[start : start + _STRIP_ROWS].T @ strip  # faster than the other way round
        sums = sums.T
    return np.ascontiguousarray(sums if rows.bias == 0.0 else np.vstack([sums, rows.bias * scales.sum(axis=0)]))


def column_sizes(rows):
    """Return the largest absolute value in every column, the constant one included."""
    if isinstance(rows, DenseRows):
        sizes = np.maximum(rows.X.max(axis=0), -rows.X.min(axis=0)).astype(np.float64)
    else:
        begin, end = rows.indptr[0], rows.indptr[-1]
        sizes = np.zeros(rows.n_features)
        _raise_to(rows.data[begin:end], rows.indices[begin:end], sizes)
    return np.append(sizes, abs(rows.bias)) if rows.bias != 0.0 else sizes


@njit(cache=True, nogil=True)
def _raise_to(values, columns, sizes):
    """Raise the entries of ``sizes`` to the absolute values in their columns; ufunc.at takes fifty times as long."""
    for k in range(len(values)):
        sizes[columns[k]] = max(sizes[columns[k]], abs(values[k]))


def sum_of_squares(rows, weights):
    """Return the weighted sum of the squares of every column (without the constant one)."""
    if isinstance(rows, SparseRows):
        return _sparse_sum_of_squares(rows, weights, np.zeros(rows.n_features))
    total = np.zeros(rows.X.shape[1])
    for start in range(0, len(weights), _STRIP_ROWS):
        total += weights[start : start + _STRIP_ROWS] @ np.square(rows.X[start : start + _STRIP_ROWS], dtype=np.float64)
    return total


@njit(cache=True, nogil=True)
def _sparse_sum_of_squares(rows, weights, out):
    for i in range(len(weights)):
        if weights[i] != 0.0:
            for k in range(np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + 1])):
                value = np.float64(rows.data[k])
                out[rows.indices[k]] += weights[i] * (value * value)
    return out


@njit(cache=True, nogil=True)
def _sparse_products(rows, W, out):
    sums = np.empty(W.shape[1])
    for i in range(len(out)):
        gather(rows.data, rows.indices, rows.indptr[i], rows.indptr[i + 1], W, sums)
        for l in range(out.shape[1]):
            out[i, l] = sums[l]
    return out


@njit(cache=True, nogil=True)
def _sparse_weighted_sums(rows, scales, out):
    of_row = np.zeros(out.shape[1])
    for i in range(len(scales)):
        counts = False
        for l in range(scales.shape[1]):
            of_row[l] = scales[i, l]
            counts |= scales[i, l] != 0.0
        if counts:
            spread(rows.data, rows.indices, rows.indptr[i], rows.indptr[i + 1], of_row, out)
    return out


@njit(cache=True, nogil=True)
def _dense_weighted_sums(X, scales, out):
    for i in range(len(scales)):
        for j in range(scales.shape[1]):
            scale = scales[i, j]
            if scale != 0.0:
                for k in range(X.shape[1]):
                    out[j, k] += scale * X[i, k]
    return out


def gram_operations(rows):
    """Return what a Gram product of all rows costs, in operations on stored values."""
    dense = 0.5 * n_rows(rows) * n_columns(rows) ** 2 / BLAS
    return min(_products_of_stored(rows), dense) if isinstance(rows, SparseRows) else dense


def _products_of_stored(rows):
    """Return how many products of two stored values of one row there are."""
    lengths = np.diff(rows.indptr).astype(np.float64)
    return 0.5 * (lengths @ lengths)


def _are_multiplied_as_stored(rows):
    """Tell whether rows are sparse, and so much so that products of zeros cost more than BLAS is faster."""
    return isinstance(rows, SparseRows) and _products_of_stored(rows) <= gram_operations(rows)


def _can_be_spread(rows):
    return n_rows(rows) * n_columns(rows) <= _MOST_SPREAD


def _dense_part(rows, which):
    """Return some rows as dense ones, and their numbers among these; dense rows are themselves."""
    if isinstance(rows, DenseRows):
        return rows, which
    X = as_matrix(rows)[which].toarray()
    return DenseRows(X, rows.bias, few=True), np.arange(len(X))


def gram(rows, which, weights):
    """Return ``Σ weights_k x_k x_kᵀ`` over the rows ``which`` (lower triangle), copying a block at a time."""
    return add_gram(rows, which, weights, 1.0, np.zeros((n_columns(rows), n_columns(rows))))


def add_gram(rows, which, weights, sign, lower):
    """Add ``sign`` times the Gram matrix of :func:`gram` to the lower triangle of ``lower``, in place; return it."""
    if _are_multiplied_as_stored(rows):
        return _sparse_gram(rows, which, sign * weights, lower)
    return _add_dense_gram(rows, which, weights, np.zeros(n_columns(rows._replace(bias=0.0))), sign, lower)


def scatter(rows, which, weights, mean):
    """Return ``Σ weights_k (x_k − mean)(x_k − mean)ᵀ`` (lower triangle); ``mean`` must be the rows' weighted mean.

    Dense rows are centred before they are multiplied, so a mean far from zero costs no digits.
    """
    rows = rows._replace(bias=0.0)
    if isinstance(rows, SparseRows):
        return gram(rows, which, weights) - weights.sum() * np.outer(mean, mean)
    return _add_dense_gram(rows, which, weights, mean, 1.0, np.zeros((n_columns(rows), n_columns(rows))))


def _add_dense_gram(rows, which, weights, shift, sign, lower):
    m, d = len(which), n_columns(rows)
    block = max(64, _BLOCK_BYTES // (8 * max(1, d)))
    scaled = np.empty((min(block, m), d))
    for start in range(0, m, block):
        part = scaled[: min(block, m - start)]
        dense, chosen = _dense_part(rows, which[start : start + block])
        scale = _scale_few if are_few(dense) else _scale_block
        scale(dense.X, dense.bias, chosen, weights[start : start + block], shift, part)
        _add_product(part, sign, lower)
    return lower


def _find_syrk():
    """Return BLAS ``dsyrk`` as a function that lets other threads run meanwhile, which SciPy's does not; or None."""
    capsule = getattr(cython_blas, "__pyx_capi__", {}).get("dsyrk")
    if capsule is None:
        return None
    name_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = pointer_of(capsule, name_of(capsule))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 10)(address)


_SYRK = _find_syrk()


def _add_product(part, sign, lower):
    """Add ``sign`` times ``partᵀ part`` to the lower triangle of ``lower``, in place; both are C-contiguous."""
    if _SYRK is None or not len(part):
        dsyrk(sign, part.T, beta=1.0, c=lower.T, overwrite_c=1)
        return
    scales = np.array([sign, 1.0])
    sizes = np.array([part.shape[1], part.shape[0]], dtype=np.intc)
    factor, one, n, k = (
        scales.ctypes.data,
        scales.ctypes.data + 8,
        sizes.ctypes.data,
        sizes.ctypes.data + sizes.itemsize,
    )
    upper, plain = ctypes.c_char(b"U"), ctypes.c_char(b"N")  # of Fortran's view, which is the transpose
    _SYRK(ctypes.byref(upper), ctypes.byref(plain), n, k, factor, part.ctypes.data, n, one, lower.ctypes.data, n)


def weighted_system(rows, which, weights, first, second):
    """Return ``Σ t x xᵀ`` (lower triangle), ``Σ c x`` and ``Σ c' x`` over the rows ``which``, in one sweep.

    Rows that are not mostly zeros are copied a block at a time, times √t and with c/√t and c'/√t as two columns more:
    the sums of rows are then two rows of one Gram product. Weights must be positive.
    """
    d = n_columns(rows)
    if _are_multiplied_as_stored(rows):
        lower, sums = np.zeros((d, d)), np.zeros((2, d))
        _sparse_system(rows, which, weights, first, second, lower, sums)
        return lower, sums[0], sums[1]
    m, wide = len(which), np.zeros((d + 2, d + 2))
    block = max(64, _BLOCK_BYTES // (8 * (d + 2)))
    scaled = np.empty((min(block, m), d + 2))
    for start in range(0, m, block):
        part = scaled[: min(block, m - start)]
        stop = start + block
        dense, chosen = _dense_part(rows, which[start:stop])
        scale = _scale_system_of_few if are_few(dense) else _scale_system
        scale(dense, chosen, weights[start:stop], first[start:stop], second[start:stop], part)
        _add_product(part, 1.0, wide)
    return np.ascontiguousarray(wide[:d, :d]), wide[d, :d].copy(), wide[d + 1, :d].copy()


def _scale_system_of_few(rows, which, weights, first, second, out):
    _scale_few(rows.X, rows.bias, which, weights, None, out[:, :-2])
    root = np.sqrt(weights)
    np.divide(first, root, out=out[:, -2])
    np.divide(second, root, out=out[:, -1])


@njit(cache=True, nogil=True)
def _scale_system(rows, which, weights, first, second, out):
    for k in range(len(which)):
        root, x = np.sqrt(weights[k]), rows.X[which[k]]
        for j in range(len(x)):
            out[k, j] = root * x[j]
        if rows.bias != 0.0:
            out[k, -3] = root * rows.bias
        out[k, -2] = first[k] / root
        out[k, -1] = second[k] / root


@njit(cache=True, nogil=True)
def _sparse_system(rows, which, weights, first, second, lower, sums):
    _sparse_gram(rows, which, weights, lower)
    for k in range(len(which)):
        row_add(rows, which[k], first[k], sums[0])
        row_add(rows, which[k], second[k], sums[1])


def _scale_few(X, bias, which, weights, shift, out):
    root = np.sqrt(weights)
    wide = out[:, : X.shape[1]]
    np.multiply(_taken(X, which) if shift is None else _taken(X, which) - shift, root[:, None], out=wide)
    if bias != 0.0:
        np.multiply(root, bias, out=out[:, -1])


@njit(cache=True, nogil=True)
def _scale_block(X, bias, which, weights, shift, out):
    for k in range(len(which)):
        root, x = np.sqrt(weights[k]), X[which[k]]
        for j in range(len(x)):
            out[k, j] = root * (x[j] - shift[j])
        if bias != 0.0:
            out[k, -1] = root * bias


@njit(cache=True, nogil=True)
def _sparse_gram(rows, which, weights, lower):
    # Column indices are sorted within a row, so every product falls into the lower triangle.
    for k in range(len(which)):
        begin, end = rows.indptr[which[k]], rows.indptr[which[k] + 1]
        columns, values = rows.indices[begin:end], rows.data[begin:end]
        for u in range(len(columns)):
            target = lower[columns[u]]
            value = weights[k] * values[u]
            for v in range(u + 1):
                target[columns[v]] += value * values[v]
        if rows.bias != 0.0:
            scale = weights[k] * rows.bias
            for u in range(len(columns)):
                lower[-1, columns[u]] += scale * values[u]
            lower[-1, -1] += scale * rows.bias
    return lower


def inner_products(rows, first, second):
    """Return the matrix of inner products between two lists of rows, summed in float64."""
    if isinstance(rows, SparseRows):
        return _sparse_inner_products(as_matrix(rows), first, second) + rows.bias**2
    left, right = rows.X[first], rows.X[second]
    if left.dtype == np.float64:
        return left @ right.T + rows.bias**2
    out = np.full((len(left), len(right)), rows.bias**2)
    strip = max(1, _STRIP_VALUES // max(1, len(left) + len(right)))
    for start in range(0, left.shape[1], strip):
        columns = slice(start, start + strip)
        out += left[:, columns].astype(np.float64) @ right[:, columns].T.astype(np.float64)
    return out


def _sparse_inner_products(X, first, second):
    """Return the same for rows of a CSR matrix: common columns are multiplied by BLAS, the others as they are stored.

    A column that c of n rows have costs c² products of stored values, or n² within BLAS. The former are added up in
    the result, row after row: the sparse one that SciPy would make takes three times as long, and more memory.
    """
    often = _COMMON * np.bincount(X.indices, minlength=X.shape[1]) > X.shape[0]
    if np.count_nonzero(often) * max(len(first), len(second)) > _MOST_SPREAD:
        often[:] = False
    left, right = X[first].astype(np.float64), X[second].astype(np.float64)
    out = left[:, often].toarray() @ right[:, often].toarray().T
    return _add_by_columns(as_rows(left[:, ~often].tocsr()), as_rows(right[:, ~often].T.tocsr()), out)


@njit(cache=True, nogil=True)
def _add_by_columns(left, columns, out):
    """Add the inner products of the rows ``left`` with those of which the columns are given; return ``out``."""
    for i in range(len(out)):
        for k in range(np.uint64(left.indptr[i]), np.uint64(left.indptr[i + 1])):
            row_add(columns, left.indices[k], left.data[k], out[i])
    return out
