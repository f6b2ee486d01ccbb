"""Cross-validation over whole grids: Gram matrices, factorisations and starting points are shared, not made anew.

The estimators here choose parameters as :class:`sklearn.model_selection.GridSearchCV` does, with the same folds, scores
and ties, and fit their classifier on everything with the best ones. What differs is the cost. A search refits the
classifier for every point of the grid and every fold; here a fold is solved for all points at once:

- kernel values between all samples are computed once for every ``gamma`` given as a number; folds are parts of them;
- LDM: one eigendecomposition a fold, :mod:`margindist.solvers.projected_newton`;
- LS-SVM: one eigendecomposition a fold, then a closed form for every ``C``, :mod:`margindist.solvers.least_squares`;
- MSVMAv: the start of the rounds is shared, and they are one compiled loop, :mod:`margindist.solvers.semivariance`;
- ODM: one factorisation of the kernel a fold, and Newton steps from the solution for the ``lam`` before.
"""

import copy
import warnings
from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from itertools import groupby
from typing import Any, NamedTuple, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import ParameterGrid, check_cv
from sklearn.utils.validation import check_is_fitted, validate_data

from margindist.estimators._base import (
    COMMON_PARAMETERS,
    GAMMA_PER_FEATURE,
    KERNEL_PARAMETERS,
    MarginClassifier,
    Requirement,
    TrainingData,
    _threadpools,
    fitting,
)
from margindist.estimators.ldm import LDMClassifier
from margindist.estimators.lssvm import LSSVMClassifier
from margindist.estimators.msvmav import MSVMAvClassifier
from margindist.estimators.odm import ODMClassifier
from margindist.kernels import FullGram, Kernel, cholesky_factor, gram_bytes, gram_matrix
from margindist.objectives import LDM, ODM
from margindist.solvers import least_squares, multiclass, newton, projected_newton, semivariance
from margindist.solvers._rows import as_rows, dense_matrix, n_columns, weighted_sums
from margindist.solvers._solution import Options, Problem

_LARGEST_SHARED = 1e9  # bytes of kernel values between all samples that are kept for the folds
_EXACT = 1e-7  # relative gap the solvers along a grid aim at: from a good start it costs no more than a large one
_LARGEST_DUAL = 3000  # rows of a fold up to which LDM's dual matrix is formed
_LARGEST_DENSE = 2e7  # entries of sparse rows that are made dense for the compiled rounds of MSVMAv
_UNSOLVED = "the scores are not finite, as with a kernel that is not positive semi-definite."
_GAMMA_KERNELS = ("rbf", "poly", "sigmoid")
_PAPER_LAMBDAS = tuple(2.0**k for k in range(-8, -1))
_POWERS_OF_FOUR = tuple(2.0**k for k in range(-10, 11, 2))
_ODM_LAMS = tuple(2.0**k for k in range(0, 21, 2))


def _each(requirement):
    """Require a sequence of what the requirement allows, at least one."""

    def test(values):
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            return False
        values = list(values)
        return len(values) > 0 and all(map(requirement.test, values))

    return Requirement(test, f"a sequence with at least one entry, each {requirement.text}")


_COMMON_SEARCH = {
    **KERNEL_PARAMETERS,
    **COMMON_PARAMETERS,
    "gammas": _each(KERNEL_PARAMETERS["gamma"]),
    "cv": Requirement(
        lambda value: (
            value is None
            or (isinstance(value, (int, np.integer)) and value >= 2)
            or hasattr(value, "split")
            or (isinstance(value, Iterable) and not isinstance(value, str))
        ),
        "None, an integer from 2 on, a splitter or an iterable of (train, test) positions",
    ),
    "scoring": Requirement(
        lambda value: value is None or isinstance(value, str) or callable(value),
        "None, the name of a scorer or a callable scorer(estimator, X, y)",
    ),
}


class _Fold(NamedTuple):
    """One fold of the cross-validation, for one gamma."""

    estimator: MarginClassifier  # with ``classes_`` of the training rows
    data: TrainingData  # the training rows
    labels: np.ndarray  # labels of the training rows as given, those of weight zero included
    weights: np.ndarray  # their sample weights
    X_train: Any  # the training rows as given
    X_test: Any
    kernel: Kernel  # bias included
    train: np.ndarray  # positions of ``data.X`` among all samples
    test: np.ndarray
    shared: np.ndarray | None  # kernel values between all samples, without bias

    def gram(self):
        """Return a fresh Gram matrix of the training rows."""
        if self.shared is None:
            return np.array(gram_matrix(self.data.X, self.kernel).whole().values)
        values = self.shared[np.ix_(self.train, self.train)]
        values += self.kernel.bias
        return values

    def mercer_gram(self):
        """Return the Gram matrix without its negative eigenvalues, if it has any."""
        gram = FullGram(self.gram())
        return gram if self.kernel.name == "rbf" else self.estimator._positive_part(gram, self.data.sample_weights)

    def kernel_scores(self, alphas):
        """Return the scores of the test rows from coefficients of the training rows (last axis)."""
        if self.shared is None:
            kept = self.data.kept if self.data.kept is not None else slice(None)
            X_test = self.X_test[:, kept] if self.kernel.name == "precomputed" else self.X_test
            values = self.kernel(X_test, self.data.X)
        else:
            values = self.shared[np.ix_(self.test, self.train)]
            values += self.kernel.bias
        return _apply(values, alphas)

    def linear_scores(self, coefs):
        """Return the scores of the test rows from weights of the columns (last axis), the constant one last."""
        if not self.estimator.fit_intercept:
            return _apply(self.X_test, coefs)
        return _apply(self.X_test, coefs[..., :-1]) + coefs[..., -1][:, None, :]


