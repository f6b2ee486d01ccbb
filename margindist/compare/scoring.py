"""What methods are ranked by: six scores, all computed from decision values and predicted labels.

Greater is better for every score here; log-loss is kept with a minus sign and shown without it. Scores that depend on
one class (average precision, and the curves of the report) are those of the rarer class of two; with more classes every
class is held against the rest, and the mean counts.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score, log_loss, recall_score, roc_auc_score

LABELS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "f1_macro": "F1 (mean over classes)",
    "roc_auc": "area under the ROC curve",
    "average_precision": "average precision",
    "log_loss": "log-loss after calibration",
}
SHORT = {
    **LABELS,
    "balanced_accuracy": "balanced",
    "f1_macro": "F1 macro",
    "roc_auc": "ROC AUC",
    "log_loss": "log-loss",
}


def score_name(scoring: Any) -> str:
    """Return the name of a score, also of a function or of what scikit-learn's ``make_scorer`` has made of one.

    Examples
    --------
    >>> from sklearn.metrics import fbeta_score, make_scorer
    >>> score_name("accuracy"), score_name(make_scorer(fbeta_score, beta=2))
    ('accuracy', 'fbeta_score')
    """
    named = getattr(scoring, "__name__", str(scoring))
    return named.removeprefix("make_scorer(").partition(",")[0].rstrip(")")


class Scorer(NamedTuple):
    """A score in the form that searches take: called with a fitted classifier, rows and labels.

    Parameters
    ----------
    name : str
        One of `LABELS`.
    positive : object
        The class that average precision is about, of two.
    """

    name: str
    positive: Any = None

    def __call__(self, estimator: Any, X: Any, y: np.ndarray) -> float:
        """Return the score."""
        y = np.asarray(y)
        decision = decide(estimator, X)
        if self.name == "log_loss":
            return -_cross_fitted_log_loss(columns(decision, estimator.classes_), y, estimator.classes_)
        values = columns(decision, estimator.classes_, self.positive)
        return measures(y, estimator.predict(X), values, estimator.classes_, self.positive, only=self.name)[self.name]


def decide(estimator: Any, X: Any) -> np.ndarray:
    """Return decision values; of a classifier that has none, probabilities in their shape."""
    if hasattr(estimator, "decision_function"):
        return estimator.decision_function(X)
    p = estimator.predict_proba(X)
    return p[:, 1] if p.shape[1] == 2 else p


def probabilities_after(model: Any, folds: Any, X: Any, y: np.ndarray, X_test: Any) -> np.ndarray:
    """Return probabilities of test rows: a classifier's own where it has no decision values, else calibrated ones.

    Parameters
    ----------
    model : classifier
        Not fitted here; a copy of it is.
    folds : list of (train, test)
        On which the sigmoid is fitted.
    X, y, X_test
        Training rows, their labels, and test rows.
    """
    if not hasattr(model, "decision_function"):
        return clone(model).fit(X, y).predict_proba(X_test)
    return CalibratedClassifierCV(clone(model), cv=folds, ensemble=False).fit(X, y).predict_proba(X_test)


def columns(decision: np.ndarray, classes: np.ndarray, positive: Any = None) -> np.ndarray:
    """Return decision values with a column per class, or one of two classes: that of the positive one."""
    decision = np.asarray(decision, dtype=float)
    if decision.ndim == 2:
        return decision
    return decision[:, None] if positive is None or positive == classes[1] else -decision[:, None]


def measures(
    y: np.ndarray,
    predicted: np.ndarray,
    values: np.ndarray,
    classes: np.ndarray,
    positive: Any,
    only: str | None = None,
) -> dict[str, float]:
    """Return every score but log-loss, or one of them.

    Parameters
    ----------
    y, predicted : ndarray of shape (n_samples,)
    values : ndarray of shape (n_samples, n_columns)
        As :func:`columns` makes them.
    classes : ndarray
    positive : object
        The class of a single column.
    only : str, optional
    """
    there = np.unique(y)
    computed = {
        "accuracy": lambda: np.mean(predicted == y),
        # Of the classes that the test part has: scikit-learn warns of predicted ones that it lacks.
        "balanced_accuracy": lambda: recall_score(y, predicted, labels=there, average="macro", zero_division=0.0),
        "f1_macro": lambda: f1_score(y, predicted, labels=there, average="macro", zero_division=0.0),
        "roc_auc": lambda: _mean_over_classes(roc_auc_score, y, values, classes, positive),
        "average_precision": lambda: _mean_over_classes(average_precision_score, y, values, classes, positive),
    }
    return {name: float(make()) for name, make in computed.items() if only in (None, name)}


def _mean_over_classes(score, y, values, classes, positive):
    """The mean of a score of each class against the rest; classes without rows are left out."""
    labels = [classes[1] if positive is None else positive] if values.shape[1] == 1 else classes
    parts = [(y == label, column) for label, column in zip(labels, values.T)]
    return np.mean([score(part, column) for part, column in parts if 0 < part.sum() < len(part)] or [np.nan])


def _cross_fitted_log_loss(values, y, classes):
    """Log-loss of sigmoids that were fitted to the other half of these rows."""
    half = np.zeros(len(y), dtype=bool)
    for label in classes:
        half[np.flatnonzero(y == label)[::2]] = True
    losses = []
    for fitted, scored in ((half, ~half), (~half, half)):
        labels = classes[1:] if len(classes) == 2 else classes
        pairs = zip(values[fitted].T, values[scored].T, labels)
        p = np.column_stack([sigmoid(seen, y[fitted] == label, new) for seen, new, label in pairs])
        p = np.hstack([1.0 - p, p]) if len(classes) == 2 else p / p.sum(axis=1, keepdims=True)
        losses.append(scored.sum() * mean_log_loss(y[scored], p, classes))
    return sum(losses) / len(y)


def sigmoid(scores: np.ndarray, positive: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return the probabilities of new scores by Platt's sigmoid, which may have seen one class only.

    Its targets are drawn towards one half by as much as one row more in either class would draw them. A row whose
    target is t counts as t of a positive row and 1 - t of a negative one.
    """
    if not len(scores) or not len(new):
        return np.full(len(new), 0.5)
    n_positive = positive.sum()
    target = np.where(positive, (n_positive + 1.0) / (n_positive + 2.0), 1.0 / (len(positive) - n_positive + 2.0))
    centre, unit = scores.mean(), scores.std() or 1.0
    twice = np.tile((scores - centre) / unit, 2)[:, None]
    curve = LogisticRegression(C=1e12, tol=1e-8, max_iter=1000)
    curve.fit(twice, np.repeat([1, 0], len(scores)), sample_weight=np.concatenate([target, 1.0 - target]))
    return curve.predict_proba((new[:, None] - centre) / unit)[:, 1]


