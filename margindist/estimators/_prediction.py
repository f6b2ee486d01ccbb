"""Prediction from fitted attributes: ``coef_``, or ``dual_coef_`` and support vectors."""

import warnings
from typing import Any

import numpy as np
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from margindist.dask import as_partitions
from margindist.estimators._training_data import RowsLike, largest_value
from margindist.spaces.partitions import Round, drive
from margindist.spaces.rows import as_matrix


class PredictionMixin:
    """Scores and labels."""

    classes_: np.ndarray
    coef_: np.ndarray
    intercept_: np.ndarray
    dual_coef_: np.ndarray
    support_: np.ndarray
    n_support_: np.ndarray
    n_features_in_: int
    feature_names_in_: np.ndarray

    def decision_function(self, X: RowsLike) -> np.ndarray:
        """Return the score of every sample: one number for two classes, one per class for more.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or data in partitions
            Samples; for ``kernel="precomputed"`` their kernel values with all training samples.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Positive scores speak for ``classes_[1]``, or for each class against the rest. Lazy for Dask collections.
        """
        check_is_fitted(self)
        if (rows := as_partitions(X)) is not None:
            return self._on_partitions(rows, self.decision_function)
        X = self._validate_rows(X, reset=False)
        with np.errstate(over="ignore", invalid="ignore"):
            values = self._scores(X)
        if not np.isfinite(values).all():
            value, column = largest_value(X)
            raise ValueError(
                f"{type(self).__name__}: expected features about as large as those of the training data, got some with "
                f"which scores overflow (the largest is {value:g} in column {column}); scale all data alike."
            )
        return values.ravel() if values.shape[1] == 1 else values

    def _scores(self, X):
        if hasattr(self, "coef_"):
            return safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_
        if self.kernel_.is_precomputed:
            return X[:, self.support_] @ self.dual_coef_.T + self.intercept_
        if not len(self.support_):  # no row tells the classes apart, and kernels take no empty arrays
            return np.tile(self.intercept_, (X.shape[0], 1))
        values = self.kernel_.against(self.support_vectors_)
        block = max(
            1, 2**24 // max(len(self.support_), X.shape[1])
        )  # rows and kernel values of at most 128 MB at a time
        parts = [values(X[start : start + block]) @ self.dual_coef_.T for start in range(0, X.shape[0], block)]
        return np.vstack(parts) + self.intercept_

    def predict(self, X: RowsLike) -> np.ndarray:
        """Return the predicted label of every sample.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or data in partitions
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,)
            Lazy for Dask collections.
        """
        check_is_fitted(self)
        if (rows := as_partitions(X)) is not None:
            return self._on_partitions(rows, self.predict)
        values = self.decision_function(X)
        return self.classes_[(values > 0).astype(int) if values.ndim == 1 else values.argmax(axis=1)]

    def score(self, X: RowsLike, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy: the share of the samples that are predicted right.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or data in partitions
            Samples.

        y : array-like of shape (n_samples,), default=None
            True labels; None where they are part of data in partitions.

        sample_weight : array-like of shape (n_samples,), default=None
            How often each sample counts.

        Returns
        -------
        float
        """
        if (rows := as_partitions(X)) is None:
            return super().score(X, y, sample_weight)
        check_is_fitted(self)
        self._check_names(rows)
        place = rows.place(y, sample_weight)
        try:
            (counted,) = drive(place, _Predicted, [(self,)], _count)
        finally:
            place.close()
        if counted is None:
            raise ValueError(f"{type(self).__name__}: expected samples to predict, but all partitions are empty.")
        return float(counted["right"] / counted["weight"])

    def _on_partitions(self, rows, method):
        self._check_names(rows)
        return rows.map_rows(_WithoutNames(method))

    def _check_names(self, X):
        """Raise an error unless the columns of partitions, where they have names, are those of the training data."""
        known = getattr(self, "feature_names_in_", None)
        if known is not None and X.feature_names is not None and list(X.feature_names) != list(known):
            raise ValueError(
                f"{type(self).__name__}: expected the columns {_shortened(known)}, as in fit, got "
                f"{_shortened(X.feature_names)}."
            )


class _WithoutNames:
    """A method of a fitted classifier for features without names, whose place has been compared before."""

    def __init__(self, method):
        self._method = method

    def __call__(self, X):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
            return self._method(X)


def _count(k, start):
    return (yield Round("count"))


class _Predicted:
    """The labels of a partition beside those that a classifier predicts."""

    def __init__(self, rows, labels, weights, classifier):
        self._right = _WithoutNames(classifier.predict)(as_matrix(rows)) == labels
        self._weights = weights

    def count(self, rows):
        """Return the weights of all rows, and of those predicted right."""
        return {"right": self._weights @ self._right, "weight": self._weights.sum()}


def _shortened(names):
    names = [str(name) for name in names]
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
