r"""Which predictions a certificate proves.

A fit ends at weights w that are not the minimiser w* of its objective P, but near it: P is strongly convex, so that a
gap :math:`G \ge P(w) - P(w^*)` bounds every score of the exact solution,

.. math:: \tfrac12 \|w - w^*\|^2 \le G, \qquad |w \cdot x - w^* \cdot x| \le \sqrt{2G} \, \|x\| ,

in the space of a kernel with :math:`\sqrt{k(x, x)}` for the length. This takes what a fitted classifier has.

**With the training rows, the objective's own curvature counts.** Let Q be positive definite and P less
:math:`\tfrac12 \|\cdot\|_Q^2` convex.

*The variance* (:class:`~margindist.LDMClassifier`, :math:`\lambda_1 > 0`) gives
:math:`Q = I + U^T P U`, :math:`P = 4\lambda_1 (\mathrm{diag}(p) - pp^T)`. The problem without it is a support vector
machine in the metric Q, whose dual point β has the weights :math:`Q^{-1} U^T (\lambda_2 p + \beta)`. With
:math:`r = w - U^T (\lambda_2 p + \beta - Pz)` the gap there is :math:`c + \tfrac12 \rho^2`, where
:math:`\rho = \|r\|_{Q^{-1}}` and c is the rows' complementarity, and

.. math:: \|w - w^*\|_Q \le \sqrt{c + \tfrac14 \rho^2} + \tfrac12 \rho .

(Both half gaps bound a distance: that of w by the primal objective, that of the dual point's weights by the dual one;
add them, and use the parallelogram identity.)

*Piecewise quadratic losses* (:class:`~margindist.ODMClassifier`) have the curvature κ_j of their pieces. A region
proves itself: let g be the gradient at w, S a set of rows outside the band, δ_j the distance of row j to the edge of
its piece, and :math:`Q = I + \sum_{j \in S} \kappa_j x_j x_j^T`. If

.. math:: \|x_j\|_{Q^{-1}} \|g\|_{Q^{-1}} < \delta_j \quad \text{for all } j \in S,

the minimiser within the region where no row of S crosses its edge is in its inside, hence is the minimiser, and
:math:`\|w - w^*\|_Q \le \|g\|_{Q^{-1}}`. Rows that fail are dropped from S until none does.

In both cases :math:`|w \cdot x - w^* \cdot x| \le \|x\|_{Q^{-1}} \|w - w^*\|_Q`.

**Rounding** is on the safe side everywhere: of the margins and of sums of rows as in :mod:`margindist.certificate`, of
Q and its factor by the size of Q, of the scores themselves.
"""

import copy
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cholesky, solve_triangular
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from margindist.certificate import gamma
from margindist.estimators._objective import ObjectiveClassifier
from margindist.estimators._training_data import MatrixLike
from margindist.estimators.ldm import LDMClassifier
from margindist.kernels import Pairs

__all__ = ["ScoreBounds", "certain", "score_bounds"]

_MOST_COLUMNS = 2000  # of which a factor of the curvature is made
_MOST_ROUNDS = 20  # of dropping rows from a region
_OWN = 1.0 + 2.0**-40  # what adding up a bound's own terms can lose


class ScoreBounds(NamedTuple):
    """Where the scores of the exact solution are.

    Parameters
    ----------
    lower, upper : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Bounds, shaped like what ``decision_function`` returns.
    """

    lower: np.ndarray
    upper: np.ndarray


