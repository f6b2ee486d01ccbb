"""Prediction from fitted attributes: ``coef_``, or ``dual_coef_`` and support vectors."""

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from margindist.estimators._training_data import largest_value


class PredictionMixin:
    """Scores and labels."""

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Return the score of every sample: one number for two classes, one per class for more.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples; for ``kernel="precomputed"`` their kernel values with all training samples.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Positive scores speak for ``classes_[1]``, or for each class against the rest.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32], order="C")
        with np.errstate(over="ignore", invalid="ignore"):
            values = self._scores(X)
        if not np.isfinite(values).all():
            value, column = largest_value(X)
            raise ValueError(
                f"{type(self).__name__}: expected features about as large as those of the training data, got such with "
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

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the predicted label of every sample.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        values = self.decision_function(X)
        return self.classes_[(values > 0).astype(int) if values.ndim == 1 else values.argmax(axis=1)]
