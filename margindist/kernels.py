r"""Mercer kernels, and Gram matrices that never take more memory than they are given.

A :class:`Kernel` is an immutable value: name and numbers, already resolved against the training data. The matrix of its
values between all training rows is seen through a *Gram provider*, :class:`FullGram` or :class:`CachedGram`, with one
interface:

==================================  ==================================================================
``n``, ``diagonal``                 number of rows, and the diagonal
``whole()``                         the provider that holds all values, if they fit, else the same one
``columns(which)``                  some columns, as the rows of a C-contiguous array
``block(which)``                    the square of those rows and columns
``add_columns(which, coef, out)``   ``out += G[:, which] @ coef``
``dot(V)``                          ``G @ V`` for a vector or a thin matrix
``row_coefficients(coef)``          coefficients (last axis) for the kernel as it is, if G was clipped
==================================  ==================================================================

:func:`gram_matrix` picks the provider by a limit in bytes. Of the symmetric matrix only one half is ever evaluated, a
strip of rows at a time.

**Features.** With pivots S, :func:`partial_cholesky` makes :math:`F = G_{\cdot S} L^{-T}`, :math:`L L^T = G_{SS}`, so
that :math:`F F^T \approx G` with a remainder that is positive semi-definite and zero on S: a linear method on the
rows of F is the kernel method on a slightly smaller kernel, and weights ``w`` of the columns of F are coefficients
:math:`L^{-T} w` of the rows S. Pivots are drawn in proportion to what is left of the diagonal (randomly pivoted
Cholesky, Chen, Epperly, Tropp and Webber 2025), many at a time; :func:`cholesky_factor` takes the largest one each
time (LAPACK ``pstrf``).
"""

import threading
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import njit
from scipy.linalg import eigh, eigh_tridiagonal, eigvalsh, solve_triangular
from scipy.linalg.lapack import dpstrf

