"""The maximal average margin classifier."""

from collections.abc import Callable
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from margindist.estimators._base import MarginClassifier, fitting
from margindist.estimators._parameters import (
    COMMON_PARAMETERS,
    KERNEL_PARAMETERS,
    POSITIVE,
    KernelName,
    Requirement,
    one_of,
)
from margindist.estimators._training_data import MatrixLike
from margindist.solvers.average_margin import SLOPES, find_bias, search_slope

_N_FOLDS = 5


class MAMClassifier(MarginClassifier):
    r"""Maximal average margin classifier with optimal bias (MAMC_b), or plain (MAMC), or with optimal slope (MAMC_bs).

    Among all unit vectors the one with the largest average margin is the difference of the class sums:

    .. math:: f(x) = \frac1M \sum_{y_i = 1} s_i K(x, x_i) - \frac{C_m}{M} \sum_{y_i = -1} s_i K(x, x_i) + b ,
              \qquad M = \sum_i s_i ,

    with :math:`C_m = 1`. Nothing is optimised, so training is a sum; with a kernel it is the difference of two Parzen
    density estimates. The bias that maximises the average margin, the mean label, ignores where the classes lie and is
    a poor one; choosing it by the fewest training errors (``bias="optimal"``) repairs most of that, and another
    factor :math:`C_m` of the negative class (``slope``) tilts the hyperplane. So the default is MAMC_b; where a paper
    says MAMC, it is ``MAMClassifier(bias="mean")``, and ``MAMClassifier(slope="cv")`` is MAMC_bs.

    Parameters
    ----------
    bias : {"optimal", "mean", "zero"}, default="optimal"
        "optimal" has the fewest training errors, among those the least sum of slacks, and takes
        O(n_samples log n_samples) once the scores are there (MAMC_b, eqs. 14 to 25). "mean" is the mean label (MAMC,
        eq. 13; negative labels count ``slope`` times), "zero" none.
    slope : float or "cv", default=1.0
        Factor :math:`C_m > 0` of the negative class. "cv" chooses it from the paper's 21 values between 0.05 and 20 by
        five-fold cross-validation, the bias determined anew in each fold (MAMC_bs); equally good values go to the one
        nearest to 1. Kernel values are computed once for all values and folds.
    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="linear"
        "linear" needs the class sums only, other kernels a strip of the Gram matrix at a time (none at all for a
        given slope and a bias that is not optimal).
    gamma : {"scale", "auto"}, float or str such as "5/d", default="scale"
        Coefficient of "rbf", "poly" and "sigmoid". "5/d" is 5 divided by the number of features: the scaling of the
        paper, whose kernel is :math:`\exp(-\gamma \|x - x'\|^2 / d)`. "auto" is "1/d",
        "2*mean-distance" a Gaussian twice as wide as the mean distance of two samples.
    degree : int, default=3
        Degree of "poly".
    coef0 : float, default=0.0
        Constant of "poly" and "sigmoid".
    class_weight : dict, "balanced" or None, default=None
        Factors of the sample weights. "balanced" makes the direction the difference of the class means.
    random_state : int, RandomState or None, default=None
        Deals the rows to the folds of ``slope="cv"``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Only with ``kernel="linear"``.
    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        Factors of the kernel values; only with other kernels. Every sample is a support vector.
    support_ : ndarray of shape (n_support,)
        Positions of these samples; only with other kernels.
    n_support_ : ndarray of shape (n_classes,)
        How many of them belong to each class.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    slope_ : float or ndarray of shape (n_classes,)
        The slope used, given or chosen; an array for more than two classes.
    slope_grid_ : ndarray of shape (n_slopes,)
        The slopes tried; only with ``slope="cv"``.
    slope_cv_error_ : ndarray of shape (1, n_slopes) or (n_classes, n_slopes)
        Share of weight misclassified in cross-validation; only with ``slope="cv"``.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    Notes
    -----
    More than two classes are separated one against the rest. A sample weight of two is the sample given twice, except
    that ``slope="cv"`` deals rows, not their copies, to its folds.

    References
    ----------
    .. [1] S. Abe, "Improving generalization abilities of maximal average margin classifiers", ANNPR 2016.
    .. [2] K. Pelckmans, J. Suykens, B. De Moor, "A risk minimization principle for a class of Parzen estimators",
       NIPS 2007.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import minmax_scale
    >>> from margindist import MAMClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = minmax_scale(X)
    >>> for bias in "mean", "optimal":
    ...     classifier = MAMClassifier(bias=bias, kernel="rbf", gamma="5/d").fit(X, y)
    ...     print(f"{bias}: {classifier.score(X, y):.3f}")
    mean: 0.627
    optimal: 0.930
    """

    _requirements = {
        **KERNEL_PARAMETERS,
        **COMMON_PARAMETERS,
        "bias": one_of("optimal", "mean", "zero"),
        "slope": Requirement(
            lambda value: (isinstance(value, str) and value == "cv") or POSITIVE.test(value),
            "a positive number or 'cv'",
        ),
    }

    def __init__(
        self,
        bias: Literal["optimal", "mean", "zero"] = "optimal",
        slope: float | str = 1.0,
        *,
        kernel: KernelName | Callable = "linear",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        class_weight: dict | Literal["balanced"] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.bias = bias
        self.slope = slope
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.class_weight = class_weight
        self.random_state = random_state

    @fitting
    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Sum up the classes, and choose bias and slope if asked to.

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
        signs = np.array(self._sign_vectors(data.codes))
        space = self._space(data, constant=False, definite=False)
        if self.slope == "cv":
            slopes, scores = self._search_slopes(data, signs, space)
        else:
            slopes, scores = np.full(len(signs), float(self.slope)), None
        alphas = np.where(signs > 0, 1.0, -slopes[:, None]) * (data.weights / data.weights.sum())
        self._store(space, space.from_rows(alphas))
        if self.bias == "optimal" and scores is None:
            scores = space.image(np.ascontiguousarray(alphas.T))
        self.intercept_ = np.array([
            find_bias(self.bias, None if scores is None else scores[:, k], slopes[k], signs[k], data.weights)
            for k in range(len(signs))
        ])  # fmt: skip
        self.slope_ = slopes if len(slopes) > 1 else float(slopes[0])
        return self

    def _search_slopes(self, data, signs, space):
        """Choose the slopes by cross-validation; return them with the scores of the rows, one column per problem.

        This is not the search of :mod:`margindist.estimators._search`: each problem of one against the rest chooses
        its own slope, and equally good ones go to the nearest to 1, not to the first.
        """
        folds = self._deal(data.codes)
        groups = np.zeros((len(folds), _N_FOLDS, len(self.classes_)))  # the weight of each row, at its fold and class
        groups[np.arange(len(folds)), folds, data.codes] = data.weights
        sums = space.image(groups.reshape(len(folds), -1)).reshape(groups.shape)
        positives = [1] if len(signs) == 1 else range(len(signs))
        result = [
            search_slope(sums, positive, folds, s, data.weights, self.bias) for positive, s in zip(positives, signs)
        ]
        self.slope_grid_ = SLOPES.copy()
        self.slope_cv_error_ = np.array([search.errors for search in result]) / data.weights.sum()
        return np.array([search.slope for search in result]), np.column_stack([search.scores for search in result])

    def _deal(self, codes):
        """Return the fold of each row, every class spread evenly."""
        shuffled = self._rng().permutation(len(codes))
        folds = np.empty(len(codes), dtype=np.intp)
        folds[shuffled[np.argsort(codes[shuffled], kind="stable")]] = np.arange(len(codes)) % _N_FOLDS
        return folds

    def _grid_accuracies(self, points, X, gram, signs, folds):
        """Return the accuracy of every point on every fold, or None where nothing is shared.

        The scores are sums over each fold's classes, of which every slope is a combination.
        """
        slopes = [point.get("slope", self.slope) for point in points]
        known = points[0].keys() <= {"slope", "bias"}
        if gram is None or self.class_weight is not None or "cv" in slopes or not known:
            return None
        accuracies = np.empty((len(points), len(folds)))
        for f, (train, test) in enumerate(folds):
            plus = gram[:, train[signs[train] > 0]].sum(axis=1) / len(train)
            minus = gram[:, train[signs[train] < 0]].sum(axis=1) / len(train)
            ones = np.ones(len(train))
            for k, (point, slope) in enumerate(zip(points, slopes)):
                values = plus - slope * minus
                bias = find_bias(point.get("bias", self.bias), values[train], slope, signs[train], ones)
                accuracies[k, f] = np.mean((values[test] + bias > 0) == (signs[test] > 0))
        return accuracies