def mean_log_loss(y: np.ndarray, p: np.ndarray, classes: np.ndarray) -> float:
    """Return the mean of -log p of the true class; rows without any are no loss."""
    return float(log_loss(y, p, labels=classes)) if len(y) else 0.0


def baseline(name: str, part: Mapping[str, int], everywhere: Mapping[str, int], positive: str | None) -> float:
    """Return the score on a test part of naming the most frequent class always (for log-loss: the share of each class).

    Parameters
    ----------
    name : str
        One of `LABELS`; of any other score it is not known, and not a number.
    part, everywhere : dict
        From classes to rows, of the test part and of all rows.
    positive : str or None
        The class that average precision is about, of two.
    """
    if name not in LABELS:
        return float("nan")
    n_rows = sum(part.values())
    shares = {label: count / n_rows for label, count in part.items()}
    n_classes = sum(count > 0 for count in part.values())
    most = shares[max(everywhere, key=everywhere.get)]
    if name == "log_loss":
        total = sum(everywhere.values())
        return float(sum(share * np.log(everywhere[label] / total) for label, share in shares.items()))
    return float({
        "accuracy": most,
        "balanced_accuracy": 1.0 / n_classes,
        "f1_macro": 2.0 * most / (1.0 + most) / n_classes,
        "roc_auc": 0.5,
        "average_precision": 1.0 / n_classes if positive is None else shares[positive],
    }[name])  # fmt: skip
