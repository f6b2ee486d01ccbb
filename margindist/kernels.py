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
from sklearn.metrics.pairwise import pairwise_kernels

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

# The parameters each named kernel takes.
_PARAMETERS = {
    "linear": (),
    "rbf": ("gamma",),
    "poly": ("gamma", "degree", "coef0"),
    "sigmoid": ("gamma", "coef0"),
}


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
        if self.name == "precomputed":
            values = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
        elif callable(self.name):
            values = np.asarray(self.name(X, Y), dtype=np.float64)
        else:
            parameters = {name: getattr(self, name) for name in _PARAMETERS[self.name]}
            values = np.asarray(pairwise_kernels(X, Y, metric=self.name, **parameters), dtype=np.float64)
        if self.bias:
            values = values + self.bias
        return values


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


class _Pairs:
    """Kernel values between training rows, written by one matrix product and operations in place."""

    def __init__(self, X, kernel):
        self.X, self.kernel = X, kernel
        self.n = X.shape[0]
        self.plain = callable(kernel.name) or kernel.name == "precomputed"
        if self.plain:
            return
        self.sparse = sp.issparse(X) and X.nnz < _DENSE_FROM * X.shape[0] * X.shape[1]
        if self.sparse:
            self.right = sp.csr_matrix(X, dtype=np.float64)
        else:
            self.right = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
        if kernel.name != "rbf":
            return
        if self.sparse:
            self.squares = kernel.gamma * np.asarray(self.right.multiply(self.right).sum(axis=1)).ravel()
        else:
            # −γ‖x − x'‖² as one inner product of rows with two more entries; distances do not mind the centring,
            # rounding does.
            centred = self.right - self.right.mean(axis=0)
            squares = kernel.gamma * np.einsum("ij,ij->i", centred, centred)[:, None]
            self.right = np.hstack([centred, np.ones((self.n, 1)), -squares])

    def __call__(self, which, others=slice(None)):
        """Return the values between the rows ``which`` and ``others``, which may be slices."""
        kernel = self.kernel
        if kernel.name == "precomputed":
            values = self.X[which][:, others]
            values = values.toarray() if sp.issparse(values) else values
            return np.array(values, dtype=np.float64) + kernel.bias
        if callable(kernel.name):
            return kernel(self.X[which], self.X[others])
        values = self._products(which, others)
        if kernel.name == "rbf":
            np.minimum(values, 0.0, out=values)
            np.exp(values, out=values)
        elif kernel.name in ("poly", "sigmoid"):
            values *= kernel.gamma
            values += kernel.coef0
            if kernel.name == "sigmoid":
                np.tanh(values, out=values)
            else:
                np.power(values, kernel.degree, out=values)
        if kernel.bias:
            values += kernel.bias
        return values

    def _products(self, which, others):
        """Return inner products, for the RBF kernel its exponents."""
        if self.sparse:
            values = (self.right[which] @ self.right[others].T).toarray()
            if self.kernel.name == "rbf":
                values *= 2.0 * self.kernel.gamma
                values -= self.squares[which][:, None]
                values -= self.squares[others]
            return values
        left = self.right[which]
        if self.kernel.name == "rbf":
            left = np.hstack([2.0 * self.kernel.gamma * left[:, :-2], left[:, -1:], left[:, -2:-1]])
        return left @ self.right[others].T

    def diagonal(self):
        """Return the kernel values of each row with itself."""
        kernel = self.kernel
        if kernel.name == "precomputed":
            return np.array(self.X.diagonal(), dtype=np.float64) + kernel.bias
        if kernel.name == "rbf":
            return np.full(self.n, 1.0 + kernel.bias)
        if callable(kernel.name):
            return np.array([self(slice(i, i + 1), slice(i, i + 1))[0, 0] for i in range(self.n)])
        right = self.right
        values = np.asarray(right.multiply(right).sum(axis=1)).ravel() if self.sparse else (right**2).sum(axis=1)
        if kernel.name != "linear":
            values = kernel.gamma * values + kernel.coef0
            values = np.tanh(values) if kernel.name == "sigmoid" else values**kernel.degree
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
        Most memory to take, beside one float64 copy of ``X``; never less than a few rows take.
    """

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
    kept: Any = None  # as in :class:`FullGram`

    def row_coefficients(self, coef):
        """Return one coefficient a training row from the weights of the features."""
        alpha = np.zeros(len(self.features))
        alpha[self.pivots] = self.to_coef @ coef
        return alpha if self.kept is None else self.kept.project(alpha)


def _finish(features, pivots, diagonal, indefinite):
    left = diagonal - np.einsum("ij,ij->i", features, features)
    top = np.abs(diagonal).max(initial=0.0)
    lower = features[pivots]
    to_coef = solve_triangular(lower, np.eye(len(pivots)), lower=True, trans="T") if len(pivots) else lower.T
    indefinite = bool(indefinite or left.min(initial=0.0) < -1e-8 * top)
    return Factor(features, pivots, to_coef, float(np.maximum(left, 0.0).sum()), indefinite)


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


def is_indefinite(gram, rng, tol=1e-9):
    """Tell whether the matrix has a negative eigenvalue below ``-tol`` times its largest one.

    Small matrices are decided by all their eigenvalues. For large ones the diagonal, then Lanczos' method, look for
    one; what they find is there, a small one may escape them.
    """
    if gram.n == 0 or gram.diagonal.min() < 0.0:
        return gram.n > 0
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
    kept = Kept(vectors[:, positive], root)
    vectors = kept.vectors * np.sqrt(values[positive]) / root[:, None]
    return FullGram(vectors @ vectors.T, kept)
