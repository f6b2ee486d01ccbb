r"""Margins of labelled samples, from a classifier or from its decision values.

With two classes the margin of a sample is :math:`z = y f(x)`, the label counted as :math:`-1` or :math:`+1`; with more
it is the score of the true class less the best of the others (Zhang & Zhou 2017, section 2),

.. math:: z = f_y(x) - \max_{l \ne y} f_l(x) .

Negative margins are errors. A classifier's scores have no unit: doubling all weights doubles every margin and changes
no prediction. *Geometric* margins have one, the features' own: they are the signed distances to the boundary,

.. math:: \frac{y f(x)}{\|w\|} \qquad\text{and}\qquad \min_{l \ne y} \frac{f_y(x) - f_l(x)}{\|w_y - w_l\|} ,

in the space of the features, or in the kernel's, where :math:`\|w\|^2 = \alpha^T K \alpha`.
"""

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from margindist.estimators._training_data import MatrixLike


def margins(estimator: Any, X: MatrixLike, y: ArrayLike, *, geometric: bool = False) -> np.ndarray:
    r"""Return the margin of every sample under a fitted classifier.

    Parameters
    ----------
    estimator : fitted classifier
        Anything with ``classes_`` and ``decision_function``, pipelines and parameter searches included.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Samples, as the estimator takes them.
    y : array-like of shape (n_samples,)
        True labels.
    geometric : bool, default=False
        Divide by the norm of the weight vector, or of the difference of two weight vectors where there are more than
        two classes, so that margins are distances to the boundary and different classifiers can be compared. Linear
        models need ``coef_``, kernel models ``dual_coef_`` and ``support_vectors_``; in a pipeline the distances are
        those in the space of its last step.

    Returns
    -------
    ndarray of shape (n_samples,)
        Negative where the classifier is wrong.

    See Also
    --------
    margins_from_decision : The same from decision values, also from probabilities or votes.

    Notes
    -----
    For three classes or more the scores of scikit-learn's ``SVC`` and ``NuSVC`` are votes of their pairwise
    classifiers, with ties broken by confidence, and so the results are differences of votes, not margins.

    Examples
    --------
    >>> from margindist.margins import margins
    >>> from sklearn.svm import LinearSVC
    >>> X, y = [[-3.0], [-1.0], [1.0], [3.0]], ["no", "no", "yes", "yes"]
    >>> classifier = LinearSVC(C=100.0, random_state=0).fit(X, y)
    >>> margins(classifier, X, y, geometric=True).round(2)
    array([3., 1., 1., 3.])
    """
    name = type(estimator).__name__
    if not hasattr(estimator, "decision_function"):
        raise TypeError(
            f"margins needs an estimator with decision_function, which {name} does not have; margins_from_decision "
            "takes other scores, predict_proba's for example."
        )
    last = _last_step(estimator)
    decision = np.asarray(estimator.decision_function(X))
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        raise TypeError(f"margins needs a classifier, but {name} has no classes_.")
    if len(classes) > 2 and getattr(last, "decision_function_shape", None) == "ovo":
        raise ValueError(
            f"margins needs one score per class, but {type(last).__name__} gives one per pair of classes; set "
            "decision_function_shape='ovr'."
        )
    scores, codes = _scores_and_codes(decision, y, classes)
    return _margins(scores, codes, _weight_products(last, scores) if geometric else None)


