"""Gram matrices of training rows that never take more memory than they are given.

The matrix of a kernel's values between all training rows is seen through a *provider*, :class:`FullGram` or
:class:`CachedGram`, with one interface:

==================================  ==================================================================
``n``, ``diagonal``                 number of rows, and the diagonal
``whole()``                         the provider that holds all values, if they fit, else the same one
``room``                            most memory to take
``can_derive``                      whether there is memory for a matrix made of all values,
``derived(key, make)``              which is kept until one with another key is asked for
``columns(which)``                  some columns, as the rows of a C-contiguous array
``block(which)``                    the square of those rows and columns
``add_columns(which, coef, out)``   ``out += G[:, which] @ coef``; a fourth argument says which of them are needed again
``dot(V)``                          ``G @ V`` for a vector or a thin matrix
``image(coef)``                     ``G @ coef`` for coefficients that may be zero for most rows
``row_coefficients(coef)``          coefficients (last axis) for the kernel as it is, if G was clipped
==================================  ==================================================================

:func:`gram_matrix` picks the provider by a limit in bytes. Of the symmetric matrix only one half is ever evaluated, a
strip of rows at a time.
"""

import threading
from collections import deque
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh, eigh_tridiagonal, eigvalsh

from margindist.compilation import njit
from margindist.kernels import Kernel, Pairs
from margindist.spaces.rows import as_matrix

_CHEAP = 64  # features up to which a kernel value takes no longer than to keep it
_STRIP = 256  # rows of the matrix evaluated at a time
_RANGE = 1024  # entries of columns that one thread computes at a time: a strip of them stays in its cache
_LONG_RANGE = 16384  # the same of columns that are kept: long pieces are read faster


@njit(cache=True, nogil=True)
def _add_rows(values, which, coef, out, begin, end):
    """Add rows times their coefficients, four at a time: the sums are read and written less often.

    A sum has the same bits whatever the range, for its terms come in the same order.
    """
    in_fours = len(which) - len(which) % 4
    for k in range(0, in_fours, 4):
        first, second = values[which[k]], values[which[k + 1]]
        third, fourth = values[which[k + 2]], values[which[k + 3]]
        a, b, c, d = coef[k], coef[k + 1], coef[k + 2], coef[k + 3]
        for j in range(begin, end):
            out[j] += (a * first[j] + b * second[j]) + (c * third[j] + d * fourth[j])
    for k in range(in_fours, len(which)):
        row, scale = values[which[k]], coef[k]
        for j in range(begin, end):
            out[j] += scale * row[j]


@njit(cache=True, nogil=True)
def _copy_rows(values, which, into, slots, begin):
    for k in range(len(which)):
        row, copy = values[which[k]], into[slots[k]]
        for j in range(len(row)):
            copy[begin + j] = row[j]


@njit(cache=True, nogil=True)
def _square(values, which, out):
    for i in range(len(which)):
        row = values[which[i]]
        for j in range(len(which)):
            out[i, j] = row[which[j]]
    return out


def square_part(values, which):
    """Return the square part of a matrix with the rows and columns ``which``."""
    return _square(values, which, np.empty((len(which), len(which))))


def _image(gram, coef, n_missing):
    """Return G @ coef from the columns that count if fewer than half of them are missing, else from the matrix."""
    used = np.flatnonzero(coef)
    if 2 * min(len(used), n_missing) > gram.n:
        return gram.dot(coef)
    gram.add_columns(used, coef[used], out := np.zeros(gram.n))
    return out


class _Derived:
    """A matrix made of the values, kept until another one is asked for."""

    def __init__(self):
        self._key, self._matrix, self._making = None, None, threading.Lock()

    def of(self, key, make, values):
        """Return the matrix with this key, which ``make`` turns a copy of the values into."""
        with self._making:
            if key != self._key:
                self._key = self._matrix = None  # its memory is needed
                self._matrix = make(values())
                self._key = key
            return self._matrix


