"""Upper bounds on the probability of error that papers prove for their methods, computed from a fitted classifier."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array, check_is_fitted

from margindist.estimators._training_data import MatrixLike
from margindist.estimators.msvmav import MSVMAvClassifier
from margindist.estimators.odm import ODMClassifier
from margindist.margins.decision import margins
from margindist.margins.semivariance import semivariance_bound
from margindist.spaces.gram import gram_matrix, is_indefinite


def generalization_bound(estimator: Any, X: MatrixLike, y: ArrayLike, delta: float = 0.05) -> float:
    """Return the paper's bound on the error of a classifier, from the samples it was trained on.

    With probability at least ``1 - delta`` over the draw of the training samples, the bound holds. Such bounds are
    loose: values above 1 say nothing, and what they teach is which quantities matter.

    Parameters
    ----------
    estimator : ODMClassifier or MSVMAvClassifier
        Fitted classifier; MSVMAv with two classes.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Training samples, as the estimator takes them.
    y : array-like of shape (n_samples,)
        Their labels.
    delta : float, default=0.05
        Probability with which the bound may fail, in (0, 1).

    Returns
    -------
    float
        Upper bound on the probability of error.

    See Also
    --------
    multiclass_bound : The bound for :class:`~margindist.ODMClassifier`.
    semivariance_bound : The bound for :class:`~margindist.MSVMAvClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from margindist import ODMClassifier
    >>> from margindist.margins import generalization_bound
    >>> X, y = load_iris(return_X_y=True)
    >>> few, many = (generalization_bound(ODMClassifier(lam).fit(X, y), X, y) for lam in (1, 100))
    >>> few < many
    True
    """
    if not 0 < delta < 1:
        raise ValueError(f"generalization_bound: delta must be in (0, 1), got {delta!r}.")
    for kind, bound in _BOUNDS.items():
        if isinstance(estimator, kind):
            return bound(estimator, X, y, delta)
    known = ", ".join(kind.__name__ for kind in _BOUNDS)
    raise TypeError(f"generalization_bound: expected one of {known}, got {type(estimator).__name__}.")


def multiclass_bound(estimator: Any, X: MatrixLike, y: ArrayLike, delta: float = 0.05) -> float:
    r"""Return the bound of Theorem 1 in Zhang & Zhou (2017).

    .. math::
        \frac1m \sum_i \Phi(z_i) + \frac{16 r \Lambda}{1-\theta} \sqrt{\frac{2 \pi k}{m}}
        + 3 \sqrt{\frac{\ln(2/\delta)}{2m}} , \qquad
        \Phi(z) = \begin{cases} 1 & z \le 0 \\ (z - 1 + \theta)^2/(1-\theta)^2 & 0 < z \le 1 - \theta \\ 0 & \text{else}
        \end{cases}

    with :math:`r` the longest sample and :math:`\Lambda^2 = \sum_l \|w_l\|^2`, the constant feature of the intercept
    included in both. Two classes count as :math:`w_2 = -w_1 = w/2`.

    The theorem supposes samples drawn independently from one distribution whose longest sample is :math:`r`, a positive
    definite kernel, and :math:`\Lambda` fixed before the samples are seen. It then holds for all classifiers of that
    length at once, however they were trained, weights and all. Here :math:`r` and :math:`\Lambda` are those of the
    training samples and of the classifier found, which is, strictly, too late to choose. Kernel matrices with negative
    eigenvalues are refused.

    Parameters
    ----------
    estimator : ODMClassifier
        Fitted classifier; its ``theta`` is used.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Training samples, as the estimator takes them.
    y : array-like of shape (n_samples,)
        Their labels.
    delta : float, default=0.05
        Probability with which the bound may fail, in (0, 1).

    Returns
    -------
    float
        Upper bound on the probability of error.

    References
    ----------
    T. Zhang and Z.-H. Zhou. Multi-Class Optimal Margin Distribution Machine. ICML 2017.
    """
    if not isinstance(estimator, ODMClassifier):
        raise TypeError(f"multiclass_bound expects a fitted ODMClassifier, got {type(estimator).__name__}.")
    if not 0 < delta < 1:
        raise ValueError(f"multiclass_bound: delta must be in (0, 1), got {delta!r}.")
    check_is_fitted(estimator)
    theta, k = estimator.theta, len(estimator.classes_)
    z = margins(estimator, X, y)
    m = len(z)
    surrogate = np.where(z <= 0, 1.0, np.minimum(0.0, z - 1.0 + theta) ** 2 / (1.0 - theta) ** 2)
    X = _checked_rows(estimator, X)
    square = _square_norms(estimator, X) + estimator.intercept_**2
    length = np.sqrt(0.5 * square.sum() if k == 2 else square.sum())
    radius = np.sqrt(_longest_square(estimator, X) + estimator.fit_intercept)
    complexity = 16.0 * radius * length / (1.0 - theta) * np.sqrt(2.0 * np.pi * k / m)
    return float(surrogate.mean() + complexity + 3.0 * np.sqrt(np.log(2.0 / delta) / (2.0 * m)))


def _checked_rows(estimator, X):
    """Return the samples as floats; refuse a kernel that is not positive definite on them."""
    X = check_array(X, accept_sparse="csr", dtype=np.float64)
    if hasattr(estimator, "coef_") or estimator.kernel_.is_radial:
        return X
    if is_indefinite(gram_matrix(X, estimator.kernel_), np.random.default_rng(0)):
        raise ValueError(
            f"generalization_bound: the theorem needs a positive definite kernel, but the matrix of "
            f"kernel={estimator.kernel!r} has negative eigenvalues."
        )
    return X


def _square_norms(estimator, X):
    """Return the squared length of every weight vector, without the intercept."""
    if hasattr(estimator, "coef_"):
        return (estimator.coef_**2).sum(axis=1)
    if estimator.kernel_.is_precomputed:
        gram = X[np.ix_(estimator.support_, estimator.support_)]
    else:
        gram = estimator.kernel_(estimator.support_vectors_, estimator.support_vectors_)
    return np.einsum("ki,ij,kj->k", estimator.dual_coef_, gram, estimator.dual_coef_, optimize=True)


def _longest_square(estimator, X):
    """Return the largest squared length of a sample, in the space of the kernel."""
    if hasattr(estimator, "coef_"):
        return X.multiply(X).sum(axis=1).max() if hasattr(X, "multiply") else np.einsum("ij,ij->i", X, X).max()
    return gram_matrix(X, estimator.kernel_).diagonal.max()


def _semivariance_bound(estimator, X, y, delta):
    """Scale margins by the largest score possible, as the theorem for MSVMAv wants them; two classes only."""
    if len(estimator.classes_) > 2:
        raise ValueError("generalization_bound: the theorem for MSVMAvClassifier is for two classes.")
    z = margins(estimator, X, y)
    X = _checked_rows(estimator, X)
    length = np.sqrt(_square_norms(estimator, X)[0] + estimator.intercept_[0] ** 2)
    radius = np.sqrt(_longest_square(estimator, X) + estimator.fit_intercept)
    complexity = (1.0 if hasattr(estimator, "coef_") else 2.0) / np.sqrt(len(z))
    return semivariance_bound(np.clip(z / (length * radius), -1.0, 1.0), complexity, delta=delta)


_BOUNDS = {ODMClassifier: multiclass_bound, MSVMAvClassifier: _semivariance_bound}
