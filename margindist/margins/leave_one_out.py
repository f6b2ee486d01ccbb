"""The leave-one-out bound of the LDM paper."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve
from sklearn.utils.validation import check_is_fitted

from margindist.estimators._training_data import MatrixLike
from margindist.estimators.ldm import LDMClassifier
from margindist.solvers._metric import explicit_hessian
from margindist.solvers.interior_point import quadratic_part
from margindist.spaces.gram import gram_matrix, is_indefinite
from margindist.spaces.rows import as_rows, quadratic_forms

_AT_BOUND = 1e-3  # multipliers within this relative distance of C count as C, because solvers stop at a tolerance


def loo_error_bound(
    estimator: LDMClassifier, X: MatrixLike | None = None, y: ArrayLike | None = None
) -> float | np.ndarray:
    r"""Bound the leave-one-out error of a fitted LDM (Theorem 3 of the paper).

    With multipliers :math:`\beta` and the dual matrix H, the expected error is at most the expectation of

    .. math:: \frac1m \Big( h \sum_{0 < \beta_i < C} \beta_i + |\{i : \beta_i = C\}| \Big), \qquad h = \max_i H_{ii} .

    "Leaving i out" here means :math:`\beta_i = 0` with the mean and variance terms unchanged. The bound can exceed 1;
    it then says nothing. The theorem supposes samples drawn independently from one distribution, a positive definite
    kernel, and the multipliers of the optimum: a fit that did not reach its ``tol`` is refused, and so is one by
    ``partial_fit``, which has no multipliers.

    Parameters
    ----------
    estimator : LDMClassifier, or a search with such a best estimator
        Fitted with a finite ``C`` and without sample or class weights, for which the theorem is not stated.

    X, y : training data, default=None
        If given, h is computed; else it is replaced by the largest squared length of a training row (in feature
        space), which is never smaller and needs no data.

    Returns
    -------
    float or ndarray of shape (n_classes,)
        The bound; for more than two classes, that of each class against the rest.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from margindist import LDMClassifier
    >>> from margindist.margins import loo_error_bound
    >>> X, y = make_blobs(n_samples=100, centers=[[-2, 0], [2, 0]], random_state=0)
    >>> bool(loo_error_bound(LDMClassifier(C=0.2).fit(X, y)) < 0.2)
    True
    """
    estimator = getattr(estimator, "best_estimator_", estimator)
    if not isinstance(estimator, LDMClassifier):
        raise TypeError(f"loo_error_bound expects a fitted LDMClassifier, got {type(estimator).__name__}.")
    check_is_fitted(estimator)
    if not hasattr(estimator, "multipliers_"):
        raise ValueError("loo_error_bound: a model of partial_fit has no multipliers; call fit on all samples.")
    gap = np.max(estimator.duality_gap_)
    if gap > estimator.tol:
        raise ValueError(
            f"loo_error_bound: the theorem needs the optimum, but the fit ended with a relative duality gap of "
            f"{gap:.1e}, above tol={estimator.tol:g}; raise max_iter or tol, or choose another solver."
        )
    if np.isinf(estimator.C) or estimator._weighted:
        raise ValueError("loo_error_bound: the theorem needs a finite C and no sample or class weights.")
    if (X is None) != (y is None):
        raise ValueError("loo_error_bound: give both X and y, or neither.")
    heights = estimator._largest_square if X is None else _largest_diagonals(estimator, X, y)
    multipliers = estimator.multipliers_
    bounded = multipliers >= (1.0 - _AT_BOUND) * estimator.C
    counts = heights * np.where(bounded, 0.0, multipliers).sum(axis=1) + bounded.sum(axis=1)
    bound = counts / multipliers.shape[1]
    return float(bound[0]) if len(bound) == 1 else bound


def _largest_diagonals(estimator, X, y):
    """Return the largest diagonal entry of H, one per two-class problem."""
    X = estimator._validate_rows(X, reset=False)
    n_samples = estimator.multipliers_.shape[1]
    if X.shape[0] != n_samples:
        raise ValueError(f"loo_error_bound: X and y must be the {n_samples} training samples, got {X.shape[0]}.")
    objective = estimator._objective(n_samples)
    positives = estimator.classes_[1:] if len(estimator.classes_) == 2 else estimator.classes_
    problems = [np.where(np.asarray(y) == label, 1.0, -1.0) for label in positives]
    weights = np.ones(X.shape[0])
    if hasattr(estimator, "coef_"):
        rows = as_rows(X, estimator.fit_intercept)
        return np.array([_largest_linear(objective, rows, signs, weights) for signs in problems])
    gram = gram_matrix(X, estimator.kernel_._replace(bias=float(estimator.fit_intercept)))
    if not estimator.kernel_.is_radial and is_indefinite(gram, np.random.default_rng(0)):
        raise ValueError(
            f"loo_error_bound: the theorem needs a positive definite kernel, but the matrix of "
            f"kernel={estimator.kernel!r} has negative eigenvalues."
        )
    return np.array([explicit_hessian(objective, gram, signs, weights).diagonal().max() for signs in problems])


def _largest_linear(objective, rows, signs, weights):
    """Return the largest x'Q⁻¹x over the rows, Q = I plus the curvature of the variance."""
    Q, _ = quadratic_part(objective, rows, np.arange(len(signs)), signs, weights)
    inverse = cho_solve(cho_factor(Q), np.eye(len(Q)))
    return quadratic_forms(rows, inverse, np.empty(len(signs))).max()
