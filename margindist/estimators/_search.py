"""The search that every ``...ClassifierCV`` shares: cross-validation over a whole grid, without repeated work.

It chooses parameters as :class:`sklearn.model_selection.GridSearchCV` does, with the same folds, scores and ties, and
fits the classifier to everything with the best ones. What differs is the cost. `GridSearchCV` refits the classifier for
every point of the grid and every fold. Here kernel values between all samples are computed once for every ``gamma``
given as a number, folds are parts of them, and a fold is solved for all points at once: how, is the
``_decision_values`` of each subclass, which lives beside its classifier. :class:`SharedSearch` serves all others.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import ParameterGrid, check_cv
from sklearn.utils.validation import check_is_fitted

from margindist.estimators._base import MarginClassifier, fitting
from margindist.estimators._parameters import Requirement, one_of, optional
from margindist.estimators._problems import quietly, threadpools
from margindist.estimators._training_data import MatrixLike, TrainingData
from margindist.kernels import Kernel, looks_at_rows
from margindist.spaces.gram import FullGram, gram_bytes, gram_matrix
from margindist.spaces.space import KernelSpace

_LARGEST_SHARED = 1e9  # bytes of kernel values between all samples that are kept for the folds
GRID_TOL = 1e-7  # relative gap the solvers along a grid aim at: from a good start it costs no more than a large one
_UNSOLVED = "the scores are not finite, as with a kernel that is not positive semi-definite."
POWERS_OF_FOUR = tuple(2.0**k for k in range(-10, 11, 2))


def _each(requirement):
    """Require a sequence of what the requirement allows, at least one."""

    def test(values):
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            return False
        values = list(values)
        return len(values) > 0 and all(map(requirement.test, values))

    return Requirement(test, f"a sequence with at least one entry, each {requirement.text}")


_SEARCH_PARAMETERS = {
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


class Fold(NamedTuple):
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

    def space(self, *, constant=None, definite=True):
        """Return the space that the training rows live in; it takes kernel values that are known already."""
        if self.shared is None:
            return self.estimator._space(self.data, constant=constant, definite=definite)
        kernel = self.kernel if constant is None else self.kernel._replace(bias=float(constant))
        values = self.shared[np.ix_(self.train, self.train)]
        values += kernel.bias
        gram = FullGram(values)
        if definite:
            gram = self.estimator._positive_part(gram, self.data.sample_weights)
        return KernelSpace(self.data, kernel, lambda: gram)

    def scores(self, space, coefs):
        """Return the scores of the test rows from coefficients of the space (last axis)."""
        if self.shared is not None:
            return space.scores_from(self.shared[np.ix_(self.test, self.train)] + space.bias, coefs)
        X_test = self.X_test
        if self.kernel.is_precomputed and self.data.kept is not None:
            X_test = X_test[:, self.data.kept]
        return space.scores(X_test, coefs)


class UnknownRows(ValueError):
    """A scorer asked for rows other than those it was given; their scores are unknown, which is an error, not a nan."""


class ScoredRows(ClassifierMixin, BaseEstimator):
    """The test rows of a fold with their decision values, in the form of a classifier for scikit-learn's scorers."""

    def __init__(self, classes, X, values):
        self.classes_, self.X, self.values = classes, X, values

    def __sklearn_is_fitted__(self):
        return True

    def decision_function(self, X):
        if X is not self.X:
            raise UnknownRows("A scorer may ask only for the scores of the samples it is given.")
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


class SearchResults:
    """What a search keeps of its scores."""

    cv_results_: dict[str, Any]
    best_params_: dict[str, Any]
    best_score_: float
    best_index_: int
    n_splits_: int

    def _store_search(self, points, scores):
        """Set ``cv_results_`` and the best point, as GridSearchCV does: the first of those with the best mean."""
        means = np.average(scores, axis=1)
        results = {}
        for name in sorted(points[0]):
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
        self.cv_results_ = results
        self.n_splits_ = scores.shape[1]
        self.best_index_ = int(results["rank_test_score"].argmin())
        self.best_score_ = float(means[self.best_index_])
        self.best_params_ = points[self.best_index_]