def score_bounds(model, X: MatrixLike, *, training=None) -> ScoreBounds:
    """Bound the scores that the exact minimiser of a classifier's objective gives.

    Parameters
    ----------
    model : LDMClassifier, ODMClassifier, a search over one of them, or a pipeline that ends in one
        Fitted. Of several classes, each against the rest; the joint problem of ODM is not convex, and refused.

    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Samples.

    training : tuple (X, y) or (X, y, sample_weight), default=None
        What the model was fitted to: then the curvature of the objective counts, and bounds are often a hundred times
        narrower (linear kernel, up to 2,000 features).

    Returns
    -------
    ScoreBounds
        ``lower`` and ``upper``, each shaped like the result of ``decision_function``. For a kernel, of the problem with
        the kernel values as computed; with ``n_components``, of the problem on the Nystroem features.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import minmax_scale
    >>> from margindist import LDMClassifier
    >>> from margindist.proof import score_bounds
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = minmax_scale(X)
    >>> model = LDMClassifier(lambda1=1, lambda2=1, lambda_scale="relative").fit(X[:500], y[:500])
    >>> lower, upper = score_bounds(model, X[500:], training=(X[:500], y[:500]))
    >>> bool((lower <= model.decision_function(X[500:])).all())
    True
    """
    model, X, training = _last_step(model, X, training)
    _refuse_what_has_no_bound(model)
    scores = model.decision_function(X)
    columns = scores[:, None] if scores.ndim == 1 else scores
    X = model._validate_rows(X, reset=False)
    widths = _of_gaps(model, X) if training is None else _of_curvature(model, X, training)
    widths = np.minimum(widths, _of_gaps(model, X)) * _OWN + _score_errors(model, X)
    bounds = ScoreBounds(np.nextafter(columns - widths, -np.inf), np.nextafter(columns + widths, np.inf))
    return ScoreBounds(*(bound.reshape(scores.shape) for bound in bounds))


def certain(model, X: MatrixLike, *, training=None) -> np.ndarray:
    """Tell which predicted labels are proved to be those of the exact minimiser of the classifier's objective.

    Parameters
    ----------
    model, X, training
        As for :func:`score_bounds`.

    Returns
    -------
    ndarray of bool, of shape (n_samples,)
        Whether the exact solution, too, predicts what ``model.predict(X)`` does.
    """
    lower, upper = score_bounds(model, X, training=training)
    if lower.ndim == 1:
        return (lower > 0.0) | (upper <= 0.0)
    best = (0.5 * (lower + upper)).argmax(axis=1)[:, None]
    others = upper.copy()
    np.put_along_axis(others, best, -np.inf, axis=1)
    return np.take_along_axis(lower, best, axis=1)[:, 0] > others.max(axis=1)


# ---------------------------------------------------------------------- which model


def _last_step(model, X, training):
    """Return the classifier within a pipeline or search, and the samples as it sees them."""
    while isinstance(model, Pipeline) or hasattr(model, "best_estimator_"):
        if hasattr(model, "best_estimator_"):
            model = model.best_estimator_
            continue
        before, model = model[:-1], model[-1]
        X = before.transform(X)
        if training is not None:
            training = (before.transform(training[0]), *training[1:])
    return model, X, training


def _refuse_what_has_no_bound(model):
    name = type(model).__name__
    if not isinstance(model, LDMClassifier | ObjectiveClassifier):
        raise TypeError(
            f"score_bounds: expected a classifier with a convex objective and a certificate (LDMClassifier, "
            f"ODMClassifier, or a search or pipeline that ends in one), got {name}."
        )
    check_is_fitted(model)
    if len(model.classes_) > 2 and not isinstance(model, LDMClassifier) and model._is_joint():
        raise ValueError(
            f"{name}: the joint problem of several classes is not convex, so that nobody knows its minimum; fit with "
            f"multi_class='ovr' to have bounds."
        )
    if not np.isfinite(model.duality_gap_).all() or np.isinf(getattr(model, "C", 0.0)):
        raise ValueError(f"{name}: expected a finite price and a finite duality gap, got none; give a finite C.")
    if model.certified_problem_ == "clipped kernel" or (hasattr(model, "kernel_") and model.kernel_.is_precomputed):
        raise ValueError(
            f"{name}: the lengths of samples are not known for a kernel that is precomputed or was clipped; give a "
            f"kernel by its name."
        )


# ---------------------------------------------------------------------- lengths and rounding


def _constant(model):
    """Return the value of the constant feature."""
    return 1.0 if model.fit_intercept else 0.0


def _of_gaps(model, X):
    """Return √(2G)‖x‖, one column per two-class problem."""
    gaps = np.atleast_1d(model.duality_gap_) * np.abs(np.atleast_1d(model.objective_))
    return np.outer(_lengths(model, X), np.sqrt(2.0 * gaps * _OWN))