class FullGram:
    """A Gram matrix that is held as a whole.

    Parameters
    ----------
    values : ndarray of shape (n, n), float64, symmetric
    kept : Kept, optional
        What :func:`clip_spectrum` left of an indefinite kernel's matrix.
    max_bytes : int
        Most memory to take beside the values.
    """

    def __init__(self, values, kept=None, max_bytes=np.inf):
        self.values, self.kept = values, kept
        self.n = len(values)
        self.diagonal = values.diagonal().copy()
        self.room = max_bytes
        self.can_derive = gram_bytes(self.n) <= max_bytes
        self._derived = _Derived()

    def whole(self, beside=0):
        """Return the provider that holds the whole matrix: itself."""
        return self

    def derived(self, key, make):
        """Return ``make`` of a copy of all values, which is kept until another key is asked for."""
        return self._derived.of(key, make, self.values.copy)

    def columns(self, which):
        """Return the columns ``which`` as rows of an array."""
        return self.values[which]

    def block(self, which):
        """Return the square block of the rows and columns ``which``."""
        return square_part(self.values, which)

    def add_columns(self, which, coef, out, again=None):
        """Add the columns ``which``, each times its coefficient, to ``out``."""
        _add_rows(self.values, which, coef, out, 0, self.n)

    def dot(self, V):
        """Return the product with a vector or a thin matrix."""
        return self.values @ V

    def image(self, coef):
        """Return the product with coefficients that may be zero for most rows."""
        return _image(self, coef, self.n)

    def row_coefficients(self, coef):
        """Return coefficients with which the kernel as it is gives the training rows what G gives them with these."""
        return coef if self.kept is None else self.kept.project(coef)


