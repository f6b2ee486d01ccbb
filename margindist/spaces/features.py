r"""Features of a kernel: rows whose inner products are the kernel's values.

With pivots S, :func:`partial_cholesky` makes :math:`F = G_{\cdot S} L^{-T}`, :math:`L L^T = G_{SS}`, so that
:math:`F F^T \approx G` with a remainder that is positive semi-definite and zero on S: a linear method on the rows of F
is the kernel method on a slightly smaller kernel, and weights ``w`` of the columns of F are coefficients
:math:`L^{-T} w` of the rows S. Pivots are drawn in proportion to what is left of the diagonal (randomly pivoted
Cholesky, Chen, Epperly, Tropp and Webber 2025), many at a time; :func:`cholesky_factor` takes the largest one each
time (LAPACK ``pstrf``).
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from margindist.spaces.gram import CachedGram, FullGram
from margindist.spaces.rows import as_rows

_STRIP_ROWS = 4096  # whose kernel values are in memory at a time


class Factor(NamedTuple):
    """Features ``F`` with ``F Fᵀ ≈ G``, and the way back from their weights to coefficients of training rows."""

    features: np.ndarray  # (n, rank), C-contiguous
    pivots: np.ndarray  # (rank,), rows that span the others
    remainder: float  # trace of G − F Fᵀ
    diagonal: np.ndarray  # of G
    kept: Any = None  # as in :class:`FullGram`

    @property
    def rank(self):
        """Number of features."""
        return self.features.shape[1]

    @property
    def rows(self):
        """The features as rows for a solver; a matrix of zeros has none, for which one of zeros stands."""
        if self.features.shape[1]:
            return as_rows(self.features)
        return as_rows(np.zeros((len(self.features), 1)))

    def weights(self, alphas):
        """Return weights of the features from coefficients of the pivots' rows: what :meth:`coefficients` came from."""
        result = self.features[self.pivots].T @ alphas[self.pivots]
        return result if len(result) else np.zeros(1)

    def coefficients(self, weights):
        """Return one coefficient per training row from weights of the features (last axis); for G, clipped or not."""
        alphas = np.zeros((*weights.shape[:-1], len(self.features)))
        if len(self.pivots):
            flat = weights[..., : len(self.pivots)].reshape(-1, len(self.pivots))
            result = solve_triangular(self.features[self.pivots], flat.T, lower=True, trans="T").T
            alphas[..., self.pivots] = result.reshape(*weights.shape[:-1], -1)
        return alphas

    def feature_map(self, X, kernel):
        """Return what makes such features of any rows; X are those that these are features of."""
        return FeatureMap(kernel, X[self.pivots], np.tril(self.features[self.pivots]))


class FeatureMap(NamedTuple):
    """Features of any rows: their kernel values with the landmarks, times the inverse of the landmarks' own factor."""

    kernel: Any
    landmarks: Any  # (rank, n_features), array or CSR
    triangle: np.ndarray  # (rank, rank), the factor of their kernel values

    def __call__(self, X):
        """Return the features of the rows, a strip at a time."""
        features = np.zeros((X.shape[0], max(1, len(self.triangle))))  # as in :attr:`Factor.rows`
        if not len(self.triangle):
            return features
        values = self.kernel.against(self.landmarks)
        for start in range(0, X.shape[0], _STRIP_ROWS):
            strip = slice(start, start + _STRIP_ROWS)
            features[strip] = solve_triangular(self.triangle, values(X[strip]).T, lower=True, check_finite=False).T
        return features


def _finish(features, pivots, gram):
    left = gram.diagonal - np.einsum("ij,ij->i", features, features)
    return Factor(features, pivots, float(np.maximum(left, 0.0).sum()), gram.diagonal, gram.kept)


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
    return _finish(features, pivots, gram)


def nystroem(X, kernel, n_components, rng, n_jobs=1):
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
    n_jobs : int
        Threads for kernel values; results have the same bits for any number.

    Returns
    -------
    Factor
    """
    return partial_cholesky(CachedGram(X, kernel, 0, n_jobs), n_components, rng)


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
    return _finish(features, pivots[:rank].astype(np.intp), gram)
