"""The least squares support vector machine, in the kernel's and in the empirical feature space."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError
from sklearn.base import clone

from margindist.estimators._base import MarginClassifier, fitting
from margindist.estimators._parameters import COMMON_PARAMETERS, KERNEL_PARAMETERS, POSITIVE, KernelName, one_of
from margindist.estimators._problems import quietly
from margindist.estimators._search import POWERS_OF_FOUR, GridSearchClassifier
from margindist.estimators._training_data import MatrixLike
from margindist.objectives import LeastSquares
from margindist.solvers import least_squares
from margindist.solvers._solution import Options, Problem, Status
from margindist.spaces.rows import as_rows

_LARGEST_FACTOR = 5000  # sparse data with more rows and more columns are left to conjugate gradients
_NEARLY_NARROW = 2  # columns per row up to which their system is tried where that of the rows has lost its digits


class LSSVMPath(NamedTuple):
    """Least squares machines for several C, with their exact leave-one-out errors.

    Rows of weight zero are absent. The leave-one-out scores keep what depends on all rows: class weights, a gamma taken
    from the data, the positive part of an indefinite kernel and, with ``space="empirical"``, the features.
    """

    Cs: np.ndarray  #: as given, shape (n_Cs,)
    coef: np.ndarray  #: weights of the features (linear) or of the rows, shape (n_Cs, n_problems, n)
    intercept: np.ndarray  #: shape (n_Cs, n_problems)
    loo_decision: np.ndarray  #: score of each row without it, shape (n_Cs, n_rows) or (n_Cs, n_rows, n_classes)
    loo_error: np.ndarray  #: share of weight misclassified, shape (n_Cs,)

    @property
    def best_C(self) -> float:
        """The C with the fewest leave-one-out errors; the smallest of several."""
        return float(np.min(self.Cs[self.loo_error == self.loo_error.min()]))


class LSSVMClassifier(MarginClassifier):
    r"""Least squares support vector machine; with ``space="empirical"`` the equality-constrained MAMC (EMAMC).

    .. math:: \min_{w, b} \; \tfrac12 \|w\|^2 + \tfrac{C}{2} \sum_i s_i \bigl(1 - y_i (w \cdot \varphi(x_i) + b)\bigr)^2

    Every margin should be exactly 1, and the bias is not regularised. The solution of one linear system is the optimum.
    Adding the average margin to the objective only scales the solution, which is why the maximal average margin
    classifier with equality constraints is the same machine [1]_.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the squared errors, positive.
    space : {"dual", "empirical"}, default="dual"
        "dual" takes :math:`\varphi` from the kernel, as usual [2]_; of an indefinite one, only the positive part
        counts, with a warning. "empirical" takes the kernel values with the training samples as features,
        :math:`\varphi(x) = (K(x, x_1), \ldots, K(x, x_M))`; any kernel will do, definite or not.
    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="linear"
    gamma : {"scale", "auto"}, float or str such as "5/d", default="scale"
        Coefficient of "rbf", "poly" and "sigmoid"; "5/d" is 5 over the number of features, "2*mean-distance" a Gaussian
        twice as wide as the mean distance of two samples.
    degree : int, default=3
        Degree of "poly".
    coef0 : float, default=0.0
        Constant of "poly" and "sigmoid".
    fit_intercept : bool, default=True
        Whether there is a bias, which is not penalised.
    solver : {"auto", "cholesky", "cg"}, default="auto"
        For ``kernel="linear"``: "cholesky" takes O(n_samples n_features²) (or the other way round, if there are more
        features than samples), "cg" (conjugate gradients) a hundred passes or so over the stored values, or what a
        Cholesky factorisation would have taken and a few passes more; "auto" is "cg" for sparse data with more than
        5,000 samples and features. Other kernels always use one Cholesky factorisation.
    tol : float, default=1e-8
        Relative duality gap at which "cg" stops.
    max_iter : int, default=1000
        Largest number of iterations of "cg".
    class_weight : dict, "balanced" or None, default=None
        Factors of C for each class.
    verbose : int, default=0
        Print the progress of "cg".
    n_jobs : int or None, default=None
        Classes that "cg" works on at the same time.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Only with ``kernel="linear"``.
    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        Factors of the kernel values; only with other kernels.
    support_ : ndarray of shape (n_support,)
        Positions of the samples they belong to, usually all; only with other kernels.
    n_support_ : ndarray of shape (n_classes,)
        How many of them belong to each class.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    objective_, duality_gap_ : float or ndarray of shape (n_classes,)
        Value reached, and a bound on its relative distance to the minimum.
    certified_problem_ : {"exact", "clipped kernel"}
        The problem that they refer to: the exact one, or the one with the matrix of an indefinite kernel without its
        negative eigenvalues.
    n_iter_ : int
        Iterations of "cg"; 1 for a factorisation.
    solver_ : str
        The solver used.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    Notes
    -----
    More than two classes are separated one against the rest, all by one factorisation. In the empirical space a sample
    of weight two counts as two features, too, so that it equals the sample given twice; class weights change the price
    of errors only.

    References
    ----------
    .. [1] S. Abe, "Improving generalization abilities of maximal average margin classifiers", ANNPR 2016. In its
       eqs. 34 and 36 the coefficient of b must be the sum of the features without the labels.
    .. [2] J. Suykens, J. Vandewalle, "Least squares support vector machine classifiers", Neural Processing Letters 9,
       1999.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import minmax_scale
    >>> from margindist import LSSVMClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = minmax_scale(X)
    >>> classifier = LSSVMClassifier(kernel="rbf", gamma="5/d")
    >>> path = classifier.path(X, y, Cs=[0.1, 1, 10, 100])
    >>> path.loo_error.round(3)
    array([0.051, 0.042, 0.028, 0.023])
    >>> classifier.set_params(C=path.best_C).fit(X, y).dual_coef_.shape
    (1, 569)
    """

    _requirements = {
        **KERNEL_PARAMETERS,
        **COMMON_PARAMETERS,
        "C": POSITIVE,
        "space": one_of("dual", "empirical"),
        "solver": one_of("auto", "cholesky", "cg"),
    }

    def __init__(
        self,
        C: float = 1.0,
        *,
        space: Literal["dual", "empirical"] = "dual",
        kernel: KernelName | Callable = "linear",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        solver: Literal["auto", "cholesky", "cg"] = "auto",
        tol: float = 1e-8,
        max_iter: int = 1000,
        class_weight: dict | Literal["balanced"] | None = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ):
        self.C = C
        self.space = space
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.verbose = verbose
        self.n_jobs = n_jobs

    @fitting
    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Solve the linear system.

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
        space = self._space_of(data)
        self.solver_ = self._choose_solver(space, data.X)
        if self.solver_ == "cg":
            solutions = self._solve_by_cg(data, X, y)
        else:
            solutions = self._solve_systems(space, data)
        self.certified_problem_ = space.certified
        coefs = np.array([solution.coef for solution in solutions])
        self._store(space, coefs[:, : space.n_coefficients])
        if self.fit_intercept:
            self.intercept_ = coefs[:, -1].copy()
        self._store_convergence(solutions)
        return self

    def path(self, X: MatrixLike, y: ArrayLike, Cs: ArrayLike, sample_weight: ArrayLike | None = None) -> LSSVMPath:
        """Solve for several C at once, with exact leave-one-out errors; the estimator itself stays as it is.

        One eigendecomposition (of the features' scatter or of the kernel matrix, whichever is smaller) serves all C.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,)
            Labels.
        Cs : array-like of shape (n_Cs,)
            Prices of the squared errors, positive.
        sample_weight : array-like of shape (n_samples,), default=None
            How often each sample counts.

        Returns
        -------
        LSSVMPath
        """
        return quietly(clone(self)._path, X, y, np.atleast_1d(np.asarray(Cs, dtype=np.float64)), sample_weight)

    def _path(self, X, y, Cs, sample_weight):
        self._check_parameters()
        if not all(map(POSITIVE.test, Cs)):
            raise ValueError(f"{type(self).__name__}.path: Cs must be positive numbers, got {Cs.tolist()}.")
        data = self._validate_training_data(X, y, sample_weight)
        targets = np.array(self._sign_vectors(data.codes))
        space = self._space_of(data)
        path = self._solve_path(space, data, targets, Cs)
        if np.isnan(path.coefs).any():
            raise self._indefinite(Cs[np.isnan(path.coefs).any(axis=(1, 2))].min())
        if not np.isfinite(path.loo_scores).all():
            raise self._digits_lost("the leave-one-out scores are not finite")
        decision = path.loo_scores.transpose(0, 2, 1)
        if len(targets) == 1:
            decision = decision[:, :, 0]
            predicted = (decision > 0).astype(int)
        else:
            predicted = decision.argmax(axis=2)
        loo_error = (predicted != data.codes) @ data.sample_weights / data.sample_weights.sum()
        return LSSVMPath(Cs, space.for_kernel(path.coefs), path.biases, decision, loo_error)

    def _solve_path(self, space, data, targets, Cs):
        """Return the solutions for all C, in coefficients of the space, with their leave-one-out scores."""
        objectives = [LeastSquares(float(C)) for C in Cs]
        if space.is_narrow:
            rows = as_rows(data.X, self.fit_intercept)
            problem = Problem(objectives, rows, targets, data.weights)
            return least_squares.path_columns(problem, self._metric(rows, data))
        K, G = self._grams(space, data)
        path = least_squares.path_gram(Problem(objectives, G, targets, data.weights), self.fit_intercept)
        return path._replace(coefs=self._expand(path.coefs, space, K, data))

    def _choose_solver(self, space, X):
        linear = space.n_columns is not None
        if self.solver == "cg" and not linear:
            raise ValueError(
                f"{type(self).__name__}: solver='cg' works with kernel='linear' only, got kernel={self.kernel!r}; "
                f"use solver='auto'."
            )
        if self.solver != "auto":
            return self.solver
        large = linear and sp.issparse(X) and min(X.shape) > _LARGEST_FACTOR
        return "cg" if large else "cholesky"

    def _metric(self, rows, data):
        return least_squares.metric_of(rows, data.sample_weights) if self.space == "empirical" else None

    def _space_of(self, data):
        """Return the space of the rows without a constant: the bias is a number of its own here."""
        return self._space(data, constant=False, definite=self.space == "dual")

    def _grams(self, space, data):
        """Return the kernel matrix (or None) and the Gram matrix of the features; both may be overwritten."""
        K = space.gram.whole().values
        if not sp.issparse(data.X) and np.shares_memory(K, data.X):
            K = K.copy()
        if self.space == "empirical":
            return K, (K * data.sample_weights) @ K.T
        return None, K

    def _expand(self, betas, space, K, data):
        """Turn weights (last axis) of the rows' features into coefficients of the space."""
        alphas = betas if K is None else (betas @ K.T) * data.sample_weights
        return space.from_rows(alphas)

    def _indefinite(self, C):
        return ValueError(
            f"{type(self).__name__}: the kernel must be positive semi-definite, but the system with C={C:g} is not; "
            f"lower C or use space='empirical'."
        )

    def _solve_systems(self, space, data):
        targets = np.array(self._sign_vectors(data.codes))
        try:
            solve = self._solve_by_columns if space.is_narrow else self._solve_by_rows
            solutions = quietly(solve, space, data, targets)
        except ArithmeticError as error:
            raise self._digits_lost(error) from error
        if space.n_columns is not None:
            shared = {}
            solutions = [
                quietly(self._go_on, space, data, signs, result, shared) for signs, result in zip(targets, solutions)
            ]
        self._warn_unless_converged(solutions)
        return solutions

    def _go_on(self, space, data, signs, result, shared):
        """Return a solution that has lost its digits, or what other ways lead to if that is nearer."""
        if result.status is Status.OPTIMAL:
            return result
        rows = as_rows(data.X, self.fit_intercept)
        problem, options = self._by_products(rows, signs, data, shared)
        result = least_squares.certify_by_rows(problem, options, result)
        with contextlib.suppress(ArithmeticError):  # prices beyond all digits: at least what was found is finite
            nearly = self.space == "dual" and space.n_columns <= _NEARLY_NARROW * len(signs)
            if nearly and not space.is_narrow:
                result = _nearest(result, *self._solve_by_columns(space, data, signs[None]))
            if least_squares.rounding_floor(problem, options, result) <= self.tol:
                result = _nearest(result, least_squares.solve(problem, options))
        return result

    def _solve_by_columns(self, space, data, targets):
        rows = as_rows(data.X, self.fit_intercept)
        options = Options(self.tol, choices={"metric": self._metric(rows, data)})
        return least_squares.solve_columns(self._problem(rows, targets, data), options)

    def _solve_by_rows(self, space, data, targets):
        K, G = self._grams(space, data)
        choices = {"fit_bias": self.fit_intercept}
        root = np.sqrt(data.sample_weights)
        if K is not None:
            K *= root
            choices["features"] = as_rows(K, self.fit_intercept)
        try:
            solutions = least_squares.solve_gram(self._problem(G, targets, data), Options(self.tol, choices=choices))
        except LinAlgError as error:
            raise self._indefinite(self.C) from error
        m = len(data.codes)
        if K is not None:  # weights of the features, which are kernel values times a root
            solutions = [
                solution._replace(coef=np.append(root * solution.coef[:m], solution.coef[m:])) for solution in solutions
            ]
        columns = space.from_rows(np.array([solution.coef[:m] for solution in solutions]))
        return [
            solution._replace(coef=np.append(coef, solution.coef[m:])) for solution, coef in zip(solutions, columns)
        ]

    def _solve_by_cg(self, data, X, y):
        rows = as_rows(data.X, self.fit_intercept)
        shared = {}

        def solve(k, signs, report):
            return least_squares.solve(*self._by_products(rows, signs, data, shared, report))

        return self._solve_each(solve, data.codes, X, y)

    def _by_products(self, rows, signs, data, shared, report=None):
        """Return one two-class problem, and the options, for conjugate gradients."""
        choices = {"shared": shared}
        if self.space == "empirical":
            choices["feature_weights"] = data.sample_weights
        return self._problem(rows, signs, data), Options(self.tol, self.max_iter, report=report, choices=choices)

    def _problem(self, where, signs, data):
        return Problem(LeastSquares(float(self.C)), where, signs, data.weights)


def _nearest(*solutions):
    """Return the solution that is proved to be nearest to the minimum."""
    return min(solutions, key=lambda solution: solution.gap * solution.objective)


class LSSVMClassifierCV(GridSearchClassifier):
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

    kernel, degree, coef0, space, fit_intercept
        As in :class:`LSSVMClassifier`.

    cv : int, splitter or iterable of (train, test), default=None
        None is 5 stratified folds, an integer that many; see :func:`sklearn.model_selection.check_cv`.

    scoring : str or callable, default=None
        Any scorer of scikit-learn that asks for predictions or decision values; None is the accuracy.

    tol, max_iter, class_weight
        As in :class:`LSSVMClassifier`.

    verbose : int, default=0
        Print progress.

    n_jobs : int, default=None
        Threads for the folds.

    Attributes
    ----------
    cv_results_ : dict
        Scores as in :class:`~sklearn.model_selection.GridSearchCV`, without times: no point of the grid has its own.

    best_estimator_ : LSSVMClassifier
        Fitted to all samples with the best parameters. Its fitted attributes (``coef_``, ``dual_coef_`` ...) are also
        those of this estimator.

    best_params_, best_score_, best_index_ : dict, float and int
        The best point, its mean score and its position in ``cv_results_``; of several, the first.

    C_, gamma_ : float
        The best parameters.

    scorer_, n_splits_ : callable and int
        The scorer used, and the number of folds.

    classes_, n_features_in_, feature_names_in_ : ndarray, int and ndarray
        As in :class:`LSSVMClassifier`.

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

    best_estimator_: LSSVMClassifier
    _classifier = LSSVMClassifier
    _searched = ("C", "gamma")

    def __init__(
        self,
        Cs: Sequence[float] = POWERS_OF_FOUR,
        *,
        gammas: Sequence[str | float] = ("scale",),
        kernel: KernelName | Callable = "linear",
        degree: int = 3,
        coef0: float = 0.0,
        space: Literal["dual", "empirical"] = "dual",
        fit_intercept: bool = True,
        cv: Any = None,
        scoring: str | Callable | None = None,
        tol: float = 1e-8,
        max_iter: int = 1000,
        class_weight: dict | Literal["balanced"] | None = None,
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

    def _decision_values(self, fold, points):
        estimator = fold.estimator
        data = fold.data
        space = fold.space(constant=False, definite=estimator.space == "dual")
        if estimator._choose_solver(space, data.X) == "cg":
            return self._fit_each(fold, points)
        Cs = np.array([float(p["C"]) for p in points])
        targets = np.array(estimator._sign_vectors(data.codes))
        path = estimator._solve_path(space, data, targets, Cs)
        return fold.scores(space, path.coefs) + path.biases[:, None, :], 0
