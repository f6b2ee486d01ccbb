"""Mercer kernels: values between rows, as exact as float64 allows.

A :class:`Kernel` is an immutable value: name and numbers, already resolved against the training data. Training and
prediction evaluate it by the same code. Matrices of kernel values live in :mod:`margindist.spaces.gram`.
"""

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from margindist.compilation import njit

__all__ = [
    "KERNELS",
    "Kernel",
    "Pairs",
    "gamma_per_feature",
    "looks_at_rows",
    "named_gamma",
    "resolve_gamma",
    "scale_gamma",
    "width_in_distances",
]

KERNELS = ("linear", "rbf", "poly", "sigmoid", "precomputed")


class Kernel(NamedTuple):
    """A kernel function, plus ``bias``: the square of a constant feature, added to every value.

    ``name`` is one of :data:`KERNELS` or a callable ``k(X, Y)`` that returns the matrix of kernel values. With
    "precomputed" the rows given *are* kernel values: of the samples asked about (rows) with the training samples.
    """

    name: Any
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0
    bias: float = 0.0

    def __call__(self, X, Y):
        """Return the matrix of kernel values between the rows of ``X`` and of ``Y``, always float64."""
        return self.against(Y)(X)

    def against(self, Y):
        """Return the function of X that gives its rows' kernel values with those of ``Y``; Y is prepared once."""
        if self.is_given:
            return lambda X: self._given(X, Y)
        sparse = _is_sparse_enough(Y)
        centre = _centre(self, Y, sparse)
        right = _prepare(self, Y, centre, sparse)
        return lambda X: _values(self, _prepare(self, X, centre, sparse), right)

    @property
    def is_linear(self):
        """Whether the values are the inner products of the rows."""
        return self._is("linear")

    @property
    def is_radial(self):
        """Whether the values depend on the distance of the rows alone."""
        return self._is("rbf")

    @property
    def is_precomputed(self):
        """Whether the rows are kernel values themselves."""
        return self._is("precomputed")

    @property
    def is_given(self):
        """Whether the values come from the user, as a matrix or by a function of theirs."""
        return callable(self.name) or self.is_precomputed

    @property
    def has_gamma(self):
        """Whether the values depend on ``gamma``."""
        return not self.is_given and not self.is_linear

    @property
    def is_mercer(self):
        """Whether the kernel is known to have no negative eigenvalues."""
        return self.is_linear or self.is_radial or (self._is("poly") and self.coef0 >= 0.0)

    def _is(self, name):
        return isinstance(self.name, str) and self.name == name

    def _given(self, X, Y):
        values = X if self.is_precomputed else self.name(X, Y)
        values = np.asarray(values.toarray() if sp.issparse(values) else values)
        if not self.is_precomputed:
            _check_values(values, (X.shape[0], Y.shape[0]))
        return values.astype(np.float64, copy=False) + (self.bias or 0.0)


def _check_values(values, shape):
    """Raise an error if what a function of the user's returned is no matrix of kernel values."""
    if values.shape != shape:
        fault = f"one of shape {values.shape}"
    elif values.dtype.kind not in "biuf":
        fault = f"one of {values.dtype}"
    elif not np.isfinite(values).all():
        fault = "one with values that are not finite"
    else:
        return
    raise ValueError(
        f"kernel: expected from the function k(X, Y) a matrix of real numbers of shape {shape}, with a row for each "
        f"row of X and a column for each row of Y, got {fault}."
    )


def gamma_per_feature(text):
    """Return the number before "/d" in a string such as "5/d"; nan if it is no such string."""
    number, slash, rest = text.partition("/")
    try:
        value = float(number) if slash and rest.strip() == "d" else np.nan
    except ValueError:
        value = np.nan
    return value if np.isfinite(value) else np.nan


_ENTRIES = 2**20  # that are centred at a time


