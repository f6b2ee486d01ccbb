"""The two kinds of space in which a classifier's coefficients live, and the way back to its attributes.

In a :class:`LinearSpace` coefficients are weights of the columns, in a :class:`KernelSpace` coefficients of the
training rows. Both offer the same, so that nobody else has to ask which one it is:

==============================  ======================================================================
``n_rows``, ``n_columns``       shape of ``rows``; ``n_columns`` is None where only a Gram matrix is known
``bias``                        square of the constant feature, 0 without one
``n_coefficients``              how many coefficients a function has
``is_narrow``                   whether there are fewer columns than rows
``certified``                   which problem a proof in this space is about
``rows``                        rows for solvers that work on rows
``gram``                        Gram matrix for solvers that work on one
``largest_square()``            squared length of the longest row
``factor(tol)``                 features that ``rows`` consist of; None if the rows are those given
``image(V)``                    Gram matrix times a thin matrix
``from_weights(weights)``       coefficients (last axis) from weights of the columns of ``rows``
``from_rows(alphas)``           coefficients (last axis) of a combination of rows
``scores(X, coefs)``            scores of other rows, with axes (point, row, problem)
``attributes(coefs)``           fitted attributes that predict with these coefficients, one row per problem
``attributes_so_far(coefs)``    the same from what a solver works on in between; None if that is not enough
==============================  ======================================================================
"""

import functools
import threading

import numpy as np

from margindist.spaces.features import cholesky_factor, nystroem
from margindist.spaces.gram import CachedGram, gram_bytes, gram_of_rows
from margindist.spaces.rows import as_rows, n_columns, products, squares, weighted_sums

_STRIPS = 1024  # rows of kernel values that are held at a time
_FINEST = np.finfo(float).eps  # pivots of a factor, relative to the largest and per row: below is rounding


class LinearSpace:
    """The rows as they are, with a constant column if the kernel has a bias.

    Parameters
    ----------
    data : TrainingData
        Validated rows.
    kernel : Kernel
        The linear one.
    max_bytes : float
        Most memory for a Gram matrix.
    """

    certified = "exact"
    memory_of_rows = (0, "")  # what making them takes beside the data, and of what

    def __init__(self, data, kernel, max_bytes=np.inf):
        self.bias = kernel.bias
        self._max_bytes = max_bytes
        self.rows = as_rows(data.X, bool(kernel.bias))
        self.n_rows = data.X.shape[0]
        self.n_columns = n_columns(self.rows)
        self.n_coefficients = self.n_columns
        self.is_narrow = self.n_columns < self.n_rows

    @functools.cached_property
    def gram(self):
        """The inner products of the rows."""
        return gram_of_rows(self.rows, self._max_bytes)

    def factor(self, tol=None):
        """Return None: the rows are those given."""
        return None

    def largest_square(self):
        """Return the squared length of the longest row."""
        squares(self.rows, lengths := np.empty(self.n_rows))
        return lengths.max()

    def image(self, V):
        """Return the matrix of inner products times a thin matrix."""
        return products(self.rows, weighted_sums(self.rows, V).T) + self.bias * V.sum(axis=0)

    def from_weights(self, weights):
        """Return the weights of the columns: themselves."""
        return weights

    def from_rows(self, alphas):
        """Return the weights of the columns from coefficients of the rows."""
        flat = alphas.reshape(-1, self.n_rows)
        weights = weighted_sums(self.rows, np.ascontiguousarray(flat.T))
        if self.bias:
            weights = np.column_stack([weights, flat.sum(axis=1)])
        return weights.reshape(*alphas.shape[:-1], -1)

    def for_kernel(self, coefs):
        """Return what prediction needs of coefficients: themselves."""
        return coefs

    def scores(self, X, coefs):
        """Return the scores of other rows."""
        if not self.bias:
            return combine(X, coefs)
        return combine(X, coefs[..., :-1]) + coefs[..., -1][:, None, :]

    def attributes(self, coefs):
        """Return ``coef_`` and ``intercept_``."""
        if not self.bias:
            return {"coef_": coefs, "intercept_": np.zeros(len(coefs))}
        return {"coef_": np.ascontiguousarray(coefs[:, :-1]), "intercept_": coefs[:, -1].copy()}

    def attributes_so_far(self, coefs):
        """Return the attributes if these are weights of the columns, and not coefficients of rows."""
        return self.attributes(coefs.copy()) if coefs.shape[1] == self.n_columns else None