def _apply(values, coefs):
    """Return values @ coef for all points and problems, with axes (point, row, problem)."""
    n_points, n_problems, n = coefs.shape
    flat = values @ np.ascontiguousarray(coefs.reshape(-1, n).T)
    return np.asarray(flat).reshape(-1, n_points, n_problems).transpose(1, 0, 2)


class _OtherSamples(ValueError):
    """A scorer asked for what GridSearchCV would give and we do not have: an error, not a score of nan."""


class _Decided(ClassifierMixin, BaseEstimator):
    """Known scores of the rows of a fold, in the form of a classifier, for scikit-learn's scorers."""

    def __init__(self, classes, X, values):
        self.classes_, self.X, self.values = classes, X, values

    def __sklearn_is_fitted__(self):
        return True

    def decision_function(self, X):
        if X is not self.X:
            raise _OtherSamples("A scorer may ask only for the scores of the samples it is given.")
        return self.values[:, 0] if self.values.shape[1] == 1 else self.values

    def predict(self, X):
        return self.classes_[_winners(self.decision_function(X)[None, :])[0]]


def _takes_weights(scorer):
    function = getattr(scorer, "_score_func", scorer)  # what make_scorer makes takes them for any function
    return "sample_weight" in signature(function).parameters


def _winners(values):
    """Return the index of the predicted class; the first axis is that of the points."""
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[:, :, 0]
    return (values > 0).astype(np.intp) if values.ndim == 2 else values.argmax(axis=2)