def margins_from_decision(decision: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> np.ndarray:
    """Return the margin of every sample from decision values.

    Parameters
    ----------
    decision : array-like of shape (n_samples,) or (n_samples, n_classes)
        Scores: one per sample, positive for the second of two classes, or one per class. Probabilities or votes per
        class will do as well.
    y : array-like of shape (n_samples,)
        True labels.
    classes : array-like of shape (n_classes,), default=None
        The labels in the order of the scores, an estimator's ``classes_``; None means the sorted labels of ``y``.

    Returns
    -------
    ndarray of shape (n_samples,)
        Negative where the scores speak for a wrong class.

    Examples
    --------
    >>> from margindist.margins import margins_from_decision
    >>> margins_from_decision([1.5, -0.5, 2.0], [1, 0, 0])
    array([ 1.5,  0.5, -2. ])
    >>> margins_from_decision([[1.0, 0.0, -1.0], [2.0, 0.0, 3.0]], ["a", "b"], ["a", "b", "c"])
    array([ 1., -3.])
    """
    return _margins(*_scores_and_codes(decision, y, classes))


def _last_step(estimator):
    """Return the classifier inside pipelines and parameter searches."""
    while True:
        if isinstance(estimator, Pipeline):
            estimator = estimator[-1]
        elif hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        else:
            return estimator


def _scores_and_codes(decision, y, classes):
    """Return scores as an array of two dimensions (one column for two classes), and each label's place in classes."""
    scores = check_array(decision, ensure_2d=False, dtype=np.float64, input_name="decision")
    y = column_or_1d(y)
    check_consistent_length(scores, y)
    scores = scores.reshape(len(y), -1)
    classes = np.unique(y) if classes is None else column_or_1d(classes)
    expected = max(2, scores.shape[1])
    if len(classes) != expected:
        raise ValueError(
            f"margins_from_decision: decision values of shape {np.shape(decision)} belong to {expected} classes, got "
            f"{len(classes)}: {classes.tolist()}; pass the classes in the order of the scores."
        )
    place = {label: k for k, label in enumerate(classes.tolist())}
    labels = y.tolist()
    codes = np.array([place.get(label, -1) for label in labels])
    if codes.min() < 0:
        raise ValueError(f"margins: the label {labels[codes.argmin()]!r} is not among the classes {classes.tolist()}.")
    return scores, codes


def _margins(scores, codes, products=None):
    """Return margins; with the inner products of the weight vectors, as distances."""
    if scores.shape[1] == 1:
        norm = 1.0 if products is None else _positive_root(products[0, 0])
        return np.where(codes == 1, scores[:, 0], -scores[:, 0]) / norm
    every = np.arange(len(codes))
    ahead = scores[every, codes][:, None] - scores
    if products is not None:
        squares = np.diag(products)
        distances = squares[:, None] + squares - 2.0 * products
        np.fill_diagonal(distances, 1.0)
        ahead /= _positive_root(distances)[codes]
    ahead[every, codes] = np.inf
    return ahead.min(axis=1)


def _positive_root(squares):
    if np.min(squares) <= 0.0:
        raise ValueError("margins: a weight vector, or the difference of two, is zero, so there is no distance to it.")
    return np.sqrt(squares)


def _weight_products(classifier, scores):
    """Return the inner products of the weight vectors, one row and one column per score.

    A kernel model's weight vectors are ``Σ α_i φ(x_i)``; their products follow from its own scores of the support
    vectors, whatever the kernel.
    """
    n_scores = scores.shape[1]
    vectors = getattr(classifier, "support_vectors_", None)
    if vectors is not None and hasattr(classifier, "dual_coef_"):
        alphas = _dense(classifier.dual_coef_)
        if alphas.shape == (n_scores, vectors.shape[0]):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
                values = classifier.decision_function(vectors).reshape(-1, n_scores)
            return alphas @ (values - classifier.intercept_)
    elif hasattr(classifier, "coef_"):
        coef = np.atleast_2d(_dense(classifier.coef_))
        if len(coef) == n_scores:
            return coef @ coef.T
    raise ValueError(
        f"margins: geometric=True needs one weight vector per score, in coef_ or as dual_coef_ with support_vectors_; "
        f"this {type(classifier).__name__} does not keep them, so take geometric=False."
    )


def _dense(array):
    return array.toarray() if sp.issparse(array) else np.asarray(array, dtype=np.float64)