def _lengths(model, X):
    """Return upper bounds of the lengths of samples in the space of the kernel, the constant feature included."""
    if hasattr(model, "coef_"):
        squares = _squares(X) + _constant(model) ** 2
        n_terms = X.shape[1] + 3
    elif model.kernel_.is_radial:
        return np.full(X.shape[0], np.sqrt(1.0 + model.kernel_.bias) * (1.0 + gamma(8)))
    else:
        squares = np.maximum(Pairs(X, model.kernel_).diagonal(), 0.0)
        n_terms = X.shape[1] + 64
    return np.sqrt(squares) * (1.0 + gamma(n_terms))


def _squares(X):
    if sp.issparse(X):
        return np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel()
    return np.einsum("ij,ij->i", X, X, dtype=np.float64)


def _score_errors(model, X):
    """Return how far the computed scores can be from those of the weights."""
    if hasattr(model, "coef_"):
        sizes = np.abs(X) @ np.abs(model.coef_.T)
        sizes = np.asarray(sizes) + np.abs(model.intercept_)
        return gamma(X.shape[1] + 4) * sizes
    share = gamma(len(model.support_) + 64)
    lengths = _lengths(model, model.support_vectors_) if len(model.support_) else np.zeros(0)
    return share * np.outer(_lengths(model, X), np.abs(model.dual_coef_) @ lengths)


# ---------------------------------------------------------------------- the curvature


def _of_curvature(model, X, training):
    """Return ‖x‖_{Q⁻¹} times the distance from the minimiser, one column per two-class problem."""
    if not hasattr(model, "coef_") or X.shape[1] > _MOST_COLUMNS:
        return _of_gaps(model, X)
    if isinstance(model, LDMClassifier) and not hasattr(model, "multipliers_"):  # they stayed with partitions
        return _of_gaps(model, X)
    X_train, y, *weight = training
    data = copy.copy(model)._validate_training_data(X_train, y, *weight)
    if list(model.classes_) != list(np.unique(np.asarray(y))):
        raise ValueError(f"{type(model).__name__}: expected the labels of the fit in training, got others.")
    rows = _augmented(data.X, _constant(model))
    asked = _augmented(X, _constant(model))
    widths = np.empty((X.shape[0], len(model.coef_)))
    for k, signs in enumerate(model._sign_vectors(data.codes)):
        w = model.coef_[k]
        if _constant(model):
            w = np.append(w, model.intercept_[k])
        at = _At.of(rows, signs, data.weights, w)
        region = _of_variance(model, at, k, data) if isinstance(model, LDMClassifier) else _of_pieces(model, at)
        widths[:, k] = np.inf if region is None else region.radius * region.metric.lengths(asked)
    return widths


def _augmented(X, constant):
    X = X.toarray() if sp.issparse(X) else X
    X = np.asarray(X, dtype=np.float64)
    return np.column_stack([X, np.full(len(X), constant)]) if constant else X


class _At(NamedTuple):
    """Margins of weights on signed rows, and how far rounding can have taken them."""

    U: np.ndarray
    weights: np.ndarray
    w: np.ndarray
    z: np.ndarray
    errors: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, rows, signs, weights, w):
        """Compute them."""
        U = signs[:, None] * rows
        errors = gamma(len(w) + 6) * (np.abs(rows) @ np.abs(w))
        return cls(U, weights, w, U @ w, errors, np.sqrt(_squares(rows)) * _OWN)

    def residual(self, a, sizes):
        """Return w − U'a and how long what rounding hides of it can be; ``sizes`` bound the parts a is made of."""
        astray = gamma(len(a) + 64) * (sizes @ self.lengths) + 4.0 * gamma(1) * np.linalg.norm(self.w)
        return self.w - a @ self.U, astray