def width_in_distances(text):
    """Return the factor in "mean-distance" or a string such as "2*mean-distance"; nan if it is no such string."""
    factor, _, unit = text.rpartition("*")
    try:
        value = float(factor or 1.0) if unit.strip() == "mean-distance" else np.nan
    except ValueError:
        value = np.nan
    return value if np.isfinite(value) else np.nan


def looks_at_rows(gamma):
    """Tell whether the number that ``gamma`` means depends on the rows."""
    return isinstance(gamma, str) and (gamma == "scale" or width_in_distances(gamma) > 0)


def resolve_gamma(gamma, X, weights):
    """Return the number that ``gamma`` means for these rows: itself, "scale" or "auto" as in scikit-learn.

    A string such as "5/d" means that number divided by the number of features, and "2*mean-distance" a Gaussian of
    width w twice the mean distance of two rows, ``1 / (2 w**2)``.

    "scale" is ``1 / (n_features * variance of all entries)``; rows count by their weights, so that a weight of two is
    the row given twice.
    """
    n, d = X.shape
    if not looks_at_rows(gamma):
        return named_gamma(gamma, d)
    if gamma != "scale":
        width = width_in_distances(gamma) * mean_distance(X, weights)
        return 0.5 / width**2 if width > 0 else 1.0
    total = weights.sum() * d
    mean = sum_of_entries(X, weights) / total
    return scale_gamma(mean, spread_of_entries(X, weights, mean) / total, n, d)


def mean_distance(X, weights):
    """Return the mean Euclidean distance of two rows, drawn by their weights and put back."""
    from sklearn.metrics import pairwise_distances_chunked

    strips = pairwise_distances_chunked(X, reduce_func=lambda strip, first: strip @ weights)
    return float(weights @ np.concatenate(list(strips)) / weights.sum() ** 2)


def named_gamma(gamma, n_features):
    """Return the number that ``gamma`` means where it does not depend on the rows."""
    if gamma == "auto":
        return 1.0 / n_features
    return gamma_per_feature(gamma) / n_features if isinstance(gamma, str) else float(gamma)


def scale_gamma(mean, variance, n, n_features):
    """Return what "scale" means for n rows whose entries have this mean and variance."""
    rounding = (n * np.finfo(np.float64).eps * mean) ** 2  # of the mean: entries that are all alike have no variance
    return float(1.0 / (n_features * variance)) if variance > rounding else 1.0


def sum_of_entries(X, weights):
    """Return the sum of all entries, each times its row's weight."""
    return weights @ np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()


