"""Classifiers made of other learners: support vector regression on the labels, error-correcting output codes."""

from collections.abc import Callable
from typing import Literal, Self

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.svm import SVR, LinearSVR
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from margindist.estimators._base import MarginClassifier, fitting
from margindist.estimators._parameters import (
    COMMON_PARAMETERS,
    KERNEL_PARAMETERS,
    NON_NEGATIVE,
    POSITIVE,
    KernelName,
    one_of,
)
from margindist.estimators._training_data import MatrixLike

_MOST_CLASSES = 15  # exhaustive codes have 2^(k-1) - 1 columns: 16,383 for 15 classes


class SVRClassifier(MarginClassifier):
    r"""Support vector regression on the labels -1 and +1, a rival in the margin distribution papers.

    .. math:: \min_{w, b} \; \tfrac12 \|w\|^2 + C \sum_i s_i \max(0, |1 - y_i (w \cdot \varphi(x_i) + b)| - \epsilon)

    Margins are asked to be within :math:`\epsilon` of 1 on *both* sides. scikit-learn does the work: ``LinearSVR`` for
    ``kernel="linear"`` (which penalises the bias like a weight), else ``SVR`` (which does not).

    Parameters
    ----------
    C : float, default=1.0
        Price of the errors, positive.
    epsilon : float, default=0.1
        Half-width of the band without price, not negative.
    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="linear"
    gamma : {"scale", "auto"}, float or str such as "5/d", default="scale"
        Coefficient of "rbf", "poly" and "sigmoid". "5/d" is 5 over the number of features, "2*mean-distance" a Gaussian
        twice as wide as the mean distance of two samples.
    degree : int, default=3
        Degree of "poly".
    coef0 : float, default=0.0
        Constant of "poly" and "sigmoid".
    tol : float, default=1e-10
        Tolerance of scikit-learn's solver; so tight that a sample weight of two equals the sample given twice.
    max_iter : int, default=10000
        Passes over the data; a fit that needs more warns. With kernels, as many steps as that many passes would have.
    class_weight : dict, "balanced" or None, default=None
        Factors of C for each class.
    random_state : int, RandomState or None, default=None
        Order of the samples with ``kernel="linear"``.
    n_jobs : int or None, default=None
        Classes fitted at the same time; one with ``kernel="linear"``, whose solver has one source of random numbers.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Only with ``kernel="linear"``.
    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        Factors of the kernel values; only with other kernels.
    support_ : ndarray of shape (n_support,)
        Positions of the samples they belong to; only with other kernels.
    n_support_ : ndarray of shape (n_classes,)
        How many of them belong to each class.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    n_iter_ : int
        The most iterations of one two-class problem.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from margindist import SVRClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> SVRClassifier(kernel="rbf").fit(X, y).predict(X[::50])
    array([0, 1, 2])
    """

    _requirements = {**KERNEL_PARAMETERS, **COMMON_PARAMETERS, "C": POSITIVE, "epsilon": NON_NEGATIVE}

    def __init__(
        self,
        C: float = 1.0,
        epsilon: float = 0.1,
        *,
        kernel: KernelName | Callable = "linear",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        tol: float = 1e-10,
        max_iter: int = 10000,
        class_weight: dict | Literal["balanced"] | None = None,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
    ):
        self.C = C
        self.epsilon = epsilon
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.random_state = random_state
        self.n_jobs = n_jobs

    @fitting
    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit one regression per two-class problem.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples; for ``kernel="precomputed"`` the kernel values between all of them.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            How often each sample counts.

        Returns
        -------
        self
        """
        self._check_parameters()
        data = self._validate_training_data(X, y, sample_weight)
        kernel = self._kernel(data)
        regressor = self._regressor(kernel, len(data.codes))
        X = data.X
        if sp.issparse(X):  # the solvers take 32-bit indices only, and SciPy chooses those where they suffice
            X = sp.csr_matrix((X.data, X.indices, X.indptr), shape=X.shape)
            X = X.toarray() if kernel.is_precomputed else X
        n_jobs = 1 if kernel.is_linear else self.n_jobs  # threads would share liblinear's random numbers
        try:
            fitted = Parallel(n_jobs=n_jobs, prefer="threads")(
                delayed(clone(regressor).fit)(X, signs, data.weights) for signs in self._sign_vectors(data.codes)
            )
        except ValueError as error:  # what else a regressor refuses was checked before
            raise ValueError(
                f"{type(self).__name__}: expected kernel values for which the regression has finite coefficients, got "
                "values too large for it; scale the features, or lower C, gamma or degree."
            ) from error
        space = self._space(data, constant=False, definite=False)
        self._store(space, [_coefficients(one, len(data.codes)) for one in fitted])
        self.intercept_ = np.array([float(np.ravel(one.intercept_)[0]) for one in fitted])
        self.n_iter_ = max(1, *(int(np.max(one.n_iter_)) for one in fitted))
        return self

    def _regressor(self, kernel, n_samples):
        common = {"C": self.C, "epsilon": self.epsilon, "tol": self.tol}
        if kernel.is_linear:
            return LinearSVR(dual=True, max_iter=self.max_iter, random_state=self.random_state, **common)
        steps = min(self.max_iter * n_samples, np.iinfo(np.int32).max)
        return SVR(
            kernel=self.kernel, gamma=kernel.gamma, degree=self.degree, coef0=self.coef0, max_iter=steps, **common
        )


def _coefficients(regression, n_rows):
    """Return the weights of the columns, or of the rows, that a fitted regression of scikit-learn has."""
    if hasattr(regression, "support_"):
        alphas = np.zeros(n_rows)
        result = regression.dual_coef_
        alphas[regression.support_] = (result.toarray() if sp.issparse(result) else result).ravel()
        return alphas
    return regression.coef_


class ECOCClassifier(MetaEstimatorMixin, MarginClassifier):
    r"""Error-correcting output codes with exhaustive codes around any two-class classifier.

    k classes have :math:`2^{k-1} - 1` different splits into two groups. One classifier is trained for each; every class
    has as its code word the sides it is on, and a sample goes to the class whose code word differs from the
    predicted sides in the fewest places [1]_. Any two code words differ in :math:`2^{k-2}` places, so
    :math:`2^{k-3} - 1` wrong classifiers do no harm.

    Parameters
    ----------
    estimator : classifier
        Cloned for every split. Its ``decision_function`` is used for ties, else ``predict_proba``, else neither.
    ties : {"margins", "first"}, default="margins"
        Between classes whose code words are equally near, the sum of the margins decides, or the first class is taken
        (plain Hamming decoding).
    n_jobs : int or None, default=None
        Splits fitted at the same time.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    code_book_ : ndarray of shape (n_classes, 2**(n_classes - 1) - 1)
        -1 or +1: the side of each class in each split. The last class is always positive.
    estimators_ : list of the fitted classifiers, one per column of the code book
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    Notes
    -----
    The number of splits doubles with every class; more than 15 classes are refused.

    References
    ----------
    .. [1] T. Dietterich, G. Bakiri, "Solving multiclass learning problems via error-correcting output codes", JAIR 2,
       1995, section 2.3.1.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from margindist import ECOCClassifier, LSSVMClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = ECOCClassifier(LSSVMClassifier(kernel="rbf")).fit(X, y)
    >>> classifier.code_book_
    array([[-1,  1, -1],
           [-1, -1,  1],
           [ 1,  1,  1]])
    >>> classifier.predict(X[::50])
    array([0, 1, 2])
    """

    _requirements = {"ties": one_of("margins", "first"), "n_jobs": COMMON_PARAMETERS["n_jobs"]}

    def __init__(self, estimator: BaseEstimator, *, ties: str = "margins", n_jobs: int | None = None):
        self.estimator = estimator
        self.ties = ties
        self.n_jobs = n_jobs

    @fitting
    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit one classifier per split of the classes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Handed on to the classifiers.

        Returns
        -------
        self
        """
        self._check_parameters()
        self._check_estimator(sample_weight)
        pairwise = get_tags(self).input_tags.pairwise  # then rows of weight zero are columns, too: they must stay
        data = self._validate_training_data(X, y, None if pairwise else sample_weight)
        weights = self._validate_weights(sample_weight, len(data.codes)) if pairwise else data.weights
        extra = {} if sample_weight is None else {"sample_weight": weights}
        self.code_book_ = self._exhaustive_codes(len(self.classes_))
        self.estimators_ = Parallel(n_jobs=self.n_jobs)(
            delayed(clone(self.estimator).fit)(data.X, column[data.codes], **extra) for column in self.code_book_.T
        )
        return self

    def _check_estimator(self, sample_weight):
        name = type(self).__name__
        if not is_classifier(self.estimator):
            raise ValueError(f"{name}: estimator must be a classifier, got {self.estimator!r}.")
        if sample_weight is not None and not has_fit_parameter(self.estimator, "sample_weight"):
            raise ValueError(f"{name}: {type(self.estimator).__name__} takes no sample_weight; leave it out.")

    def _exhaustive_codes(self, n_classes):
        if n_classes > _MOST_CLASSES:
            raise ValueError(
                f"{type(self).__name__}: exhaustive codes of {n_classes} classes need {2 ** (n_classes - 1) - 1:,} "
                f"classifiers; at most {_MOST_CLASSES} classes are taken, use one-vs-rest for more."
            )
        columns = np.arange(2 ** (n_classes - 1) - 1)
        bits = columns >> np.arange(n_classes - 1)[:, None] & 1
        return np.vstack([2 * bits - 1, np.ones_like(columns)])

    def _scores(self, X):
        margins = np.column_stack([_margins(one, X) for one in self.estimators_])
        if len(self.classes_) == 2:
            return margins
        agreement = np.where(margins > 0, 1.0, -1.0) @ self.code_book_.T
        if self.ties == "first":
            return agreement
        total = margins @ self.code_book_.T
        # Agreements differ by at least 2, the second term stays below 1.
        return agreement + total / (1.0 + np.abs(total))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator).input_tags
        tags.input_tags.sparse, tags.input_tags.pairwise = inner.sparse, inner.pairwise
        return tags


def _margins(classifier, X):
    """Return the scores of a fitted two-class classifier, positive for the label 1."""
    if hasattr(classifier, "decision_function"):
        return classifier.decision_function(X)
    if hasattr(classifier, "predict_proba"):
        return classifier.predict_proba(X)[:, 1] - 0.5
    return classifier.predict(X).astype(np.float64)