class KernelSpace:
    """The space of a kernel: a Gram matrix, or Nystroem's features alone.

    Parameters
    ----------
    data : TrainingData
        Validated rows.
    kernel : Kernel
        Its bias stands for a constant feature.
    make_gram : callable, or None
        Returns the values between all rows, clipped if they have negative eigenvalues, a :class:`FullGram` or
        :class:`CachedGram`. None for Nystroem's features alone.
    landmarks : tuple of int and numpy.random.Generator
        Number of Nystroem's features, and what draws them.
    n_jobs : int
        Threads for the features.
    """

    is_narrow = False

    def __init__(self, data, kernel, make_gram, landmarks=None, n_jobs=1):
        self.bias = kernel.bias
        self._n_jobs = n_jobs
        self._data = data
        self._kernel = kernel
        self._make_gram = make_gram
        self._landmarks = landmarks
        self._factors = {}
        self._lock = threading.Lock()
        self.n_rows = data.X.shape[0]
        self.n_columns = None if landmarks is None else min(landmarks[0], self.n_rows)
        self.n_coefficients = self.n_rows

    @functools.cached_property
    def gram(self):
        """The kernel values between all rows; None where there are only Nystroem's features."""
        return None if self._make_gram is None else self._make_gram()

    @property
    def certified(self):
        """Which problem a proof in this space is about."""
        if self.gram is None:
            return "nystroem"
        return "exact" if self.gram.kept is None else "clipped kernel"

    @property
    def memory_of_rows(self):
        """What making the features takes, in bytes, and of what."""
        if self._make_gram is None:
            return 2 * 8 * self.n_rows * self.n_columns, f"{self.n_columns} Nystroem features"
        return 4 * gram_bytes(self.n_rows), f"{self.n_rows} rows"

    def factor(self, tol=1e-10):
        """Return features of the kernel, made once, with pivots down to ``tol`` times the largest."""
        with self._lock:
            if tol not in self._factors:
                self._factors[tol] = self._make_factor(tol)
            return self._factors[tol]

    def products_beyond(self, V):
        """Return the inner products of what Nystroem's features lack of combinations of rows (columns of V).

        Takes kernel values between the rows that have a coefficient, a strip at a time.
        """
        used = np.flatnonzero(V.any(axis=1))
        if len(used) == 0:
            return np.zeros((V.shape[1], V.shape[1]))
        gram = CachedGram(self._data.X[used], self._kernel, _STRIPS * 8 * len(used), self._n_jobs)
        seen = self.factor().features.T @ V
        return V[used].T @ gram.dot(V[used]) - seen.T @ seen

    def finest_factor(self):
        """Return the features of all directions that are more than rounding."""
        return self.factor(self.n_rows * _FINEST)

    def _make_factor(self, tol):
        if self.gram is None:
            return nystroem(self._data.X, self._kernel, *self._landmarks, self._n_jobs)
        return cholesky_factor(self.gram, tol)

    def feature_map(self):
        """Return what makes the features of any rows."""
        return self.factor().feature_map(self._data.X, self._kernel)

    @property
    def rows(self):
        """The features as rows for a solver."""
        return self.factor().rows

    def largest_square(self):
        """Return the squared length of the longest row."""
        return self.factor().diagonal.max() if self.gram is None else self.gram.diagonal.max()

    def image(self, V):
        """Return the Gram matrix times a thin matrix."""
        return self.gram.dot(V)

    def from_weights(self, weights):
        """Return coefficients of the rows from weights of the features."""
        return self.factor().coefficients(weights)

    def from_rows(self, alphas):
        """Return the coefficients of the rows: themselves."""
        return alphas

    def scores(self, X, coefs):
        """Return the scores of other rows; for a precomputed kernel, from their values with these rows."""
        return self.scores_from(self._kernel(X, self._data.X), coefs)

    def scores_from(self, values, coefs):
        """Return the scores of other rows from their kernel values with these rows."""
        return combine(values, self.for_kernel(coefs))

    def for_kernel(self, coefs):
        """Return coefficients for the kernel as it is: the Gram matrix, if one was made, may be clipped."""
        gram = vars(self).get("gram")
        return coefs if gram is None else gram.row_coefficients(coefs)

    def attributes(self, coefs):
        """Return ``dual_coef_``, ``support_``, ``intercept_`` and what prediction needs beside them."""
        alphas = self.for_kernel(coefs)
        used = np.flatnonzero(alphas.any(axis=0))
        dual_coef = np.ascontiguousarray(alphas[:, used])
        codes = self._data.codes
        result = {
            "n_support_": np.bincount(codes[used], minlength=codes.max() + 1).astype(np.int32),
            "support_": used if self._data.kept is None else self._data.kept[used],
            "dual_coef_": dual_coef,
            "intercept_": dual_coef.sum(axis=1) * self.bias,
            "kernel_": self._kernel._replace(bias=0.0),
        }
        if not self._kernel.is_precomputed:
            result["support_vectors_"] = self._data.X[used]  # a copy also of all rows: the caller may change theirs
        return result

    def attributes_so_far(self, coefs):
        """Return None: a solver may work on features, whose weights are not yet coefficients of the rows."""
        return None


def combine(values, coefs):
    """Return values @ coef for all points and problems, with axes (point, row, problem)."""
    n_points, n_problems, n = coefs.shape
    flat = values @ np.ascontiguousarray(coefs.reshape(-1, n).T)
    return np.asarray(flat).reshape(-1, n_points, n_problems).transpose(1, 0, 2)