def spread_of_entries(X, weights, centre):
    """Return the sum of (x − centre)² over all entries, each times its row's weight."""
    n = X.shape[0]
    step = max(1, _ENTRIES * n // max(1, X.nnz if sp.issparse(X) else X.size))
    parts = [slice(start, start + step) for start in range(0, n, step)]
    return sum(weights[part] @ _square_distances(X[part], centre) for part in parts)


def _square_distances(X, centre):
    """Return the sum of (x − centre)² over the entries of each row."""
    if not sp.issparse(X):
        centred = np.subtract(X, centre, dtype=np.float64)
        return np.einsum("ij,ij->i", centred, centred)
    squares = sp.csr_array((np.subtract(X.data, centre, dtype=np.float64) ** 2, X.indices, X.indptr), shape=X.shape)
    return squares @ np.ones(X.shape[1]) + (X.shape[1] - np.diff(X.indptr)) * centre**2


# ---------------------------------------------------------------------- values between training rows

_DENSE_FROM = 0.05  # share of non-zeros from which on dense products of sparse rows are faster
_SAFE = 8.0  # γ(‖x‖² + ‖x'‖²) up to which an inner product leaves no more than a few rounding errors in a distance
_LOST = 1e-14  # of γ(‖x‖² + ‖x'‖²): more than an inner product loses of γ‖x − x'‖²


class _Rows(NamedTuple):
    """Rows ready for products with others, as float64."""

    # CSR, or an array: for the RBF kernel of centred rows x with two more entries, 1 and −γ‖x‖²
    values: Any
    squares: np.ndarray | None = None  # γ‖x‖², RBF kernel only
    given: Any = None  # RBF kernel only: the rows as they were, for a centre far away costs differences their digits

    def part(self, which):
        return _Rows(*(None if entry is None else entry[which] for entry in self))


def _is_sparse_enough(X):
    return sp.issparse(X) and X.nnz < _DENSE_FROM * X.shape[0] * X.shape[1]


def _centre(kernel, X, sparse):
    """Return what to subtract from all rows: distances do not mind, rounding does. None where rows stay sparse."""
    if sparse or not kernel.is_radial:
        return None
    return np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()


def _prepare(kernel, X, centre, sparse):
    if sparse:
        values = sp.csr_matrix(X, dtype=np.float64)
        if not values.has_canonical_format:
            values = values.copy()
            values.sum_duplicates()
        if not kernel.is_radial:
            return _Rows(values)
        return _Rows(values, kernel.gamma * np.asarray(values.multiply(values).sum(axis=1)).ravel(), values)
    values = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    if not kernel.is_radial:
        return _Rows(values)
    centred = values - centre
    squares = kernel.gamma * np.einsum("ij,ij->i", centred, centred)
    return _Rows(np.hstack([centred, np.ones((len(values), 1)), -squares[:, None]]), squares, values)


def _values(kernel, left, right, out=None):
    """Return the kernel values between prepared rows, written by one matrix product and operations in place."""
    shape = left.values.shape[0], right.values.shape[0]
    values = np.empty(shape) if out is None else out
    if sp.issparse(left.values):
        values[:] = (left.values @ right.values.T).toarray()
    elif kernel.is_radial:
        # The two entries behind a centred row x, 1 and −γ‖x‖², make the product −γ‖x − x'‖².
        scaled = 2.0 * kernel.gamma * left.values[:, :-2]
        np.matmul(np.hstack([scaled, left.values[:, :-3:-1]]), right.values.T, out=values)
    else:
        np.matmul(left.values, right.values.T, out=values)
    if kernel.is_radial:
        _complete_exponents(kernel.gamma, left, right, values)
        exponentials(values.reshape(-1), kernel.bias)
        return values
    _apply(kernel, values)
    if kernel.bias:
        values += kernel.bias
    return values


# What a kernel makes of γ x·x' + coef0, in place.
_OF_PRODUCTS = {
    "poly": lambda kernel, values: np.power(values, kernel.degree, out=values),
    "sigmoid": lambda kernel, values: np.tanh(values, out=values),
}


def _apply(kernel, values):
    """Turn inner products into values of a kernel that is a function of them, in place."""
    if kernel.is_linear:
        return
    values *= kernel.gamma
    values += kernel.coef0
    _OF_PRODUCTS[kernel.name](kernel, values)


def _complete_exponents(gamma, left, right, exponents):
    """Turn products into −γ‖x − x'‖², which rounding may leave a little above zero for equal rows.

    An inner product of rows leaves an error of some ε γ(‖x‖² + ‖x'‖²), which is a relative error of the kernel value.
    Pairs of which that is too much, near beside their distance from the centre, are computed again by differences.
    """
    sparse = sp.issparse(left.values)
    if sparse:
        exponents *= 2.0 * gamma
        exponents -= left.squares[:, None]
        exponents -= right.squares
    largest = right.squares.max(initial=0.0)
    if not left.squares.max(initial=0.0) + largest <= _SAFE:  # nan and infinity are not safe either
        if sparse:
            parts = [(rows.given.data, rows.given.indices, rows.given.indptr) for rows in (left, right)]
            _sparse_differences(gamma, *parts[0], *parts[1], left.squares, right.squares, largest, exponents)
        else:
            _differences(gamma, left.given, right.given, left.squares, right.squares, largest, exponents)


@njit(cache=True, nogil=True)
def _is_doubtful(exponent, size, depth):
    """Tell whether the error of an exponent shows in its kernel value."""
    return size > _SAFE and not exponent + _LOST * size < depth


@njit(cache=True, nogil=True)
def _differences(gamma, X, Y, x_squares, y_squares, largest, exponents):
    for i in range(len(X)):
        if x_squares[i] + largest <= _SAFE:
            continue
        depth, x = -np.log(x_squares[i] + largest), X[i]
        for j in range(len(Y)):
            if _is_doubtful(exponents[i, j], x_squares[i] + y_squares[j], depth):
                y, total = Y[j], 0.0
                for k in range(len(x)):
                    total += (x[k] - y[k]) ** 2
                exponents[i, j] = -gamma * total


@njit(cache=True, nogil=True)
def _sparse_differences(
    gamma, x_data, x_indices, x_indptr, y_data, y_indices, y_indptr, x_squares, y_squares, largest, exponents
):
    for i in range(len(x_squares)):
        if x_squares[i] + largest <= _SAFE:
            continue
        depth = -np.log(x_squares[i] + largest)
        for j in range(len(y_squares)):
            if not _is_doubtful(exponents[i, j], x_squares[i] + y_squares[j], depth):
                continue
            p, p_end, q, q_end = x_indptr[i], x_indptr[i + 1], y_indptr[j], y_indptr[j + 1]
            total = 0.0
            while p < p_end or q < q_end:
                if q == q_end or (p < p_end and x_indices[p] < y_indices[q]):
                    difference = x_data[p]
                    p += 1
                elif p == p_end or y_indices[q] < x_indices[p]:
                    difference = y_data[q]
                    q += 1
                else:
                    difference = x_data[p] - y_data[q]
                    p += 1
                    q += 1
                total += difference**2
            exponents[i, j] = -gamma * total


# ---------------------------------------------------------------------- exponentials

# ln 2 in two parts: products of the first with whole numbers up to 2^20 are exact.
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_PER_LN2 = 1.0 / np.log(2.0)
_TO_WHOLE = 1.5 * 2.0**52  # a number of moderate size that was added to it has lost its fraction
_LEAST_EXPONENT = -708.0  # below it the exponential has fewer digits than others, and is nothing beside any


@njit(cache=True, nogil=True)
def _shifted(factor, carrier):
    """Return factor * 2^k, given k + ``_TO_WHOLE``, by adding the whole number k to the exponent's bits."""
    bits = np.float64(factor).view(np.int64) + (np.float64(carrier).view(np.int64) << np.int64(52))
    return np.int64(bits).view(np.float64)


@njit(cache=True, nogil=True, fastmath={"contract"})
def exponentials(values, shift):
    """Replace values x by exp(min(x, 0)) + shift.

    NumPy's exponential handles one number at a time on processors without AVX-512, and takes five times as long. With
    k the whole number nearest to x / ln 2, exp(x) is 2^k times the exponential of a remainder of at most half of ln 2,
    whose Taylor polynomial of degree 13 leaves 4e-18. Together with rounding, the relative error is below 4 · 2^-53.
    """
    for i in range(len(values)):
        x = 0.0 if values[i] > 0.0 else values[i]
        x = _LEAST_EXPONENT if x < _LEAST_EXPONENT else x
        carrier = x * _PER_LN2 + _TO_WHOLE
        k = carrier - _TO_WHOLE
        r = (x - k * _LN2_HIGH) - k * _LN2_LOW
        # Pairs of terms first (Estrin): the processor works on several at once.
        square = r * r
        fourth = square * square
        low = (1.0 + r) + square * (1.0 / 2.0 + r * (1.0 / 6.0))
        middle = (1.0 / 24.0 + r * (1.0 / 120.0)) + square * (1.0 / 720.0 + r * (1.0 / 5040.0))
        high = (1.0 / 40320.0 + r * (1.0 / 362880.0)) + square * (1.0 / 3628800.0 + r * (1.0 / 39916800.0))
        top = 1.0 / 479001600.0 + r * (1.0 / 6227020800.0)
        polynomial = low + fourth * (middle + fourth * (high + fourth * top))
        result = _shifted(polynomial, carrier)
        values[i] = (0.0 if x <= _LEAST_EXPONENT else result) + shift


_NARROW = 64  # features up to which making an exponential of a product takes longer than the product
_HEIGHT, _HEIGHT_OF_WIDE = 64, 128  # rows of values that one thread computes at a time


class Pairs:
    """Kernel values between training rows.

    Parameters
    ----------
    X : ndarray or CSR of shape (n, n_features)
    kernel : Kernel
    n_jobs : int
        Threads. What one of them computes at a time depends on the shape alone, so that values have the same bits for
        any number.
    """

    def __init__(self, X, kernel, n_jobs=1):
        self.X, self.kernel = X, kernel
        self.n = X.shape[0]
        self.n_jobs = 1 if kernel.is_given else n_jobs  # a function of the user's may not bear threads
        self._height = _HEIGHT if X.shape[1] <= _NARROW else _HEIGHT_OF_WIDE
        if not kernel.is_given:
            sparse = _is_sparse_enough(X)
            self.rows = _prepare(kernel, X, _centre(kernel, X, sparse), sparse)

    def __call__(self, which, others=slice(None)):
        """Return the values between the rows ``which`` and ``others``, which may be slices."""
        if self.kernel.is_given:
            return self._given(which, others)
        left, right = self.rows.part(which), self.rows.part(others)
        n = left.values.shape[0]
        values = np.empty((n, right.values.shape[0]))

        def compute(begin):
            part = slice(begin, begin + self._height)
            _values(self.kernel, left.part(part), right, values[part])

        self.each(compute, range(0, n, self._height))
        return values

    def take(self, which):
        """Return the rows ``which`` for :meth:`between`."""
        return which if self.kernel.is_given else self.rows.part(which)

    def between(self, rows, others):
        """Return the values between rows that were taken and ``others``, computed by the thread that asks."""
        if self.kernel.is_given:
            return self._given(rows, others)
        return _values(self.kernel, rows, self.rows.part(others))

    def each(self, work, items):
        """Return what ``work`` returns for each item, in order; in threads, if there may be several."""
        if self.n_jobs == 1 or len(items) < 2:
            return [work(item) for item in items]
        return list(self._pool.map(work, items))

    @functools.cached_property
    def _pool(self):
        return ThreadPoolExecutor(self.n_jobs)

    def _given(self, which, others):
        if callable(self.kernel.name):
            return self.kernel(self.X[which], self.X[others])
        values = self.X[which][:, others]
        values = values.toarray() if sp.issparse(values) else values
        return np.array(values, dtype=np.float64) + self.kernel.bias

    def diagonal(self):
        """Return the kernel values of each row with itself."""
        kernel = self.kernel
        if kernel.is_precomputed:
            return np.array(self.X.diagonal(), dtype=np.float64) + kernel.bias
        if kernel.is_radial:
            return np.full(self.n, 1.0 + kernel.bias)
        if callable(kernel.name):
            return np.array([self(slice(i, i + 1), slice(i, i + 1))[0, 0] for i in range(self.n)])
        rows = self.rows.values
        squares = rows.multiply(rows).sum(axis=1) if sp.issparse(rows) else np.einsum("ij,ij->i", rows, rows)
        values = np.array(squares).ravel()
        _apply(kernel, values)
        return values + kernel.bias

    def strips(self, height, work):
        """Yield what ``work(begin, end, values)`` returns for the upper half of all values, in order.

        ``values`` are those of the rows from begin to end with the rows from begin on. Each thread has one such strip.
        """

        def on_strip(begin):
            end = min(begin + height, self.n)
            return work(begin, end, self._strip(begin, end))

        begins = range(0, self.n, height)
        for first in range(0, len(begins), self.n_jobs):
            yield from self.each(on_strip, begins[first : first + self.n_jobs])

    def _strip(self, begin, end):
        if self.kernel.is_given:
            return self._given(slice(begin, end), slice(begin, None))
        rows = self.rows
        return _values(self.kernel, rows.part(slice(begin, end)), rows.part(slice(begin, None)))
