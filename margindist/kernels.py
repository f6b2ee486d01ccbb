"""Mercer kernels, and Gram matrices that never take more memory than they are given.

A :class:`Kernel` is an immutable value: name and numbers, already resolved against the training data.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.metrics.pairwise import pairwise_kernels

__all__ = ["KERNELS", "Kernel", "gamma_per_feature", "resolve_gamma"]

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
    total = weights.sum() * X.shape[1]
    if sp.issparse(X):
        per_row = X @ np.ones(X.shape[1])
        squares = X.multiply(X) @ np.ones(X.shape[1])
    else:
        per_row = X.sum(axis=1, dtype=np.float64)
        squares = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    variance = weights @ squares / total - (weights @ per_row / total) ** 2
    return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0
