"""Mercer kernels, and Gram matrices that never take more memory than they are given.

A :class:`Kernel` is an immutable value: name and numbers, already resolved against the training data.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dpstrf
from sklearn.metrics.pairwise import pairwise_kernels

__all__ = ["KERNELS", "Kernel", "factor_gram", "resolve_gamma"]

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
            values = np.asarray(X, dtype=np.float64)
        elif callable(self.name):
            values = np.asarray(self.name(X, Y), dtype=np.float64)
        else:
            parameters = {name: getattr(self, name) for name in _PARAMETERS[self.name]}
            values = np.asarray(pairwise_kernels(X, Y, metric=self.name, **parameters), dtype=np.float64)
        if self.bias:
            values = values + self.bias
        return values


def resolve_gamma(gamma, X, weights):
    """Return the number that ``gamma`` means for these rows: itself, "scale" or "auto" as in scikit-learn.

    "scale" is ``1 / (n_features * variance of all entries)``; rows count by their weights, so that a weight of two is
    the row given twice.
    """
    if gamma == "auto":
        return 1.0 / X.shape[1]
    if gamma != "scale":
        return float(gamma)
    total = weights.sum() * X.shape[1]
    if sp.issparse(X):
        per_row = X @ np.ones(X.shape[1])
        squares = X.multiply(X) @ np.ones(X.shape[1])
    else:
        per_row = X.sum(axis=1, dtype=np.float64)
        squares = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    variance = weights @ squares / total - (weights @ per_row / total) ** 2
    return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0


def factor_gram(values, tol=1e-12):
    """Return ``L`` with ``L @ L.T`` equal to a Gram matrix up to ``tol`` of its largest diagonal entry.

    Pivoted Cholesky: ``L`` has one column a step and stops as soon as what is left is rounding, so its width is the numerical
    rank.
    """
    size = values.diagonal().max()
    packed, pivots, rank, _ = dpstrf(values, tol=tol * size, lower=1)
    factor = np.zeros((len(values), rank))
    factor[pivots - 1] = np.tril(packed)[:, :rank]
    return factor
