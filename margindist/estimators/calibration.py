"""Probabilities from decision values: a curve per class, fitted to scores of rows that the classifier had not seen."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.isotonic import IsotonicRegression
from sklearn.model_selection import cross_val_predict

CURVES = ("sigmoid", "isotonic")
_NEWTON_STEPS = 100


class CalibratedClassifier(ClassifierMixin, BaseEstimator):
    r"""A classifier whose decision values become probabilities.

    Cross-validation gives every training row a score by a model that has not seen it. A curve from scores to
    probabilities is fitted to these, and the classifier is then fitted to all rows. The curve is Platt's sigmoid

    .. math:: p(s) = \frac{1}{1 + e^{-(a s + b)}}

    with targets drawn towards one half by as much as one row more in either class would draw them, or the increasing
    step function closest to the labels (isotonic regression). With more than two classes there is one curve per class,
    and the probabilities of a row are divided by their sum.

    Parameters
    ----------
    estimator : classifier
        One with ``decision_function``.
    method : {"sigmoid", "isotonic"}, default="sigmoid"
        The curve. Isotonic regression needs about a thousand rows.
    cv : int or splitter, default=5
        Folds that give rows their scores.

    Attributes
    ----------
    estimator_ : classifier
        Fitted to all rows.
    classes_ : ndarray
    sigmoid_ : ndarray of shape (n_curves, 2) or None
        The two numbers of each sigmoid.
    isotonic_ : list of (ndarray, ndarray) or None
        Scores in ascending order and their probabilities, with straight lines between.

    References
    ----------
    J. Platt, "Probabilistic outputs for support vector machines", 1999; B. Zadrozny and C. Elkan, "Transforming
    classifier scores into accurate multiclass probability estimates", KDD 2002.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from margindist import LDMClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = CalibratedClassifier(LDMClassifier()).fit(X, y)
    >>> model.predict_proba(X[:1]).sum().round(6).item()
    1.0
    """

    def __init__(self, estimator: Any, method: str = "sigmoid", cv: Any = 5):
        self.estimator = estimator
        self.method = method
        self.cv = cv

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Fit the curves to scores of held-out rows, and the classifier to all rows."""
        if self.method not in CURVES:
            raise ValueError(f"CalibratedClassifier: method must be one of {', '.join(CURVES)}, got {self.method!r}.")
        y = np.asarray(y)
        scores = _columns(cross_val_predict(self.estimator, X, y, cv=self.cv, method="decision_function"))
        self.estimator_ = clone(self.estimator).fit(X, y)
        self.classes_ = self.estimator_.classes_
        self.n_features_in_ = self.estimator_.n_features_in_
        self.sigmoid_, self.isotonic_ = fit_curves(self.method, scores, y, self.classes_)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the classifier's own scores."""
        return self.estimator_.decision_function(X)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of every class, a row per sample."""
        return probabilities(_columns(self.decision_function(X)), self.sigmoid_, self.isotonic_)

    def predict(self, X: Any) -> np.ndarray:
        """Return the likeliest class of every sample."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def calibrated(estimator: Any, like: CalibratedClassifier) -> CalibratedClassifier:
    """Return a fitted classifier with the curves of another one, fitted to fewer rows with the same parameters."""
    model = CalibratedClassifier(like.estimator, like.method, like.cv)
    model.estimator_, model.classes_ = estimator, estimator.classes_
    model.n_features_in_ = estimator.n_features_in_
    model.sigmoid_, model.isotonic_ = like.sigmoid_, like.isotonic_
    return model


def fit_curves(method: str, scores: np.ndarray, y: np.ndarray, classes: np.ndarray) -> tuple:
    """Return the sigmoids and the step functions, of which one is None, for scores with a column per curve."""
    positives = [y == label for label in (classes[1:] if len(classes) == 2 else classes)]
    if method == "sigmoid":
        return np.array([fit_sigmoid(column, positive) for column, positive in zip(scores.T, positives)]), None
    curves = []
    for column, positive in zip(scores.T, positives):
        steps = IsotonicRegression(y_min=0.0, y_max=1.0).fit(column, positive)
        curves.append((steps.X_thresholds_.astype(np.float64), steps.y_thresholds_.astype(np.float64)))
    return None, curves


def probabilities(scores: np.ndarray, sigmoid: np.ndarray | None, isotonic: list | None) -> np.ndarray:
    """Return probabilities with a column per class from scores with a column per curve."""
    if sigmoid is not None:
        found = expit(scores * sigmoid[:, 0] + sigmoid[:, 1])
    else:
        found = np.column_stack([np.interp(column, *curve) for column, curve in zip(scores.T, isotonic)])
    if found.shape[1] == 1:
        return np.column_stack([1.0 - found[:, 0], found[:, 0]])
    total = found.sum(axis=1, keepdims=True)
    even = np.full_like(found, 1.0 / found.shape[1])  # where every curve says that the row is not of its class
    return np.divide(found, total, out=even, where=total > 0.0)


def fit_sigmoid(scores: np.ndarray, positive: np.ndarray) -> tuple[float, float]:
    """Return slope and offset of the likeliest sigmoid, by Newton's method with steps that never climb."""
    n_positive = int(positive.sum())
    target = np.where(positive, (n_positive + 1.0) / (n_positive + 2.0), 1.0 / (len(positive) - n_positive + 2.0))
    unit = float(np.std(scores)) or 1.0
    design = np.column_stack([scores / unit, np.ones(len(scores))])
    curve = np.array([0.0, np.log(target.mean() / (1.0 - target.mean()))])

    def loss(curve):
        values = design @ curve
        return float(np.sum(np.logaddexp(0.0, values) - target * values))

    value = loss(curve)
    for _ in range(_NEWTON_STEPS):
        p = expit(design @ curve)
        gradient = design.T @ (p - target)
        curvature = (design * (p * (1.0 - p))[:, None]).T @ design + 1e-12 * len(scores) * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        share = 1.0
        while share > 1e-10 and loss(curve - share * step) > value:
            share *= 0.5
        curve = curve - share * step
        before, value = value, loss(curve)
        if before - value <= 1e-12 * max(1.0, abs(value)):
            break
    return float(curve[0] / unit), float(curve[1])


def _columns(scores):
    scores = np.asarray(scores, dtype=np.float64)
    return scores[:, None] if scores.ndim == 1 else scores