class GridClassifier(MarginClassifier):
    """Base of the estimators here: folds, scores, choice and prediction. A subclass solves one fold for all points."""

    _classifier: type  # what is fitted with the best parameters
    _grids: dict[str, str] = {}  # parameter of that classifier: parameter here with its values

    @fitting
    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, *, groups: ArrayLike | None = None
    ) -> Self:
        """Choose the parameters by cross-validation, and fit the classifier with them to all samples.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples, or their Gram matrix for ``kernel="precomputed"``.

        y : array-like of shape (n_samples,)
            Labels of any kind.

        sample_weight : array-like of shape (n_samples,), default=None
            How often each row counts, in training and in the scores: 2 is the row twice, 0 its absence.

        groups : array-like of shape (n_samples,), default=None
            Groups of samples, for splitters that ask for them.

        Returns
        -------
        GridClassifier
            Itself.
        """
        self._check_parameters()
        data = self._validate_training_data(X, y, sample_weight)
        rows = data.X
        if data.kept is not None:
            rows = validate_data(self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32], order="C")
        labels = np.asarray(y).reshape(-1)
        weights = self._validate_weights(sample_weight, len(labels))
        grid = {name: list(getattr(self, where)) for name, where in self._grids.items()}
        if self.kernel not in _GAMMA_KERNELS:
            del grid["gamma"]
        points = list(ParameterGrid(grid))
        splits = list(check_cv(self.cv, labels, classifier=True).split(rows, labels, groups))
        splits = [(train, test) for train, test in splits if weights[test].any()]
        self.scorer_ = check_scoring(self._classifier(), self.scoring)
        weighted = sample_weight is not None and self._scorer_takes_weights()
        with _threadpools().limit(limits=1, user_api="blas"):
            scores = self._score_grid(rows, labels, weights, weighted, splits, points)
        self._store_search(grid, points, scores)
        self.best_estimator_ = self._template().set_params(n_jobs=self.n_jobs, **self.best_params_)
        self.best_estimator_.fit(X, y, sample_weight)
        return self

    def _scorer_takes_weights(self):
        """Tell whether test rows can count by their weights; warn where they cannot."""
        if self.scoring is None or _takes_weights(self.scorer_):
            return True
        warnings.warn(
            f"{type(self).__name__}: scoring={self.scoring!r} takes no sample_weight: test rows count alike.",
            UserWarning,
            stacklevel=4,
        )
        return False

    def _template(self):
        """Return the classifier with the parameters that are not on the grid."""
        own = self.get_params(deep=False)
        shared = self._classifier._get_param_names()
        return self._classifier(**{name: own[name] for name in shared if name in own and name != "n_jobs"})

    def _score_grid(self, rows, labels, weights, weighted, splits, points):
        """Return the scores of all points (first axis) on all folds."""
        scores = np.empty((len(points), len(splits)))
        template, behind, failures, unscored = self._template(), 0, [], []

        def solve(members, shared, train, test):
            try:
                fold = self._fold(template, rows, labels, weights, train, test, shared)
                values, missed = self._decide(fold, [points[k] for k in members])
            except ValueError as error:  # a search goes on without such a fold
                return np.full(len(members), np.nan), 0, [str(error)] * len(members), []
            column, trouble = self._score(fold, values, labels[test], weights[test] if weighted else None)
            unsolved = ~np.isfinite(values).all(axis=(1, 2))
            column[unsolved] = np.nan
            return column, missed, [_UNSOLVED] * unsolved.sum(), trouble

        for gamma, members in _by_gamma(points).items():
            if gamma is not None:
                template.set_params(gamma=gamma)
            shared = self._shared_kernel_values(template, rows)
            tasks = (delayed(solve)(members, shared, *split) for split in splits)
            for number, (column, missed, *trouble) in enumerate(Parallel(n_jobs=self.n_jobs, prefer="threads")(tasks)):
                scores[members, number] = column
                behind += missed
                failures += trouble[0]
                unscored += trouble[1]
            if self.verbose:
                which = "" if gamma is None else f" gamma={gamma}:"
                print(f"[{type(self).__name__}]{which} {len(members)} points on {len(splits)} folds")
        if behind:
            warnings.warn(
                f"{type(self).__name__}: {behind} of the {scores.size} fits did not reach tol={self.tol:g}; their "
                f"scores are those of the last iterate. Raise max_iter or tol, or scale the features.",
                ConvergenceWarning,
                stacklevel=4,
            )
        self._warn_about_failures(failures, unscored, scores.size)
        return scores

    def _warn_about_failures(self, failures, unscored, n_fits):
        """Say, as GridSearchCV does, which scores are nan; raise if there was no fit at all."""
        name = type(self).__name__
        if len(failures) == n_fits:
            raise ValueError(f"{name}: all {n_fits} fits failed, the first because: {failures[0]}")
        if failures:
            warnings.warn(
                f"{name}: {len(failures)} of the {n_fits} fits failed, and their scores are nan. The first reason: "
                f"{failures[0]}",
                FitFailedWarning,
                stacklevel=5,
            )
        if unscored:
            warnings.warn(
                f"{name}: {len(unscored)} of the {n_fits} fits could not be scored by scoring={self.scoring!r}; their "
                f"scores are nan. The first reason: {unscored[0]}",
                UserWarning,
                stacklevel=5,
            )

    def _shared_kernel_values(self, template, rows):
        """Return the kernel values between all samples, unless they depend on the fold or take too much memory."""
        depends = self.kernel in _GAMMA_KERNELS and template.gamma == "scale"
        if self.kernel == "linear" or depends or gram_bytes(rows.shape[0]) > _LARGEST_SHARED:
            return None
        everything = TrainingData(rows, None, None, np.ones(rows.shape[0]), None, rows.shape[0])
        kernel = template._kernel(everything)._replace(bias=0.0)
        if self.kernel == "precomputed":
            return kernel(rows, rows)
        return gram_matrix(rows, kernel).whole().values

    def _fold(self, template, rows, labels, weights, train, test, shared):
        estimator = clone(template)
        X_train, X_test = rows[train], rows[test]
        if self.kernel == "precomputed":
            X_train, X_test = X_train[:, train], X_test[:, train]
        data = estimator._validate_training_data(X_train, labels[train], weights[train])
        where = np.arange(rows.shape[0])[train]
        where = where if data.kept is None else where[data.kept]
        kernel = estimator._kernel(data)
        test = np.arange(rows.shape[0])[test]
        return _Fold(
            estimator, data, labels[train], weights[train], X_train, X_test, kernel, where, test, shared
        )  # fmt: skip

    def _one_by_one(self, fold, points):
        """Fit point after point, for problems that share too little: each from the solution of the last."""
        estimator = clone(fold.estimator)
        if "warm_start" in estimator.get_params():
            estimator.set_params(warm_start=True)
        values = []
        for point in points:
            estimator.set_params(**point).fit(fold.X_train, fold.labels, fold.weights)
            values.append(estimator._scores(fold.X_test))
        return np.array(values), 0

    def _score(self, fold, values, labels, weights):
        """Return the score of every point on the test rows of a fold, and why some are nan."""
        classes = fold.estimator.classes_
        if self.scoring in (None, "accuracy"):
            correct = classes[_winners(values)] == labels
            return np.average(correct, axis=1, weights=weights), []
        named = {} if weights is None else {"sample_weight": weights}
        scores, trouble = np.full(len(values), np.nan), []
        for k, point in enumerate(values):
            if not np.isfinite(point).all():
                continue
            try:
                scores[k] = self.scorer_(_Decided(classes, fold.X_test, point), fold.X_test, labels, **named)
            except _OtherSamples:
                raise
            except Exception as error:  # a scorer may raise anything, "no predict_proba" for one
                trouble.append(str(error).replace(_Decided.__name__, self._classifier.__name__))
        return scores, trouble

    def _store_search(self, grid, points, scores):
        """Set ``cv_results_`` and the best point, as GridSearchCV does: the first of those with the best mean."""
        means = np.average(scores, axis=1)
        results = {}
        for name in sorted(grid):
            values = [point[name] for point in points]
            dtype = np.array(values).dtype
            column = np.ma.masked_all(len(points), dtype=object if dtype.kind == "U" else dtype)
            column[:] = values
            results[f"param_{name}"] = column
        results["params"] = points
        results |= {f"split{k}_test_score": scores[:, k].copy() for k in range(scores.shape[1])}
        results |= {"mean_test_score": means, "std_test_score": np.std(scores, axis=1)}
        ranked = np.nan_to_num(means, nan=-np.inf)  # points without a score come last
        results["rank_test_score"] = rankdata(-ranked, method="min").astype(np.int32)
        self.cv_results_, self.n_splits_ = results, scores.shape[1]
        self.best_index_ = int(results["rank_test_score"].argmin())
        self.best_score_, self.best_params_ = float(means[self.best_index_]), points[self.best_index_]
        for name, value in self.best_params_.items():
            setattr(self, f"{name}_", value)

    def __getattr__(self, name):
        """Return a fitted attribute of the best classifier, such as ``coef_``."""
        if name.endswith("_") and not name.startswith("_") and "best_estimator_" in vars(self):
            return getattr(self.best_estimator_, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Return the score of every sample by the best classifier.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples; for ``kernel="precomputed"`` their kernel values with all training samples.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        check_is_fitted(self)
        return self.best_estimator_.decision_function(X)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the score of the best classifier by ``scoring``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        y : array-like of shape (n_samples,)
            Their labels.

        sample_weight : array-like of shape (n_samples,), default=None
            How often each row counts.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        named = {} if sample_weight is None else {"sample_weight": sample_weight}
        return self.scorer_(self.best_estimator_, X, y, **named)


def _by_gamma(points):
    """Return the positions of the points of each gamma."""
    groups = {}
    for position, point in enumerate(points):
        groups.setdefault(point.get("gamma"), []).append(position)
    return groups


class LDMClassifierCV(GridClassifier):
    r"""Large margin distribution machine whose parameters are chosen by cross-validation.

    The same choice as ``GridSearchCV(LDMClassifier(...), grid)`` makes, up to solver tolerance. The dual of a fold,

    .. math:: \min_{0 \le \beta \le C} \tfrac12 v^T A v - \sum_i \beta_i, \qquad
        v = \tfrac{\lambda_2}{m} \mathbf 1 + \beta, \quad A = Y G (I + P G)^{-1} Y, \quad
        P = \tfrac{4 \lambda_1}{m} (I - \tfrac1m y y^T),

    has a matrix that one eigendecomposition of the Gram matrix gives for every ``lambda1``, and the solution for one
    point of the grid is one or two Newton steps from that of the next (:mod:`margindist.solvers.projected_newton`).
    Folds of more than 3000 rows, and ``C=inf``, are fitted point by point from warm starts.

    The default grid is that of the paper.

    Parameters
    ----------
    Cs : sequence of float, default=(10.0, 50.0, 100.0)
        Values of ``C``.

    lambda1s, lambda2s : sequence of float, default=(2**-8, 2**-7, ..., 2**-2)
        Values of ``lambda1`` and of ``lambda2``.

    gammas : sequence of {"scale", "auto"} or float, default=("scale",)
        Values of ``gamma`` for "rbf", "poly" and "sigmoid"; other kernels have none, and then this is not looked at.

    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="linear"
        Kernel, or a function ``k(X, Y)`` that returns the matrix of kernel values.

    degree : int, default=3
        Degree of "poly".

    coef0 : float, default=0.0
        Constant of "poly" and "sigmoid".

    fit_intercept : bool, default=True
        Whether there is an intercept, as in :class:`LDMClassifier`.

    cv : int, splitter or iterable of (train, test), default=None
        None is 5 stratified folds, an integer that many; see :func:`sklearn.model_selection.check_cv`.

    scoring : str or callable, default=None
        Any scorer of scikit-learn that asks for predictions or decision values; None is the accuracy.

    tol : float, default=1e-4
        As in :class:`LDMClassifier` (the points of the grid are solved to at most 1e-7).

    max_iter : int, default=None
        As in :class:`LDMClassifier`.

    class_weight : dict or "balanced", default=None
        Weights of the classes, which multiply the sample weights.

    random_state : int, RandomState instance or None, default=None
        Determines what is random in the classifier.

    verbose : int, default=0
        Print progress.

    n_jobs : int, default=None
        Threads for the folds.

    Attributes
    ----------
    cv_results_ : dict
        Scores as in :class:`~sklearn.model_selection.GridSearchCV`: ``params``, ``param_<name>``, ``mean_test_score``,
        ``std_test_score``, ``rank_test_score`` and ``split<i>_test_score``. There are no times: no point of the grid
        has one of its own.

    best_estimator_ : LDMClassifier
        Fitted to all samples with the best parameters. Its fitted attributes (``coef_``, ``dual_coef_`` ...) are also
        those of this estimator.

    best_params_, best_score_, best_index_ : dict, float and int
        The best point, its mean score and its position in ``cv_results_``; of several, the first.

    C_, lambda1_, lambda2_, gamma_ : float
        The best parameters.

    classes_ : ndarray of shape (n_classes,)
        Labels.

    scorer_ : callable
        The scorer used.

    n_splits_ : int
        Number of folds.

    n_features_in_ : int
        Number of features seen in ``fit``.

    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if the training data had them.

    See Also
    --------
    LDMClassifier : The classifier itself.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import minmax_scale
    >>> from margindist import LDMClassifierCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> search = LDMClassifierCV(Cs=[1, 10], lambda2s=[0.25]).fit(minmax_scale(X), y)
    >>> len(search.cv_results_["params"]), search.best_score_ > 0.95
    (14, True)
    """

    _classifier = LDMClassifier
    _grids = {"C": "Cs", "lambda1": "lambda1s", "lambda2": "lambda2s", "gamma": "gammas"}
    _requirements = {
        **_COMMON_SEARCH,
        "Cs": _each(LDMClassifier._requirements["C"]),
        "lambda1s": _each(LDMClassifier._requirements["lambda1"]),
        "lambda2s": _each(LDMClassifier._requirements["lambda2"]),
        "max_iter": LDMClassifier._requirements["max_iter"],
    }

    def __init__(
        self,
        Cs: Sequence[float] = (10.0, 50.0, 100.0),
        lambda1s: Sequence[float] = _PAPER_LAMBDAS,
        lambda2s: Sequence[float] = _PAPER_LAMBDAS,
        *,
        gammas: Sequence[str | float] = ("scale",),
        kernel: str | Callable = "linear",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        cv: Any = None,
        scoring: str | Callable | None = None,
        tol: float = 1e-4,
        max_iter: int | None = None,
        class_weight: dict | str | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ):
        self.Cs = Cs
        self.lambda1s = lambda1s
        self.lambda2s = lambda2s
        self.gammas = gammas
        self.kernel = kernel
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.cv = cv
        self.scoring = scoring
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.random_state = random_state
        self.verbose = verbose
        self.n_jobs = n_jobs

    def _decide(self, fold, points):
        objectives = [LDM(float(p["C"]), float(p["lambda1"]), float(p["lambda2"])) for p in points]
        data, linear, gram = fold.data, self.kernel == "linear", None
        if data.X.shape[0] > _LARGEST_DUAL or any(objective.hard for objective in objectives):
            return self._one_by_one(fold, points)
        if linear and n_columns(rows := as_rows(data.X, self.fit_intercept)) < data.X.shape[0]:
            spectrum = projected_newton.spectrum_of_rows(dense_matrix(rows), data.weights)
        else:
            gram = fold.mercer_gram()
            spectrum = projected_newton.spectrum_of_gram(gram.values, data.weights)
        solutions = projected_newton.solve_grid(
            objectives, spectrum, fold.estimator._sign_vectors(data.codes), data.weights, tol=min(self.tol, _EXACT),
            max_iter=1000 if self.max_iter is None else self.max_iter,
        )  # fmt: skip
        alphas = np.array([[solution.coef for solution in point] for point in solutions])
        behind = sum(not solution.gap <= self.tol for point in solutions for solution in point)
        if not linear:
            return fold.kernel_scores(gram.row_coefficients(alphas)), behind
        coefs = weighted_sums(as_rows(data.X), alphas.reshape(-1, alphas.shape[2]).T).reshape(*alphas.shape[:2], -1)
        if self.fit_intercept:
            coefs = np.concatenate([coefs, alphas.sum(axis=2, keepdims=True)], axis=2)
        return fold.linear_scores(coefs), behind


class LSSVMClassifierCV(GridClassifier):
    r"""Least-squares support vector machine whose parameters are chosen by cross-validation.

    The same choice as ``GridSearchCV(LSSVMClassifier(...), grid)`` makes. With the eigendecomposition
    :math:`U \Lambda U^T` of a fold's Gram matrix (or of its features' scatter matrix, whichever is smaller) the
    solution for every ``C`` is a closed form, :math:`U (\Lambda + I/C)^{-1} U^T` times known vectors. For leave-one-out
    scores there is :meth:`LSSVMClassifier.path`, which needs no folds at all.

    Parameters
    ----------
    Cs : sequence of float, default=(2**-10, 2**-8, ..., 2**10)
        Values of ``C``.

    gammas : sequence of {"scale", "auto"} or float, default=("scale",)
        Values of ``gamma`` for "rbf", "poly" and "sigmoid"; other kernels have none, and then this is not looked at.

    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="linear"
        Kernel, or a function ``k(X, Y)`` that returns the matrix of kernel values.

    degree : int, default=3
        Degree of "poly".

    coef0 : float, default=0.0
        Constant of "poly" and "sigmoid".

    space : {"dual", "empirical"}, default="dual"
        As in :class:`LSSVMClassifier`.

    fit_intercept : bool, default=True
        Whether there is an intercept, as in :class:`LSSVMClassifier`.

    cv : int, splitter or iterable of (train, test), default=None
        None is 5 stratified folds, an integer that many; see :func:`sklearn.model_selection.check_cv`.

    scoring : str or callable, default=None
        Any scorer of scikit-learn that asks for predictions or decision values; None is the accuracy.

    tol : float, default=1e-8
        As in :class:`LSSVMClassifier` (large sparse data only).

    max_iter : int, default=1000
        As in :class:`LSSVMClassifier`.

    class_weight : dict or "balanced", default=None
        Weights of the classes, which multiply the sample weights.

    verbose : int, default=0
        Print progress.

    n_jobs : int, default=None
        Threads for the folds.

    Attributes
    ----------
    cv_results_ : dict
        Scores as in :class:`~sklearn.model_selection.GridSearchCV`: ``params``, ``param_<name>``, ``mean_test_score``,
        ``std_test_score``, ``rank_test_score`` and ``split<i>_test_score``. There are no times: no point of the grid
        has one of its own.

    best_estimator_ : LSSVMClassifier
        Fitted to all samples with the best parameters. Its fitted attributes (``coef_``, ``dual_coef_`` ...) are also
        those of this estimator.

    best_params_, best_score_, best_index_ : dict, float and int
        The best point, its mean score and its position in ``cv_results_``; of several, the first.

    C_, gamma_ : float
        The best parameters.

    classes_ : ndarray of shape (n_classes,)
        Labels.

    scorer_ : callable
        The scorer used.

    n_splits_ : int
        Number of folds.

    n_features_in_ : int
        Number of features seen in ``fit``.

    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if the training data had them.

    See Also
    --------
    LSSVMClassifier : The classifier itself.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import minmax_scale
    >>> from margindist import LSSVMClassifierCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> search = LSSVMClassifierCV().fit(minmax_scale(X), y)
    >>> len(search.cv_results_["params"]), search.best_score_ > 0.95
    (11, True)
    """

    _classifier = LSSVMClassifier
    _grids = {"C": "Cs", "gamma": "gammas"}
    _requirements = {
        **_COMMON_SEARCH,
        "gammas": _each(GAMMA_PER_FEATURE),
        "Cs": _each(LSSVMClassifier._requirements["C"]),
        "space": LSSVMClassifier._requirements["space"],
    }

    def __init__(
        self,
        Cs: Sequence[float] = _POWERS_OF_FOUR,
        *,
        gammas: Sequence[str | float] = ("scale",),
        kernel: str | Callable = "linear",
        degree: int = 3,
        coef0: float = 0.0,
        space: str = "dual",
        fit_intercept: bool = True,
        cv: Any = None,
        scoring: str | Callable | None = None,
        tol: float = 1e-8,
        max_iter: int = 1000,
        class_weight: dict | str | None = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ):
        self.Cs = Cs
        self.gammas = gammas
        self.kernel = kernel
        self.degree = degree
        self.coef0 = coef0
        self.space = space
        self.fit_intercept = fit_intercept
        self.cv = cv
        self.scoring = scoring
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.verbose = verbose
        self.n_jobs = n_jobs

    def _decide(self, fold, points):
        estimator, data = fold.estimator, fold.data
        if estimator._choose_solver(data.X) == "cg":
            return self._one_by_one(fold, points)
        Cs = np.array([float(p["C"]) for p in points])
        targets = np.array(estimator._sign_vectors(data.codes))
        if estimator._has_few_columns(data.X):
            rows = as_rows(data.X, self.fit_intercept)
            path = least_squares.path_columns(rows, targets, data.weights, Cs, estimator._metric(rows, data))
            return _apply(fold.X_test, path.coefs) + path.biases[:, None, :], 0
        fold = fold._replace(kernel=fold.kernel._replace(bias=0.0))  # the bias is a number of its own here
        K, G = estimator._spaces(fold.gram(), data)
        path = least_squares.path_gram(G, targets, data.weights, Cs, self.fit_intercept)
        coefs = np.array([estimator._expand(coefs, K, data) for coefs in path.coefs])
        values = _apply(fold.X_test, coefs) if self.kernel == "linear" else fold.kernel_scores(coefs)
        return values + path.biases[:, None, :], 0


class MSVMAvClassifierCV(GridClassifier):
    r"""Classifier of small margin semi-variance and large average margin, parameters chosen by cross-validation.

    The same choice as ``GridSearchCV(MSVMAvClassifier(...), grid)`` makes, up to rounding. The rounds of all points of
    the grid start from the same coefficients, the same active rows and their Gram matrix, and for kernels from the same
    features; they run in one compiled loop (:func:`margindist.solvers.semivariance.solve_grid`).

    The default grid is that of the paper. Points whose rounds go into a cycle are scored like any other.

    Parameters
    ----------
    alphas, betas : sequence of float, default=(2**-10, 2**-8, ..., 2**10)
        Values of ``alpha`` and of ``beta``.

    gammas : sequence of {"scale", "auto"} or float, default=("scale",)
        Values of ``gamma`` for "rbf", "poly" and "sigmoid"; other kernels have none, and then this is not looked at.

    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="linear"
        Kernel, or a function ``k(X, Y)`` that returns the matrix of kernel values.

    degree : int, default=3
        Degree of "poly".

    coef0 : float, default=0.0
        Constant of "poly" and "sigmoid".

    fit_intercept : bool, default=True
        Whether there is an intercept, as in :class:`MSVMAvClassifier`.

    cv : int, splitter or iterable of (train, test), default=None
        None is 5 stratified folds, an integer that many; see :func:`sklearn.model_selection.check_cv`.

    scoring : str or callable, default=None
        Any scorer of scikit-learn that asks for predictions or decision values; None is the accuracy.

    tol : float, default=1e-6
        As in :class:`MSVMAvClassifier`.

    max_iter : int, default=100
        As in :class:`MSVMAvClassifier`.

    class_weight : dict or "balanced", default=None
        Weights of the classes, which multiply the sample weights.

    verbose : int, default=0
        Print progress.

    n_jobs : int, default=None
        Threads for the folds.

    Attributes
    ----------
    cv_results_ : dict
        Scores as in :class:`~sklearn.model_selection.GridSearchCV`: ``params``, ``param_<name>``, ``mean_test_score``,
        ``std_test_score``, ``rank_test_score`` and ``split<i>_test_score``. There are no times: no point of the grid
        has one of its own.

    best_estimator_ : MSVMAvClassifier
        Fitted to all samples with the best parameters. Its fitted attributes (``coef_``, ``dual_coef_`` ...) are also
        those of this estimator.

    best_params_, best_score_, best_index_ : dict, float and int
        The best point, its mean score and its position in ``cv_results_``; of several, the first.

    alpha_, beta_, gamma_ : float
        The best parameters.

    classes_ : ndarray of shape (n_classes,)
        Labels.

    scorer_ : callable
        The scorer used.

    n_splits_ : int
        Number of folds.

    n_features_in_ : int
        Number of features seen in ``fit``.

    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if the training data had them.

    See Also
    --------
    MSVMAvClassifier : The classifier itself.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import minmax_scale
    >>> from margindist import MSVMAvClassifierCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> search = MSVMAvClassifierCV().fit(minmax_scale(X), y)
    >>> len(search.cv_results_["params"]), search.best_score_ > 0.95
    (121, True)
    """

    _classifier = MSVMAvClassifier
    _grids = {"alpha": "alphas", "beta": "betas", "gamma": "gammas"}
    _requirements = {
        **_COMMON_SEARCH,
        "alphas": _each(MSVMAvClassifier._requirements["alpha"]),
        "betas": _each(MSVMAvClassifier._requirements["beta"]),
    }

    def __init__(
        self,
        alphas: Sequence[float] = _POWERS_OF_FOUR,
        betas: Sequence[float] = _POWERS_OF_FOUR,
        *,
        gammas: Sequence[str | float] = ("scale",),
        kernel: str | Callable = "linear",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        cv: Any = None,
        scoring: str | Callable | None = None,
        tol: float = 1e-6,
        max_iter: int = 100,
        class_weight: dict | str | None = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ):
        self.alphas = alphas
        self.betas = betas
        self.gammas = gammas
        self.kernel = kernel
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.cv = cv
        self.scoring = scoring
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.verbose = verbose
        self.n_jobs = n_jobs

    def _decide(self, fold, points):
        data, linear, metric = fold.data, self.kernel == "linear", 1.0
        if linear:
            rows = as_rows(data.X, self.fit_intercept)
            if n_columns(rows) * data.X.shape[0] > _LARGEST_DENSE:
                return self._one_by_one(fold, points)
            X = dense_matrix(rows)
        else:
            gram = fold.mercer_gram()
            factor = cholesky_factor(gram, tol=1e-12)
            features = semivariance.kernel_features(factor.features, data.weights)
            X, metric = features.rows.X, features.metric
        pairs = [(float(p["alpha"]), float(p["beta"])) for p in points]
        coefs = [
            semivariance.solve_grid(X, signs, data.weights, pairs, metric=metric, tol=self.tol, max_iter=self.max_iter)
            for signs in fold.estimator._sign_vectors(data.codes)
        ]
        coefs = np.stack(coefs, axis=1)
        if linear:
            return fold.linear_scores(coefs), 0
        alphas = (coefs / features.spectrum) @ features.rows.X.T * data.weights
        return fold.kernel_scores(gram.row_coefficients(alphas)), 0


class ODMClassifierCV(GridClassifier):
    r"""Optimal margin distribution machine whose parameters are chosen by cross-validation.

    The same choice as ``GridSearchCV(ODMClassifier(...), grid)`` makes, up to solver tolerance. Kernels are factorised
    once a fold. For two classes (and one against the rest) Newton's method starts from the solution for the ``lam``
    before, with the same ``mu`` and ``theta``; from there one to three steps are left.

    The joint problem of more classes is not convex, and from another start its rounds may end elsewhere: there every
    point starts afresh, as in a search, but for the first round, which points that differ in ``mu`` only share.

    The default grid is that of the paper.

    Parameters
    ----------
    lams : sequence of float, default=(2**0, 2**2, ..., 2**20)
        Values of ``lam``.

    mus, thetas : sequence of float, default=(0.2, 0.4, 0.6, 0.8)
        Values of ``mu`` and of ``theta``.

    gammas : sequence of {"scale", "auto"} or float, default=("scale",)
        Values of ``gamma`` for "rbf", "poly" and "sigmoid"; other kernels have none, and then this is not looked at.

    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="linear"
        Kernel, or a function ``k(X, Y)`` that returns the matrix of kernel values.

    degree : int, default=3
        Degree of "poly".

    coef0 : float, default=0.0
        Constant of "poly" and "sigmoid".

    multi_class : {"direct", "ovr"}, default="direct"
        As in :class:`ODMClassifier`.

    outer : {"concave", "frozen"}, default="concave"
        As in :class:`ODMClassifier`.

    fit_intercept : bool, default=True
        Whether there is an intercept, as in :class:`ODMClassifier`.

    cv : int, splitter or iterable of (train, test), default=None
        None is 5 stratified folds, an integer that many; see :func:`sklearn.model_selection.check_cv`.

    scoring : str or callable, default=None
        Any scorer of scikit-learn that asks for predictions or decision values; None is the accuracy.

    tol : float, default=1e-3
        As in :class:`ODMClassifier` (two-class problems of the grid are solved to at most 1e-7).

    max_iter : int, default=1000
        As in :class:`ODMClassifier`.

    class_weight : dict or "balanced", default=None
        Weights of the classes, which multiply the sample weights.

    random_state : int, RandomState instance or None, default=None
        Determines what is random in the classifier.

    verbose : int, default=0
        Print progress.

    n_jobs : int, default=None
        Threads for the folds.

    Attributes
    ----------
    cv_results_ : dict
        Scores as in :class:`~sklearn.model_selection.GridSearchCV`: ``params``, ``param_<name>``, ``mean_test_score``,
        ``std_test_score``, ``rank_test_score`` and ``split<i>_test_score``. There are no times: no point of the grid
        has one of its own.

    best_estimator_ : ODMClassifier
        Fitted to all samples with the best parameters. Its fitted attributes (``coef_``, ``dual_coef_`` ...) are also
        those of this estimator.

    best_params_, best_score_, best_index_ : dict, float and int
        The best point, its mean score and its position in ``cv_results_``; of several, the first.

    lam_, mu_, theta_, gamma_ : float
        The best parameters.

    classes_ : ndarray of shape (n_classes,)
        Labels.

    scorer_ : callable
        The scorer used.

    n_splits_ : int
        Number of folds.

    n_features_in_ : int
        Number of features seen in ``fit``.

    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if the training data had them.

    See Also
    --------
    ODMClassifier : The classifier itself.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import minmax_scale
    >>> from margindist import ODMClassifierCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> search = ODMClassifierCV(mus=[0.4], thetas=[0.2]).fit(minmax_scale(X), y)
    >>> len(search.cv_results_["params"]), search.best_score_ > 0.95
    (11, True)
    """

    _classifier = ODMClassifier
    _grids = {"lam": "lams", "mu": "mus", "theta": "thetas", "gamma": "gammas"}
    _requirements = {
        **_COMMON_SEARCH,
        "lams": _each(ODMClassifier._requirements["lam"]),
        "mus": _each(ODMClassifier._requirements["mu"]),
        "thetas": _each(ODMClassifier._requirements["theta"]),
        "multi_class": ODMClassifier._requirements["multi_class"],
        "outer": ODMClassifier._requirements["outer"],
    }

    def __init__(
        self,
        lams: Sequence[float] = _ODM_LAMS,
        mus: Sequence[float] = (0.2, 0.4, 0.6, 0.8),
        thetas: Sequence[float] = (0.2, 0.4, 0.6, 0.8),
        *,
        gammas: Sequence[str | float] = ("scale",),
        kernel: str | Callable = "linear",
        degree: int = 3,
        coef0: float = 0.0,
        multi_class: str = "direct",
        outer: str = "concave",
        fit_intercept: bool = True,
        cv: Any = None,
        scoring: str | Callable | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        class_weight: dict | str | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ):
        self.lams = lams
        self.mus = mus
        self.thetas = thetas
        self.gammas = gammas
        self.kernel = kernel
        self.degree = degree
        self.coef0 = coef0
        self.multi_class = multi_class
        self.outer = outer
        self.fit_intercept = fit_intercept
        self.cv = cv
        self.scoring = scoring
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.random_state = random_state
        self.verbose = verbose
        self.n_jobs = n_jobs

    def _decide(self, fold, points):
        data, estimator, factor = fold.data, fold.estimator, None
        if self.kernel == "linear":
            rows = as_rows(data.X, self.fit_intercept)
        else:
            gram = fold.mercer_gram()
            factor = cholesky_factor(gram)
            rows = as_rows(factor.features)
        joint = self.multi_class == "direct" and len(estimator.classes_) > 2
        if joint:
            found, behind = self._solve_joint(estimator, rows, data, points)
        elif estimator._pick_solver(rows, joint) == "newton":
            found, behind = self._solve_two_class(estimator, rows, data, points)
        else:
            return self._one_by_one(fold, points)
        if factor is None:
            return fold.linear_scores(found), behind
        alphas = np.zeros((*found.shape[:2], data.X.shape[0]))
        alphas[:, :, factor.pivots] = found @ factor.to_coef.T
        return fold.kernel_scores(gram.row_coefficients(alphas)), behind

    def _solve_two_class(self, estimator, rows, data, points):
        """Follow ``lam`` for each (mu, theta) and problem; return coefficients and how many missed ``tol``."""
        problems = estimator._sign_vectors(data.codes)
        found, behind = np.empty((len(points), len(problems), n_columns(rows))), 0
        order = sorted(range(len(points)), key=lambda k: (points[k]["theta"], points[k]["mu"], points[k]["lam"]))
        paths = [list(path) for _, path in groupby(order, lambda k: (points[k]["theta"], points[k]["mu"]))]
        directions = newton.newton_directions(rows)
        options = Options(min(self.tol, _EXACT), self.max_iter)
        for t, signs in enumerate(problems):
            start = None
            for path in paths:
                for k in path:
                    objective = ODM(*(float(points[k][name]) for name in ("lam", "mu", "theta")))
                    problem = Problem(objective, rows, signs, data.weights)
                    start = newton.solve(problem, options, start, directions=directions)
                    found[k, t] = start.coef
                    behind += not start.gap <= self.tol
                start = start._replace(coef=found[path[0], t])
        return found, behind

    def _solve_joint(self, estimator, rows, data, points):
        """Solve point after point; those that differ in ``mu`` only share the first round of the first of them."""
        found, behind, rng, openings = [], 0, estimator._rng().spawn(1)[0], {}
        for point in points:
            objective = ODM(*(float(point[name]) for name in ("lam", "mu", "theta")))
            problem = Problem(objective, rows, data.codes, data.weights)
            options = Options(self.tol, self.max_iter, copy.deepcopy(rng))
            same_first_round = openings.get((objective.lam, objective.theta))
            rounds = multiclass.solve(problem, options, outer=self.outer, opening=same_first_round)
            openings[objective.lam, objective.theta] = rounds.extra["opening"]
            found.append(rounds.coef)
            behind += rounds.status == "iteration limit" and not rounds.gap <= self.tol
        return np.array(found), behind