class GridSearchClassifier(SearchResults, MarginClassifier):
    """Base of the searches: folds, scores, choice and prediction. A subclass solves one fold for all points."""

    _classifier: type  # what is fitted with the best parameters
    _searched: tuple[str, ...]  # its parameters on the grid; "C" has its values in ``Cs`` here
    _usual: tuple[str, ...] = ()  # those of them whose values ``grid`` names where none are given
    _further_requirements: Mapping[str, Requirement] = {}

    def __init_subclass__(cls, **named):
        super().__init_subclass__(**named)
        required = cls._classifier._requirements
        grids = {f"{name}s": _each(required[name]) for name in cls._searched}
        grids |= {f"{name}s": optional(grids[f"{name}s"]) for name in cls._usual}
        if cls._usual:
            grids["grid"] = one_of("wide", "paper")
        cls._requirements = {**required, **grids, **_SEARCH_PARAMETERS, **cls._further_requirements}

    @fitting
    def fit(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None, *, groups: ArrayLike | None = None
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
        GridSearchClassifier
            Itself.
        """
        self._check_parameters()
        data = self._validate_training_data(X, y, sample_weight)
        rows = data.X
        if data.kept is not None:
            rows = self._validate_rows(X, reset=False)
        labels = np.asarray(y).reshape(-1)
        weights = self._validate_weights(sample_weight, len(labels))
        grid = {name: self._values(name, data.weights.sum()) for name in self._searched}
        if not self._named_kernel.has_gamma:
            del grid["gamma"]
        points = list(ParameterGrid(grid))
        splits = list(check_cv(self.cv, labels, classifier=True).split(rows, labels, groups))
        splits = [(train, test) for train, test in splits if weights[test].any()]
        self.scorer_ = check_scoring(self._classifier(), self.scoring)
        weighted = sample_weight is not None and self._scorer_takes_weights()
        with threadpools().limit(limits=1, user_api="blas"):
            scores = self._score_grid(rows, labels, weights, weighted, splits, points)
        self._store_search(points, scores)
        for name, value in self.best_params_.items():
            setattr(self, f"{name}_", value)
        self.best_estimator_ = self._template().set_params(n_jobs=self.n_jobs, **self.best_params_)
        self.best_estimator_.fit(X, y, sample_weight)
        return self

    def _values(self, name, total_weight):
        """Return the values of a parameter on the grid: those given, or the usual ones for samples of this weight."""
        given = getattr(self, f"{name}s")
        return list(self._usual_values(name, total_weight) if given is None else given)

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
        template = self._template()
        behind = 0
        failures = []
        unscored = []

        def solve(members, shared, train, test):
            reason = None
            try:
                fold = self._fold(template, rows, labels, weights, train, test, shared)
                values, missed = quietly(self._decision_values, fold, [points[k] for k in members])
            except (ArithmeticError, np.linalg.LinAlgError) as error:
                reason = str(clone(template).set_params(**points[members[-1]])._digits_lost(error))
            except ValueError as error:
                reason = str(error)
            if reason is not None:  # it goes on without the fold
                return np.full(len(members), np.nan), 0, [reason] * len(members), []
            column, trouble = self._score(fold, values, labels[test], weights[test] if weighted else None)
            unsolved = ~np.isfinite(values).all(axis=(1, 2))
            column[unsolved] = np.nan
            return column, missed, [_UNSOLVED] * unsolved.sum(), trouble

        for gamma, members in _by_gamma(points).items():
            if gamma is not None:
                template.set_params(gamma=gamma)
            shared = self._shared_kernel_values(template, rows)
            tasks = (delayed(solve)(members, shared, *split) for split in splits)
            solved = Parallel(n_jobs=self.n_jobs, prefer="threads")(tasks)
            for number, (column, missed, failed, trouble) in enumerate(solved):
                scores[members, number] = column
                behind += missed
                failures += failed
                unscored += trouble
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
        named = self._named_kernel
        depends = named.has_gamma and looks_at_rows(template.gamma)
        if named.is_linear or depends or gram_bytes(rows.shape[0]) > _LARGEST_SHARED:
            return None
        everything = TrainingData(rows, None, None, np.ones(rows.shape[0]), None, rows.shape[0])
        kernel = template._kernel(everything)._replace(bias=0.0)
        if named.is_precomputed:
            return kernel(rows, rows)
        return gram_matrix(rows, kernel).whole().values

    def _fold(self, template, rows, labels, weights, train, test, shared):
        estimator = clone(template)
        X_train, X_test = rows[train], rows[test]
        if self._named_kernel.is_precomputed:
            X_train, X_test = X_train[:, train], X_test[:, train]
        data = estimator._validate_training_data(X_train, labels[train], weights[train])
        where = np.arange(rows.shape[0])[train]
        where = where if data.kept is None else where[data.kept]
        kernel = estimator._kernel(data)
        test = np.arange(rows.shape[0])[test]
        return Fold(
            estimator, data, labels[train], weights[train], X_train, X_test, kernel, where, test, shared
        )  # fmt: skip

    def _decision_values(self, fold, points):
        """Return the decision values of the test rows, and how many solutions missed ``tol``.

        The axes of the values are (point, row, problem). Classifiers whose points share work do better.
        """
        return self._fit_each(fold, points)

    def _fit_each(self, fold, points):
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
                scores[k] = self.scorer_(ScoredRows(classes, fold.X_test, point), fold.X_test, labels, **named)
            except UnknownRows:
                raise
            except Exception as error:  # a scorer may raise anything, "no predict_proba" for one
                trouble.append(str(error).replace(ScoredRows.__name__, self._classifier.__name__))
        return scores, trouble

    def __getattr__(self, name):
        """Return a fitted attribute of the best classifier, such as ``coef_``."""
        if name.endswith("_") and not name.startswith("_") and "best_estimator_" in vars(self):
            return getattr(self.best_estimator_, name)
        return super().__getattr__(name)

    def decision_function(self, X: MatrixLike) -> np.ndarray:
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

    def score(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
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


class SharedSearch(SearchResults, BaseEstimator):
    """The choice of `GridSearchCV` by accuracy, for any classifier: kernel values are computed once, not in each fold.

    Where a two-class classifier can share more between points and folds, its ``_grid_accuracies`` does.

    Parameters
    ----------
    estimator : classifier
    grid : dict of sequences
    cv : splitter

    Attributes
    ----------
    best_params_, best_score_, best_index_, best_estimator_, cv_results_, n_splits_
        As `GridSearchCV` has them; there are no times in ``cv_results_``.
    """

    def __init__(self, estimator: BaseEstimator, grid: Mapping[str, Sequence[Any]], cv: Any):
        self.estimator = estimator
        self.grid = grid
        self.cv = cv

    def fit(self, X: Any, y: np.ndarray) -> Self:
        """Choose, and fit the best one to all rows."""
        points = list(ParameterGrid(dict(self.grid)))
        folds = list(self.cv.split(np.zeros(len(y)), y))
        scores = np.empty((len(points), len(folds)))
        for gamma, members in _by_gamma(points).items():
            template = clone(self.estimator)
            if gamma is not None:
                template.set_params(gamma=gamma)
            others = [{name: value for name, value in points[k].items() if name != "gamma"} for k in members]
            scores[members] = self._accuracies(template, others, X, y, folds)
        self._store_search(points, scores)
        self.best_estimator_ = clone(self.estimator).set_params(**self.best_params_).fit(X, y)
        return self

    def _accuracies(self, template, points, X, y, folds):
        """Return the accuracy of every point (first axis) on every fold."""
        own = template.get_params()
        gram = None
        if own.get("kernel") == "rbf" and isinstance(own["gamma"], Real) and "kernel" not in self.grid:
            gram = Kernel("rbf", gamma=own["gamma"])(X, X)
        classes = np.unique(y)
        if len(classes) == 2 and hasattr(template, "_grid_accuracies"):
            signs = np.where(y == classes[1], 1.0, -1.0)
            scores = template._grid_accuracies(points, X, gram, signs, folds)
            if scores is not None:
                return scores
        if gram is not None:
            template.set_params(kernel="precomputed")
        scores = np.empty((len(points), len(folds)))
        for f, (train, test) in enumerate(folds):
            X_train = X[train] if gram is None else gram[np.ix_(train, train)]
            X_test = X[test] if gram is None else gram[np.ix_(test, train)]
            for k, point in enumerate(points):
                model = clone(template).set_params(**point).fit(X_train, y[train])
                scores[k, f] = np.mean(model.predict(X_test) == y[test])
        return scores