class CachedGram:
    """A Gram matrix whose columns are computed when asked for, and kept while there is room.

    The columns used last are kept; next to them there is room for a strip that is being computed. Providers may be
    shared between threads.

    Parameters
    ----------
    X : ndarray or CSR of shape (n, n_features)
    kernel : Kernel
    max_bytes : int
        Most memory to take, beside two float64 copies of ``X``; never less than a few rows take, nor than a strip of
        them for each thread.
    n_jobs : int
        Threads; results have the same bits for any number.
    """

    kept = None  # nothing is clipped

    def __init__(self, X, kernel, max_bytes, n_jobs=1):
        self._pairs = Pairs(X, kernel, n_jobs)
        self.n = X.shape[0]
        self.diagonal = self._pairs.diagonal()
        self._dear = kernel.is_given or X.shape[1] > _CHEAP
        self.room = max_bytes
        self._n_fit = max_bytes // gram_bytes(self.n)  # matrices
        self._derived = _Derived()
        self._whole = None
        room = min(max_bytes / (8 * self.n), self.n)  # columns
        self._height = int(np.clip(room / 4, 1, _STRIP))
        self._n_slots = max(0, int(room) - 2 * self._height)
        self._lock = threading.Lock()
        self._forget()

    def _forget(self):
        """Keep no column."""
        self._cache = np.empty((0, self.n))
        self._slot = np.full(self.n, -1)  # where a column is kept
        self._owner = np.full(self._n_slots, -1)  # whose column a slot holds
        self._used = np.zeros(self._n_slots, dtype=np.int64)  # when it was last asked for
        self._clock = 0

    def _make_room(self):
        """Reserve memory for columns, which the system gives only to those that are written."""
        self._cache = np.empty((self._n_slots, self.n))

    @property
    def can_derive(self):
        """Whether a matrix made of all values fits into the limit."""
        return self._n_fit >= 1

    def whole(self, beside=0):
        """Return the whole matrix if it fits into the limit, and so many others beside it; else this provider.

        Its making takes one strip of rows more than the matrix. It is kept: the next call returns the same.
        """
        if self._n_fit < 1 + beside:
            return self
        with self._lock:
            if self._whole is None:
                self._forget()
                self._whole = FullGram(self._values(), max_bytes=self.room - gram_bytes(self.n))
            return self._whole

    def derived(self, key, make):
        """Return ``make`` of all values, which is kept until another key is asked for; it takes their memory."""
        self._forget()
        return self._derived.of(key, make, self._values)

    def _values(self):
        values = np.empty((self.n, self.n))

        def fill(begin, end, strip):
            values[begin:end, begin:] = strip
            values[end:, begin:end] = strip[:, end - begin :].T

        deque(self._pairs.strips(_STRIP, fill), maxlen=0)
        return values

    def columns(self, which):
        """Return the columns ``which`` as rows of an array."""
        return self._pairs(which)

    def block(self, which):
        """Return the square block of the rows and columns ``which``."""
        return self._pairs(which, which)

    def row_coefficients(self, coef):
        """Return the coefficients: G is the kernel as it is."""
        return coef

    def add_columns(self, which, coef, out, again=None):
        """Add the columns ``which``, each times its coefficient, to ``out``.

        ``again`` says of each whether it is likely to be asked for again. To fill new memory takes as long as to
        compute a cheap column, so that of such ones only those are kept; of dear ones all.
        """
        again = np.ones(len(which), dtype=bool) if again is None or self._dear else again
        with self._lock:
            if self._clock == 0:
                self._make_room()
            self._clock += 1
            slots = self._slot[which]
            known = slots >= 0
            self._used[slots[known]] = self._clock
            about = self._cache, slots[known], coef[known], out
            length = int(np.clip(-(-self.n // self._pairs.n_jobs), _RANGE, _LONG_RANGE))
            self._on_ranges(lambda a, b: _add_rows(*about, a, b), length)
            missing, coef, again = which[~known], coef[~known], again[~known]
            for begin in range(0, len(missing), _STRIP):
                part = slice(begin, begin + _STRIP)
                self._add_computed(missing[part], coef[part], out, np.flatnonzero(again[part]))

    def _add_computed(self, which, coef, out, worth):
        """Compute columns, add them to ``out``, and keep those that are worth it."""
        slots = self._places(len(worth))
        worth, every = worth[: len(slots)], np.arange(len(which))
        rows = self._pairs.take(which)

        def work(begin, end):
            values = self._pairs.between(rows, slice(begin, end))
            _add_rows(values, every, coef, out[begin:end], 0, end - begin)
            _copy_rows(values, worth, self._cache, slots, begin)

        self._on_ranges(work)
        evicted = self._owner[slots]
        self._slot[evicted[evicted >= 0]] = -1
        self._owner[slots], self._slot[which[worth]], self._used[slots] = which[worth], slots, self._clock

    def _on_ranges(self, work, length=_RANGE):
        """Call ``work(begin, end)`` for ranges of all rows."""
        self._pairs.each(lambda begin: work(begin, min(begin + length, self.n)), range(0, self.n, length))

    def image(self, coef):
        """Return the product with coefficients that may be zero for most rows."""
        return _image(self, coef, np.count_nonzero(self._slot[coef != 0.0] < 0))

    def _places(self, n):
        """Return up to ``n`` places for columns: of those not in use now, the ones not asked for the longest."""
        free = np.flatnonzero(self._used < self._clock)
        if n < len(free):
            free = free[np.argpartition(self._used[free], n)[:n]]
        return free

    def dot(self, V):
        """Return the product with a vector or a thin matrix; every kernel value is computed once."""
        out = np.zeros_like(V, dtype=np.float64)

        def products(begin, end, values):
            return begin, end, values @ V[begin:], values[:, end - begin :].T @ V[begin:end]

        for begin, end, across, down in self._pairs.strips(self._height, products):
            out[begin:end] += across
            out[end:] += down
        return out


def gram_bytes(n):
    """Return the size of a whole Gram matrix of ``n`` rows."""
    return 8 * n * n


def gram_matrix(X, kernel, max_bytes=np.inf, n_jobs=1):
    """Return a provider for the rows of ``X`` that computes nothing yet and takes at most ``max_bytes``.

    A solver that needs more than a few columns calls ``whole()``, which makes the matrix once if it fits into the
    limit. A precomputed float64 matrix is used as it is, unless ``kernel.bias`` asks for a sum.
    """
    if kernel.is_precomputed and not sp.issparse(X) and X.dtype == np.float64 and not kernel.bias:
        return FullGram(X, max_bytes=max_bytes)
    return CachedGram(X, kernel, max_bytes, n_jobs)


def gram_of_rows(rows, max_bytes=np.inf):
    """Return a provider for the inner products of rows, that with the constant column included."""
    return gram_matrix(as_matrix(rows), Kernel("linear", bias=rows.bias**2), max_bytes)


# ---------------------------------------------------------------------- indefinite matrices

_EXACT_BELOW = 500  # rows up to which all eigenvalues are computed
_LANCZOS_STEPS = 80


def is_indefinite(gram, rng):
    """Tell whether the matrix has a negative eigenvalue that is more than rounding of its largest one.

    However small beside that one, at a high price of errors it makes an objective without a minimum.

    Small matrices are decided by all their eigenvalues. For large ones the diagonal, then Lanczos' method, look for
    one; what they find is there, a small one may escape them. A fixed number of steps is the point: SciPy's ``eigsh``
    has to converge, and on the many small eigenvalues of an ordinary kernel it takes thousands of products.
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