class _Metric(NamedTuple):
    """A factor of Q, and by how much more lengths in the inverse may be than it says."""

    factor: np.ndarray
    more: float

    def lengths(self, X):
        """Return upper bounds of ‖x‖_{Q⁻¹} for the rows of X."""
        return np.linalg.norm(solve_triangular(self.factor, X.T, lower=True), axis=0) * self.more


class _Region(NamedTuple):
    """Where the minimiser is: within this distance of the weights, in this metric."""

    metric: _Metric
    radius: float


def _metric(U, curvatures, shift=None):
    """Return the metric of I + Σ κ_i (u_i − shift)(u_i − shift)'; None where rounding could hide what it is.

    The computed matrix is off by a matrix of norm at most δ, formation and factor together. All eigenvalues of Q are at
    least 1, so that Q ≥ (1 − δ/(1 − δ)) Q̂.
    """
    m, d = U.shape
    centred = U if shift is None else U - shift
    scaled = np.sqrt(curvatures)[:, None] * centred
    Q = scaled.T @ scaled
    size = np.trace(Q)
    if shift is not None:
        size += curvatures @ np.einsum("ij,ij->i", U, U)
    Q.flat[:: d + 1] += 1.0
    delta = 2.0 * gamma(m + 16) * size + 2.0 * gamma(4 * d + 16) * np.trace(Q)
    if not delta < 0.1:
        return None
    return _Metric(cholesky(Q, lower=True), 1.0 / np.sqrt(1.0 - delta / (1.0 - delta)) * _OWN)


def _of_variance(model, at, k, data):
    """Return the region that the metric of the variance proves."""
    objective = model._objective(data.weights.sum())
    total = data.weights.sum()
    share, bend = data.weights / total, 4.0 * objective.lambda1
    metric = _metric(at.U, bend * share, share @ at.U)
    if metric is None:
        return None
    multipliers = model.multipliers_[k]
    if len(multipliers) != data.n_given:
        raise ValueError(
            f"{type(model).__name__}: expected the {len(multipliers)} training samples in training, got {data.n_given}."
        )
    multipliers = multipliers if data.kept is None else multipliers[data.kept]
    beta = objective.multipliers(multipliers, at.z, data.weights)
    centred = at.z - share @ at.z
    a = objective.dual_coef_of_some(beta, centred, data.weights, total)
    residual, astray = at.residual(a, objective.dual_sizes(beta, centred, data.weights, total))
    rho = metric.lengths(residual[None, :])[0] + astray + np.sqrt(bend * (share @ at.errors**2))
    worst = np.maximum(*(_hinge_gaps(objective, beta, at.z + e, data.weights) for e in (-at.errors, at.errors)))
    return _Region(metric, (np.sqrt(worst.sum() + 0.25 * rho**2) + 0.5 * rho) * _OWN)


def _hinge_gaps(objective, beta, z, weights):
    short = 1.0 - z
    return np.maximum(0.0, objective.upper(weights) * np.maximum(0.0, short) - beta * short)


def _of_pieces(model, at):
    """Return the region of a piecewise quadratic loss that proves itself."""
    objective = model._objective(*(float(getattr(model, name)) for name in model._objective._fields))
    if not hasattr(objective, "theta"):
        return None
    a = -objective.slope(at.z, at.weights)
    kappa = objective.curvature(at.z, at.weights)
    steepest = objective.curvature(np.full_like(at.z, -np.inf), at.weights)
    low, high = 1.0 - objective.theta, 1.0 + objective.theta
    to_edge = np.where(at.z < low, low - at.z, at.z - high) - at.errors
    gradient, astray = at.residual(a, np.abs(a))
    astray += (steepest * (at.errors + gamma(4))) @ at.lengths  # slopes at the exact margins and edges
    inside = (kappa > 0.0) & (to_edge > 0.0)
    for _ in range(_MOST_ROUNDS):
        metric = _metric(at.U[inside], kappa[inside])
        if metric is None:
            return None
        radius = (metric.lengths(gradient[None, :])[0] + astray) * _OWN
        stays = radius * metric.lengths(at.U[inside]) < to_edge[inside]
        if stays.all():
            return _Region(metric, radius)
        inside[np.flatnonzero(inside)[~stays]] = False
    return None