__all__ = [
    "KERNELS",
    "CachedGram",
    "Factor",
    "FullGram",
    "Kernel",
    "cholesky_factor",
    "clip_spectrum",
    "gamma_per_feature",
    "gram_bytes",
    "gram_matrix",
    "is_indefinite",
    "nystroem",
    "partial_cholesky",
    "resolve_gamma",
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
    def is_mercer(self):
        """Whether the kernel is known to have no negative eigenvalues."""
        return self.name in ("linear", "rbf") or (self.name == "poly" and self.coef0 >= 0.0)

    @property
    def is_given(self):
        """Whether the values come from the user, as a matrix or by a function of theirs."""
        return callable(self.name) or self.name == "precomputed"

    def _given(self, X, Y):
        values = self.name(X, Y) if callable(self.name) else X
        values = values.toarray() if sp.issparse(values) else values
        return np.asarray(values, dtype=np.float64) + (self.bias or 0.0)


def gamma_per_feature(text):
    """Return the number before "/d" in a string such as "5/d"; nan if it is no such string."""
    number, slash, rest = text.partition("/")
    try:
        value = float(number) if slash and rest.strip() == "d" else np.nan
    except ValueError:
        value = np.nan
    return value if np.isfinite(value) else np.nan


_ENTRIES = 2**20  # that are centred at a time


def resolve_gamma(gamma, X, weights):
    """Return the number that ``gamma`` means for these rows: itself, "scale" or "auto" as in scikit-learn.

    A string such as "5/d" means that number divided by the number of features.

    "scale" is ``1 / (n_features * variance of all entries)``; rows count by their weights, so that a weight of two is
    the row given twice.
    """
    if gamma == "auto":
        return 1.0 / X.shape[1]
    if isinstance(gamma, str) and gamma != "scale":
        return gamma_per_feature(gamma) / X.shape[1]
    if gamma != "scale":
        return float(gamma)
    n, d = X.shape
    total = weights.sum() * d
    mean = weights @ np.asarray(X.sum(axis=1, dtype=np.float64)).ravel() / total
    step = max(1, _ENTRIES * n // max(1, X.nnz if sp.issparse(X) else X.size))
    parts = [slice(start, start + step) for start in range(0, n, step)]
    variance = sum(weights[part] @ _square_distances(X[part], mean) for part in parts) / total
    rounding = (n * np.finfo(np.float64).eps * mean) ** 2  # of the mean: entries that are all alike have no variance
    return float(1.0 / (d * variance)) if variance > rounding else 1.0


def _square_distances(X, centre):
    """Return the sum of (x − centre)² over the entries of each row."""
    if not sp.issparse(X):
        centred = np.subtract(X, centre, dtype=np.float64)
        return np.einsum("ij,ij->i", centred, centred)
    squares = sp.csr_array((np.subtract(X.data, centre, dtype=np.float64) ** 2, X.indices, X.indptr), shape=X.shape)
    return squares @ np.ones(X.shape[1]) + (X.shape[1] - np.diff(X.indptr)) * centre**2


# ---------------------------------------------------------------------- values between training rows

_STRIP = 256  # rows of the Gram matrix evaluated at a time
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
    if kernel.name != "rbf" or sparse:
        return None
    return np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()


def _prepare(kernel, X, centre, sparse):
    if sparse:
        values = sp.csr_matrix(X, dtype=np.float64)
        if not values.has_canonical_format:
            values = values.copy()
            values.sum_duplicates()
        if kernel.name != "rbf":
            return _Rows(values)
        return _Rows(values, kernel.gamma * np.asarray(values.multiply(values).sum(axis=1)).ravel(), values)
    values = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    if kernel.name != "rbf":
        return _Rows(values)
    centred = values - centre
    squares = kernel.gamma * np.einsum("ij,ij->i", centred, centred)
    return _Rows(np.hstack([centred, np.ones((len(values), 1)), -squares[:, None]]), squares, values)


def _values(kernel, left, right):
    """Return the kernel values between prepared rows, written by one matrix product and operations in place."""
    if kernel.name == "rbf":
        values = _exponents(kernel.gamma, left, right)
        np.exp(values, out=values)
    else:
        values = left.values @ right.values.T
        values = values.toarray() if sp.issparse(values) else values
        _apply(kernel, values)
    if kernel.bias:
        values += kernel.bias
    return values


def _apply(kernel, values):
    """Turn inner products into values of a kernel that is a function of them, in place."""
    if kernel.name == "linear":
        return
    values *= kernel.gamma
    values += kernel.coef0
    if kernel.name == "sigmoid":
        np.tanh(values, out=values)
    else:
        np.power(values, kernel.degree, out=values)


def _exponents(gamma, left, right):
    """Return −γ‖x − x'‖² for all pairs.

    An inner product of rows leaves an error of some ε γ(‖x‖² + ‖x'‖²), which is a relative error of the kernel value.
    Pairs of which that is too much, near beside their distance from the centre, are computed again by differences.
    """
    if sp.issparse(right.values):
        exponents = (left.values @ right.values.T).toarray()
        exponents *= 2.0 * gamma
        exponents -= left.squares[:, None]
        exponents -= right.squares
    else:
        rows = left.values
        rows = np.hstack([2.0 * gamma * rows[:, :-2], rows[:, -1:], rows[:, -2:-1]])
        exponents = rows @ right.values.T
    largest = right.squares.max(initial=0.0)
    if not left.squares.max(initial=0.0) + largest <= _SAFE:  # nan and infinity are not safe either
        if sp.issparse(right.values):
            parts = [(rows.given.data, rows.given.indices, rows.given.indptr) for rows in (left, right)]
            _sparse_differences(gamma, *parts[0], *parts[1], left.squares, right.squares, largest, exponents)
        else:
            _differences(gamma, left.given, right.given, left.squares, right.squares, largest, exponents)
    return np.minimum(exponents, 0.0, out=exponents)


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


class _Pairs:
    """Kernel values between training rows."""

    def __init__(self, X, kernel):
        self.X, self.kernel = X, kernel
        self.n = X.shape[0]
        if not kernel.is_given:
            sparse = _is_sparse_enough(X)
            self.rows = _prepare(kernel, X, _centre(kernel, X, sparse), sparse)

    def __call__(self, which, others=slice(None)):
        """Return the values between the rows ``which`` and ``others``, which may be slices; a new array."""
        if callable(self.kernel.name):
            return self.kernel(self.X[which], self.X[others])
        if self.kernel.name == "precomputed":
            values = self.X[which][:, others]
            values = values.toarray() if sp.issparse(values) else values
            return np.array(values, dtype=np.float64) + self.kernel.bias
        return _values(self.kernel, self.rows.part(which), self.rows.part(others))

    def diagonal(self):
        """Return the kernel values of each row with itself."""
        kernel = self.kernel
        if kernel.name == "precomputed":
            return np.array(self.X.diagonal(), dtype=np.float64) + kernel.bias
        if kernel.name == "rbf":
            return np.full(self.n, 1.0 + kernel.bias)
        if callable(kernel.name):
            return np.array([self(slice(i, i + 1), slice(i, i + 1))[0, 0] for i in range(self.n)])
        rows = self.rows.values
        squares = rows.multiply(rows).sum(axis=1) if sp.issparse(rows) else np.einsum("ij,ij->i", rows, rows)
        values = np.array(squares).ravel()
        _apply(kernel, values)
        return values + kernel.bias

    def strips(self, height):
        """Yield ``(begin, end, values)``: the rows from begin to end, and their values with the rows from begin on."""
        for begin in range(0, self.n, height):
            end = min(begin + height, self.n)
            yield begin, end, self(slice(begin, end), slice(begin, None))


@njit(cache=True, nogil=True)
def _add_rows(values, which, coef, out):
    for k in range(len(which)):
        row, scale = values[which[k]], coef[k]
        for j in range(len(row)):
            out[j] += scale * row[j]


@njit(cache=True, nogil=True)
def _square(values, which, out):
    for i in range(len(which)):
        row = values[which[i]]
        for j in range(len(which)):
            out[i, j] = row[which[j]]
    return out


# ---------------------------------------------------------------------- Gram providers


class FullGram:
    """A Gram matrix that is held as a whole.

    Parameters
    ----------
    values : ndarray of shape (n, n), float64, symmetric
    kept : Kept, optional
        What :func:`clip_spectrum` left of an indefinite kernel's matrix.
    """

    def __init__(self, values, kept=None):
        self.values, self.kept = values, kept
        self.n = len(values)
        self.diagonal = values.diagonal().copy()

    def whole(self):
        """Return the provider that holds the whole matrix: itself."""
        return self

    def columns(self, which):
        """Return the columns ``which`` as rows of an array."""
        return self.values[which]

    def block(self, which):
        """Return the square block of the rows and columns ``which``."""
        return _square(self.values, which, np.empty((len(which), len(which))))

    def add_columns(self, which, coef, out):
        """Add the columns ``which``, each times its coefficient, to ``out``."""
        _add_rows(self.values, which, coef, out)

    def dot(self, V):
        """Return the product with a vector or a thin matrix."""
        return self.values @ V

    def row_coefficients(self, coef):
        """Return coefficients with which the kernel as it is gives the training rows what G gives them with these."""
        return coef if self.kept is None else self.kept.project(coef)


class CachedGram:
    """A Gram matrix whose columns are computed when asked for, and kept while there is room.

    Half of the limit holds the columns used last, the other half what is being computed. Providers may be shared
    between threads.

    Parameters
    ----------
    X : ndarray or CSR of shape (n, n_features)
    kernel : Kernel
    max_bytes : int
        Most memory to take, beside two float64 copies of ``X``; never less than a few rows take.
    """

    kept = None  # nothing is clipped

    def __init__(self, X, kernel, max_bytes):
        self._pairs = _Pairs(X, kernel)
        self.n = X.shape[0]
        self.diagonal = self._pairs.diagonal()
        self._fits = gram_bytes(self.n) <= max_bytes
        self._whole = None
        room = max_bytes / (8 * self.n)  # columns
        self._height = int(np.clip(room / 4, 1, _STRIP))
        self._cache = np.empty((0 if self._fits else int(room / 2), self.n))
        self._slot = np.full(self.n, -1)  # where a column is kept
        n_slots = len(self._cache)
        self._owner = np.full(n_slots, -1)  # whose column a slot holds
        self._used = np.zeros(n_slots, dtype=np.int64)  # when it was last asked for
        self._clock = 0
        self._lock = threading.Lock()

    def whole(self):
        """Return the whole matrix if it fits into the limit, else this provider.

        Its making takes one strip of rows more than the matrix. It is kept: the next call returns the same.
        """
        if not self._fits:
            return self
        with self._lock:
            if self._whole is None:
                values = np.empty((self.n, self.n))
                for begin, end, strip in self._pairs.strips(_STRIP):
                    values[begin:end, begin:] = strip
                    values[end:, begin:end] = strip[:, end - begin :].T
                self._whole = FullGram(values)
            return self._whole

    def columns(self, which):
        """Return the columns ``which`` as rows of an array."""
        return self._pairs(which)

    def block(self, which):
        """Return the square block of the rows and columns ``which``."""
        return self._pairs(which, which)

    def row_coefficients(self, coef):
        """Return the coefficients: G is the kernel as it is."""
        return coef

    def add_columns(self, which, coef, out):
        """Add the columns ``which``, each times its coefficient, to ``out``."""
        with self._lock:
            self._clock += 1
            slots = self._slot[which]
            known = slots >= 0
            self._used[slots[known]] = self._clock
            _add_rows(self._cache, slots[known], coef[known], out)
            missing, coef = which[~known], coef[~known]
            for begin in range(0, len(missing), self._height):
                part = missing[begin : begin + self._height]
                values = self._pairs(part)
                out += coef[begin : begin + self._height] @ values
                self._keep(part, values)

    def _keep(self, which, values):
        free = np.flatnonzero(self._used < self._clock)
        if len(free) > len(which):
            free = free[np.argpartition(self._used[free], len(which) - 1)[: len(which)]]
        which, values = which[: len(free)], values[: len(free)]
        evicted = self._owner[free]
        self._slot[evicted[evicted >= 0]] = -1
        self._cache[free] = values
        self._owner[free], self._slot[which], self._used[free] = which, free, self._clock

    def dot(self, V):
        """Return the product with a vector or a thin matrix; every kernel value is computed once."""
        out = np.zeros_like(V, dtype=np.float64)
        for begin, end, values in self._pairs.strips(self._height):
            out[begin:end] += values @ V[begin:]
            out[end:] += values[:, end - begin :].T @ V[begin:end]
        return out


def gram_bytes(n):
    """Return the size of a whole Gram matrix of ``n`` rows."""
    return 8 * n * n


def gram_matrix(X, kernel, max_bytes=np.inf):
    """Return a provider for the rows of ``X`` that computes nothing yet and takes at most ``max_bytes``.

    A solver that needs more than a few columns calls ``whole()``, which makes the matrix once if it fits into the
    limit. A precomputed float64 matrix is used as it is, unless ``kernel.bias`` asks for a sum.
    """
    if kernel.name == "precomputed" and not sp.issparse(X) and X.dtype == np.float64 and not kernel.bias:
        return FullGram(X)
    return CachedGram(X, kernel, max_bytes)


# ---------------------------------------------------------------------- features


class Factor(NamedTuple):
    """Features ``F`` with ``F Fᵀ ≈ G``, and the way back from their weights to coefficients of training rows."""

    features: np.ndarray  # (n, rank), C-contiguous
    pivots: np.ndarray  # (rank,), rows that span the others
    to_coef: np.ndarray  # (rank, rank): to_coef @ w are the coefficients of the rows ``pivots``
    remainder: float  # trace of G − F Fᵀ
    indefinite: bool  # a negative eigenvalue showed
    diagonal: np.ndarray  # of G
    kept: Any = None  # as in :class:`FullGram`

    def coefficients(self, weights):
        """Return one coefficient per training row from the weights of the features; for G, clipped or not."""
        alpha = np.zeros(len(self.features))
        if len(self.pivots):  # by the triangle itself, which rounds less than its inverse
            alpha[self.pivots] = solve_triangular(self.features[self.pivots], weights, lower=True, trans="T")
        return alpha

    def row_coefficients(self, coef):
        """Return coefficients with which the kernel as it is gives the training rows what G gives them with these."""
        return coef if self.kept is None else self.kept.project(coef)


def _finish(features, pivots, diagonal, indefinite):
    left = diagonal - np.einsum("ij,ij->i", features, features)
    top = np.abs(diagonal).max(initial=0.0)
    lower = features[pivots]
    to_coef = solve_triangular(lower, np.eye(len(pivots)), lower=True, trans="T") if len(pivots) else lower.T
    indefinite = bool(indefinite or left.min(initial=0.0) < -1e-8 * top)
    return Factor(features, pivots, to_coef, float(np.maximum(left, 0.0).sum()), indefinite, diagonal)


def partial_cholesky(gram, n_components, rng, tol=1e-10):
    """Return features of rank at most ``n_components`` from as many columns, drawn as the module describes.

    Parameters
    ----------
    gram : FullGram or CachedGram
        Where the columns come from.
    n_components : int
        Largest rank.
    rng : numpy.random.Generator
        Draws the pivots.
    tol : float
        Stop when this share of the trace is left.

    Returns
    -------
    Factor
    """
    n_components = min(n_components, gram.n)
    features = np.zeros((gram.n, n_components))
    left = np.maximum(gram.diagonal, 0.0)
    top, trace, rank = left.max(initial=0.0), left.sum(), 0
    pivots = np.empty(0, dtype=np.intp)
    while rank < n_components and left.sum() > tol * trace:
        chance = left / left.sum()
        size = min(max(8, n_components // 8), n_components - rank, np.count_nonzero(chance))
        drawn = rng.choice(gram.n, size, replace=False, p=chance)
        columns = gram.columns(drawn)
        columns -= features[drawn, :rank] @ features[:, :rank].T
        lower, order, kept, _ = dpstrf(columns[:, drawn], tol=max(1e-12 * top, 1e-3 * left[drawn].min()), lower=1)
        chosen = order[:kept] - 1
        new = solve_triangular(np.tril(lower[:kept, :kept]), columns[chosen], lower=True, check_finite=False)
        features[:, rank : rank + kept] = new.T
        pivots = np.append(pivots, drawn[chosen])
        left -= np.einsum("ij,ij->j", new, new)
        np.maximum(left, 0.0, out=left)
        left[drawn] = np.where(left[drawn] > 1e-10 * top, left[drawn], 0.0)
        left[pivots] = 0.0
        rank += kept
        if kept == 0:
            left[drawn] = 0.0
    features = features if rank == n_components else np.ascontiguousarray(features[:, :rank])
    return _finish(features, pivots, gram.diagonal, gram.diagonal.min(initial=0.0) < 0.0)


def nystroem(X, kernel, n_components, rng):
    """Return a Nystroem feature map of the training rows; landmarks are drawn by randomly pivoted Cholesky.

    Only the landmarks' columns of the Gram matrix are computed. With as many components as rows (or as the matrix
    has rank) the map is exact.

    Parameters
    ----------
    X : ndarray or CSR of shape (n, n_features)
        Training rows.
    kernel : Kernel
        Its bias counts as a feature like any other.
    n_components : int
        Most landmarks, and most features.
    rng : numpy.random.Generator
        Draws the landmarks.

    Returns
    -------
    Factor
    """
    return partial_cholesky(CachedGram(X, kernel, 0), n_components, rng)


def cholesky_factor(gram, tol=1e-10):
    """Return features of full numerical rank: pivoted Cholesky of the whole matrix (LAPACK ``pstrf``).

    Takes the memory of one more Gram matrix, and of the features. Pivots stop at ``tol`` times the largest entry of
    the diagonal.
    """
    gram = gram.whole()
    values = gram.values if isinstance(gram, FullGram) else gram.columns(np.arange(gram.n))
    top = max(gram.diagonal.max(initial=0.0), np.finfo(float).tiny)
    lower, order, rank, _ = dpstrf(values.T, tol=tol * top, lower=1)
    pivots = order - 1
    features = np.empty((gram.n, rank))
    features[pivots] = np.tril(lower[:, :rank])
    # A matrix may have negative eigenvalues and no negative entry on what is left of its diagonal; a product tells.
    probe = np.random.default_rng(0).standard_normal(gram.n)
    rest = gram.dot(probe) - features @ (features.T @ probe)
    indefinite = np.abs(rest).max() > 100.0 * np.sqrt(gram.n * tol) * top
    factor = _finish(features, pivots[:rank].astype(np.intp), gram.diagonal, indefinite)
    return factor._replace(kept=getattr(gram, "kept", None))


# ---------------------------------------------------------------------- indefinite matrices

_EXACT_BELOW = 500  # rows up to which all eigenvalues are computed
_LANCZOS_STEPS = 80


def is_indefinite(gram, rng):
    """Tell whether the matrix has a negative eigenvalue that is more than rounding of its largest one.

    However small beside that one, at a high price of errors it makes an objective without a minimum.

    Small matrices are decided by all their eigenvalues. For large ones the diagonal, then Lanczos' method, look for
    one; what they find is there, a small one may escape them.
    """
    if gram.n == 0 or gram.diagonal.min() < 0.0:
        return gram.n > 0
    tol = 8.0 * gram.n * np.finfo(float).eps
    if gram.n <= _EXACT_BELOW:
        values = eigvalsh(gram.columns(np.arange(gram.n)))
        return bool(values[0] < -tol * max(values[-1], 0.0))
    gram = gram.whole()
    basis = np.zeros((_LANCZOS_STEPS + 1, gram.n))
    start = rng.standard_normal(gram.n)
    basis[0] = start / np.linalg.norm(start)
    alpha, beta = np.zeros(_LANCZOS_STEPS), np.zeros(_LANCZOS_STEPS)
    for k in range(_LANCZOS_STEPS):
        image = gram.dot(basis[k])
        alpha[k] = image @ basis[k]
        for _ in range(2):
            image -= basis[: k + 1].T @ (basis[: k + 1] @ image)
        beta[k] = np.linalg.norm(image)
        if beta[k] <= 1e-12 * abs(alpha[0]):
            break
        basis[k + 1] = image / beta[k]
    ritz = eigh_tridiagonal(alpha[: k + 1], beta[:k], eigvals_only=True)
    return bool(ritz[0] < -tol * max(ritz[-1], 0.0))


class Kept(NamedTuple):
    """The positive part VΛV' of a weighted matrix W^½GW^½."""

    vectors: np.ndarray  # V, orthonormal
    root: np.ndarray  # the diagonal of W^½
    largest: float  # of the absolute eigenvalues, those that were clipped included

    def project(self, coef):
        """Return the coefficients (last axis) with which G gives the rows what its positive part gives with these."""
        return (coef / self.root) @ self.vectors @ self.vectors.T * self.root


def clip_spectrum(gram, weights=None):
    """Return the nearest positive semi-definite matrix: negative eigenvalues become zero.

    Costs all eigenvectors, and memory for three more matrices of that size. Weights make the matrix near in the sense
    in which a row of weight two is two rows. See :meth:`FullGram.row_coefficients` for the way back to the kernel.
    """
    root = np.ones(gram.n) if weights is None else np.sqrt(weights)
    matrix = root[:, None] * gram.columns(np.arange(gram.n)) * root
    values, vectors = eigh(matrix, overwrite_a=True, check_finite=False)
    positive = values > gram.n * np.finfo(float).eps * np.abs(values).max()
    kept = Kept(vectors[:, positive], root, float(np.abs(values).max()))
    vectors = kept.vectors * np.sqrt(values[positive]) / root[:, None]
    return FullGram(vectors @ vectors.T, kept)
